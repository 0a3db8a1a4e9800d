"""Random generators of the image pipeline: each a pure function of a position in the training.

Nothing here has a state that lives from one image to the next. The crop of image 17 in epoch 3 is
the same whichever process or worker computes it, before and after a resume.
"""

from __future__ import annotations

import numpy as np

STREAMS = ("augment", "erase", "mix")


def generator(stream: str, seed: int, epoch: int, index: int) -> np.random.Generator:
    """The generator of one purpose at one place.

    Args:
        stream: ``"augment"`` (crop, flip, RandAugment of one image), ``"erase"`` (random erasing
            of one image) or ``"mix"`` (mixup or cutmix of one batch); their draws are independent.
        seed: of the whole run, a whole number from 0 to 2**32 - 1 as the others are.
        epoch: counted from 0.
        index: of the image in its data set; for a batch, of its first image.

    Returns:
        A new counter-based generator (Philox).
    """
    words = [STREAMS.index(stream), seed, epoch, index]
    return np.random.Generator(np.random.Philox(words))
