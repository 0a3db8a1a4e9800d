"""Samples to batches: mixing, normalisation, erasing, in the original's order.

The collate functions run in the data workers and return NumPy arrays under ``"images"`` and
``"labels"``. Indices of corrupt images come along under ``CORRUPT``;
:class:`~sot_paddle.data.image_loader.ImageLoader` takes them out and names them.

Shape legend: B images, S pixels of a side, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sot_paddle.data.image_dataset import ImageSample
from sot_paddle.data.image_erasing import ErasingConfig, apply_erasures, draw_erasures
from sot_paddle.data.image_mixing import MixConfig, draw_mix, mix_images, mix_labels
from sot_paddle.data.image_random import generator
from sot_paddle.data.image_transforms import IMAGENET_MEAN, IMAGENET_STD, normalize_batch

CORRUPT = "corrupt"


@dataclass(frozen=True)
class TrainCollate:
    """Collate function of training: mix the bytes, normalise, erase.

    Everything random depends on the seed and the samples' keys only. The mix of a batch is drawn at
    the key of its first sample: each process's share has its own, as in the original.

    Attributes:
        mix: of mixup and CutMix, None for hard labels.
        erasing: of random erasing, None for none.
        seed: of the whole run.
        mean: per channel, for pixels from 0 to 1.
        std: likewise.
    """

    mix: MixConfig | None = None
    erasing: ErasingConfig | None = None
    seed: int = 0
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def __call__(self, samples: Sequence[ImageSample]) -> dict[str, np.ndarray]:
        """One batch.

        Args:
            samples: B of them, B even where ``mix`` is set.

        Returns:
            ``images`` float32 (B, 3, S, S); ``labels`` float32 (B, K) where ``mix`` is set, else
            int64 (B,); ``corrupt`` int64 where images were passed over.
        """
        images = np.stack([sample.image for sample in samples])  # (B, S, S, 3)
        labels = np.array([sample.label for sample in samples], dtype=np.int64)
        if self.mix is not None:
            epoch, index = samples[0].key
            rng = generator("mix", self.seed, epoch, index)
            mix = draw_mix(rng, self.mix, *images.shape[1:3], epoch=epoch)
            images = mix_images(images, mix)
            labels = mix_labels(labels, self.mix.num_classes, mix.lam, self.mix.smoothing)
        normalized = normalize_batch(images, self.mean, self.std)
        if self.erasing is not None:
            for sample, image in zip(samples, normalized, strict=True):
                rng = generator("erase", self.seed, *sample.key)
                apply_erasures(image, draw_erasures(rng, self.erasing, image.shape))
        return _batch(normalized, labels, samples)


@dataclass(frozen=True)
class EvalCollate:
    """Collate function of evaluation: stack what could be decoded.

    Attributes:
        image_size: S, for a batch of which nothing could be decoded.
    """

    image_size: int

    def __call__(self, samples: Sequence[ImageSample]) -> dict[str, np.ndarray]:
        """One batch.

        Returns:
            ``images`` float32 (B', 3, S, S) and ``labels`` int64 (B',) of the B' <= B images that
            can be decoded; ``corrupt`` int64, the others' indices, where there are any.
        """
        good = [sample for sample in samples if sample.image is not None]
        images = np.empty((len(good), 3, self.image_size, self.image_size), dtype=np.float32)
        for place, sample in enumerate(good):
            images[place] = sample.image
        labels = np.array([sample.label for sample in good], dtype=np.int64)
        return _batch(images, labels, samples)


def _batch(
    images: np.ndarray, labels: np.ndarray, samples: Sequence[ImageSample]
) -> dict[str, np.ndarray]:
    batch = {"images": images, "labels": labels}
    corrupt = sorted({index for sample in samples for index in sample.corrupt})
    if corrupt:
        batch[CORRUPT] = np.array(corrupt, dtype=np.int64)
    return batch
