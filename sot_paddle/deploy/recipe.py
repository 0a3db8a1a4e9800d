"""What a model outside of training needs beside its graph: labels, inputs, how rows are prepared.

Shape legend: B rows of a batch, S tokens after padding, H = W = img_size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle import reading, strict_json
from sot_paddle.config import build_record
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.squad.answers import DecodingOptions
from sot_paddle.data.subword import HEAD, SubwordTokenizer
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
    columns: tuple[str, ...] = ()  # the task's text columns, () when they are not known
    trunc_medium: int = HEAD  # which tokens of a long text are kept: `.subword.kept_tokens`


@dataclasses.dataclass(frozen=True)
class SpanRecipe:
    """How a question and its context become windows, and scores an answer."""

    stride: int  # tokens that windows of a context share
    decoding: DecodingOptions


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything but the graph."""

    model: str
    labels: tuple[str, ...]  # class names in the order of the outputs; () for regression
    inputs: tuple[str, ...]
    preparation: TextRecipe | EvalTransform
    spans: SpanRecipe | None = None  # of a model that answers questions, else None


def recipe_json(recipe: Recipe, more: Mapping[str, Any]) -> str:
    """The content of an export's ``export.json``, with what else is written there for people."""
    content = dataclasses.asdict(recipe)
    kind = "text" if isinstance(recipe.preparation, TextRecipe) else "image"
    content["preparation"] = {kind: content["preparation"]}
    return strict_json.dumps({**content, **more})


def is_export(folder: Path) -> bool:
    """Whether a folder holds an export."""
    return (folder / RECIPE).is_file()


def read_recipe(folder: Path) -> Recipe:
    """Read an export's ``export.json``.

    Raises:
        ValueError: it cannot be read, or is not what an export writes.
    """
    path = folder / RECIPE
    kinds = {"preparation": dict, "model": str, "labels": list, "inputs": list}
    content = reading.read_object(path, kinds)
    ((kind, fields),) = content["preparation"].items()
    record = TextRecipe if kind == "text" else EvalTransform
    spans = content.get("spans")
    if spans is not None:
        decoding = build_record(DecodingOptions, spans["decoding"], where=str(path))
        spans = build_record(SpanRecipe, {**spans, "decoding": decoding}, where=str(path))
    preparation = build_record(record, fields, where=str(path))
    values = {name: content[name] for name in kinds} | {"preparation": preparation, "spans": spans}
    return build_record(Recipe, values, where=str(path))


Preparation = Callable[[Sequence[Any]], Mapping[str, np.ndarray]]
"""A batch of rows to arrays by input name: tuples of one or two texts, or functions that each read
one image."""


@dataclasses.dataclass(frozen=True)
class TextPreparation:
    """Rows of text to padded token ids."""

    tokenizer: SubwordTokenizer
    padding: str  # ``"max_length"`` or ``"longest"`` of the batch

    def __call__(self, rows: Sequence[tuple[str, ...]]) -> dict[str, np.ndarray]:
        """B rows, all of one text or all of two, to int64 arrays (B, S)."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        return self.tokenizer.encode_batch(*columns, pad=self.padding)


def preparation_of(recipe: Recipe, folder: Path) -> Preparation:
    """What a recipe says, with the tokenizer of a folder, which is not read for images.

    Raises:
        ValueError: no tokenizer there.
    """
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        return lambda rows: {"images": np.stack([details(read()) for read in rows])}  # (B, 3, H, W)
    tokenizer = FAMILIES[details.tokenizer].build(
        folder, do_lower_case=details.do_lower_case, max_length=details.max_length
    )
    return TextPreparation(tokenizer.truncating(details.trunc_medium), details.padding)
