"""Words masked anew in every epoch, from draws that are a function of (seed, epoch, row).

Shape legend: S tokens of a row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

REPLACED, RANDOM = 0.8, 0.5
"""Share of the chosen words that become [MASK]; share of the others that become random words."""


@dataclass(frozen=True)
class MaskDraws:
    """What masking a row draws.

    Attributes:
        uniform: (3, S) from 0 to 1: whether a token is chosen, becomes [MASK], becomes a random
            word.
        words: (S,) random words.
    """

    uniform: np.ndarray
    words: np.ndarray


def draws_of(seed: int, epoch: int, row: int, length: int, vocab_size: int) -> MaskDraws:
    """The draws of a row in an epoch, whatever was drawn before."""
    rng = np.random.Generator(np.random.PCG64([seed, epoch, row]))
    return MaskDraws(rng.random((3, length)), rng.integers(0, vocab_size, length))


def masked(
    ids: np.ndarray, draws: MaskDraws, *, share: float, mask_id: int, kept: Collection[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Mask words of a row.

    Args:
        ids: (S,) token ids, padded.
        draws: of the row.
        share: of the tokens that are chosen, each by itself.
        mask_id: id of [MASK].
        kept: ids that are never chosen (special tokens, padding).

    Returns:
        (S,) ids with words masked, (S,) bool: which words were chosen.

    Source: specs.md E.3.
    """
    chosen = (draws.uniform[0] < share) & ~np.isin(ids, list(kept))
    hidden = chosen & (draws.uniform[1] < REPLACED)
    other = chosen & ~hidden & (draws.uniform[2] < RANDOM)
    return np.where(hidden, mask_id, np.where(other, draws.words, ids)), chosen
