"""Draw what a small text model or image model takes, by the names of its arguments; no tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

LENGTHS = (11, 6, 9, 4)


def text_inputs(
    options: Mapping[str, Any], lengths: Sequence[int] = LENGTHS, *, length: int = 11, seed: int = 7
) -> dict[str, np.ndarray]:
    """Draw padded rows of token ids, their types and the mask, (B, S) int64 each.

    Args:
        options: of the model, for the vocabulary, the padding id and the types that it knows.
        lengths: tokens of every row, the second half of which is the second text.
        length: S.
        seed: of the ids.
    """
    rng = np.random.default_rng(seed)
    places, counts = np.arange(length)[None], np.array(lengths)[:, None]
    mask = (places < counts).astype("int64")
    padding = options.get("pad_token_id", 0)
    ids = rng.integers(0 if padding else 1, options["vocab_size"], mask.shape)
    types = (places >= counts // 2) * mask if options.get("type_vocab_size") != 1 else 0 * mask
    return {
        "input_ids": np.where(mask, ids, padding),
        "token_type_ids": types,
        "attention_mask": mask,
    }


def image_inputs(samples: int, size: int, *, seed: int = 7) -> dict[str, np.ndarray]:
    """Draw images (samples, 3, size, size), normal in every pixel, float64."""
    return {"images": np.random.default_rng(seed).normal(size=(samples, 3, size, size))}
