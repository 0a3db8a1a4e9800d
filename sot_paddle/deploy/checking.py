"""How far an export is from the model it was made of, on real inputs of several shapes.

Shape legend: B rows of a batch, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sot_paddle.data.image_digits import load_digits
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.deploy.graph import Runner
from sot_paddle.deploy.preparation import Preparation, TextPreparation
from sot_paddle.deploy.recipe import Recipe

BOUND = 1e-4
"""Largest difference of a logit, in units of the largest logit (or of 1, where that is larger).

Both compute in float32 and differ by rounding: by 1e-6 at most in what was measured
(docs/measurements.md). With logits up to 1 it moves a probability by at most 5e-5.
"""
ROWS = 16
"""Rows of the largest batch that is compared."""

Batch = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """What a comparison found.

    Attributes:
        size: largest difference of a logit, in units of `scale`; infinite where one is not finite.
        scale: largest logit of the model, at least 1.
        rows: rows compared.
        shapes: shape of the first input of each batch.
        same: rows with the same best class.
    """

    size: float
    scale: float
    rows: int
    shapes: tuple[tuple[int, ...], ...]
    same: int

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) for shape in self.shapes)
        return (
            f"largest difference {self.size:.1e} of logits up to {self.scale:.3g} (bound "
            f"{BOUND:g}), same class in {self.same} of {self.rows} rows; inputs {shapes}"
        )


def real_rows(recipe: Recipe) -> list[Any]:
    """Sentences that come with the package (pairs, but for single-sentence tasks), or digits."""
    details = recipe.preparation
    if isinstance(details, EvalTransform):
        digits = load_digits(max(details.img_size, 8))[1]
        step = len(digits) // ROWS
        return [lambda place=place: digits.image(place * step) for place in range(ROWS)]
    sentences = [text for text in reversed(REAL_SENTENCES) if text.strip()]  # longest first
    if details.num_texts == 1:
        return [(text,) for text in sentences[:ROWS]]
    return list(zip(sentences[:ROWS], sentences[ROWS : 2 * ROWS], strict=True))


def batches(rows: Sequence[Any], prepare: Preparation) -> list[Batch]:
    """The same rows in several shapes: a full batch, single rows, a few; texts in their own length.

    Returns:
        One batch of up to 16 rows as in use, one of a single row, one of up to three rows.
    """
    rows = list(rows[:ROWS])
    tight = prepare
    if isinstance(prepare, TextPreparation):
        rows.sort(key=lambda row: sum(map(len, row)))
        tight = TextPreparation(prepare.tokenizer, "longest")
    return [prepare(rows), tight(rows[:1]), tight(rows[len(rows) // 2 :][:3])]


def compare(inputs: Sequence[Batch], model: Runner, export: Runner) -> Difference:
    """Run both on the same inputs.

    Args:
        inputs: batches, their first array being the input whose shapes are told.
        model: the training model.
        export: what was made of it.

    Raises:
        ValueError: the model's own logits are not finite, or the export's have another shape.
    """
    expected = [model(batch) for batch in inputs]
    found = [export(batch) for batch in inputs]
    for ours, theirs in zip(expected, found, strict=True):
        if ours.shape != theirs.shape:
            raise ValueError(f"the export gives logits {theirs.shape}, the model {ours.shape}")
    rows = sum(map(len, expected))
    same = sum(map(_same_rows, expected, found))
    ours, theirs = (
        np.concatenate([one.ravel() for one in part]).astype(np.float64)
        for part in (expected, found)
    )
    if not np.isfinite(ours).all():
        raise ValueError("the model's own logits on these inputs are not finite: train it first")
    scale = max(1.0, float(np.abs(ours).max()))
    size = float(np.abs(ours - theirs).max()) / scale
    return Difference(
        size=size if np.isfinite(size) else np.inf,
        scale=scale,
        rows=rows,
        shapes=tuple(next(iter(batch.values())).shape for batch in inputs),
        same=same,
    )


def _same_rows(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Rows whose best class, or best start and end, is the same."""
    agree = ours.argmax(axis=-1) == theirs.argmax(axis=-1)
    return int(agree.reshape(len(agree), -1).all(axis=1).sum())
