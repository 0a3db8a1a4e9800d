"""Rows of text and images to the arrays that a graph takes, as in training's evaluation.

Shape legend: B rows of a batch, S tokens after padding, H = W = img_size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizer_families import FAMILIES
from sot_paddle.deploy.recipe import Recipe

Preparation = Callable[[Sequence[Any]], Mapping[str, np.ndarray]]
"""A batch of rows to arrays by input name: tuples of one or two texts, or functions that each read
one image."""


@dataclasses.dataclass(frozen=True)
class TextPreparation:
    """Rows of text to padded token ids.

    Attributes:
        tokenizer: cuts as in training.
        padding: ``"max_length"`` or ``"longest"`` of the batch.
    """

    tokenizer: SubwordTokenizer
    padding: str

    def __call__(self, rows: Sequence[tuple[str, ...]]) -> dict[str, np.ndarray]:
        """B rows, all of one text or all of two, to int64 arrays (B, S)."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        return self.tokenizer.encode_batch(*columns, pad=self.padding)


def preparation_of(recipe: Recipe, folder: Path) -> Preparation:
    """What a recipe says, with the tokenizer of a folder, which is not read for images.

    Raises:
        DataError: no tokenizer there.
    """
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        return lambda rows: {"images": np.stack([details(read()) for read in rows])}  # (B, 3, H, W)
    tokenizer = FAMILIES[details.tokenizer].build(
        folder, do_lower_case=details.do_lower_case, max_length=details.max_length
    )
    return TextPreparation(tokenizer.truncating(details.trunc_medium), details.padding)
