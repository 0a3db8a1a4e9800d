"""What a model outside of training needs beside its graph: labels, inputs, how rows are prepared.

Shape legend: B rows of a batch, S tokens after padding, H = W = img_size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle import reading
from sot_paddle.config import build_record
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.subword import HEAD
from sot_paddle.data.tokenizers import FAMILIES

RECIPE = "export.json"


@dataclasses.dataclass(frozen=True)
class TextRecipe:
    """How rows of text become numbers, as in training."""

    tokenizer: str  # a key of `sot_paddle.data.tokenizers.FAMILIES`
    max_length: int
    padding: str  # ``"max_length"`` or ``"longest"``
    do_lower_case: bool
    num_texts: int | None = None  # 1 for sentences, 2 for pairs, None for either
    trunc_medium: int = HEAD  # which tokens of a long text are kept: `.subword.kept_tokens`


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything but the graph."""

    model: str
    labels: tuple[str, ...]  # class names in the order of the outputs; () for regression
    inputs: tuple[str, ...]
    preparation: TextRecipe | EvalTransform


def recipe_json(recipe: Recipe, more: Mapping[str, Any]) -> str:
    """The content of an export's ``export.json``, with what else is written there for people."""
    content = dataclasses.asdict(recipe)
    kind = "text" if isinstance(recipe.preparation, TextRecipe) else "image"
    content["preparation"] = {kind: content["preparation"]}
    return reading.dumps({**content, **more})


def read_recipe(folder: Path) -> Recipe:
    """Read an export's ``export.json``.

    Raises:
        ValueError: it cannot be read, or is not what an export writes.
    """
    path = folder / RECIPE
    content = reading.read_json(path)
    ((kind, fields),) = reading.field_of(content, "preparation", dict, str(path)).items()
    record = TextRecipe if kind == "text" else EvalTransform
    content["preparation"] = build_record(record, fields, where=str(path))
    values = {f.name: content[f.name] for f in dataclasses.fields(Recipe) if f.name in content}
    return build_record(Recipe, values, where=str(path))


Preparation = Callable[[Sequence[Any]], Mapping[str, np.ndarray]]
"""A batch of rows to arrays by input name: tuples of one or two texts, or functions that each read
one image."""


def preparation_of(recipe: Recipe, folder: Path) -> Preparation:
    """What a recipe says, with the tokenizer of a folder, which is not read for images.

    Returns:
        Maps B images to float32 (B, 3, H, W), B rows of texts to int64 arrays (B, S).

    Raises:
        ValueError: no tokenizer there.
    """
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        return lambda rows: {"images": np.stack([details(read()) for read in rows])}
    tokenizer = (
        FAMILIES[details.tokenizer]
        .build(folder, do_lower_case=details.do_lower_case, max_length=details.max_length)
        .truncating(details.trunc_medium)
    )

    def encode(rows: Sequence[tuple[str, ...]]) -> dict[str, np.ndarray]:
        columns = [list(column) for column in zip(*rows, strict=True)]
        return tokenizer.encode_batch(*columns, pad=details.padding)

    return encode
