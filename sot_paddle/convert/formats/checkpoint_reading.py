"""Fit a checkpoint of an image model to a model of another size, without writing anything.

Some tensors are resampled, some left fresh. Nothing happens silently: every change has a reason
that the callers show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import FORMAT
from sot_paddle.config import some
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.conversion_plan import ConversionPlan, by_reason
from sot_paddle.convert.engine.known_models import CLASS_SCORES, WORD_SCORES, registry_name
from sot_paddle.convert.engine.registry import layouts_of, recognise
from sot_paddle.convert.formats.source import Source, open_source
from sot_paddle.reading import named_in_refusals
from sot_paddle.resampling import (
    is_sinusoid,
    resample_position_embedding,
    sinusoid_table,
)

Shapes = Mapping[str, tuple[int, ...]]

POSITIONS = "pos_embed"
BIAS_TABLE = ".attn.relative_position_bias_table"
_CLASSIFIERS = (*WORD_SCORES, *CLASS_SCORES)


@dataclass(frozen=True)
class Fitted:
    """A checkpoint fitted to a model.

    Args:
        arrays: Paddle name -> array of the model's shape and the checkpoint's dtype.
        fresh: names of the model's tensors that keep their initialisation.
        notes: what was read, resampled or left out; to be shown to the user.
        metadata: what a file in Paddle's names states about the model it is of, else {}. Whoever
            fills a model compares it with the model's options: shapes do not show them all.
        averaged: whether these are the averaged weights of a training's file; None where the file
            holds one set of weights.
    """

    arrays: Mapping[str, np.ndarray]
    fresh: tuple[str, ...]
    notes: tuple[str, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    averaged: bool | None = None


def read_for_model(
    place: str | Path,
    model: str,
    shapes: Mapping[str, Sequence[int]],
    *,
    layout: str = "",
    ema: bool | None = None,
) -> Fitted:
    """Read a checkpoint of an image model, converted or of any layout, and fit it to a model.

    Positions and relative position biases are resampled to the model's sizes; a head or a token
    embedding of another kind, and classifiers of another number of classes, stay fresh.

    Args:
        place: a file, or a directory with weights.
        model: registry name of the model to fill.
        shapes: the model's own tensors: Paddle name -> shape.
        layout: key of ``TABLES``; found from the tensors when empty.
        ema: of a training's torch file, take the averaged weights (True), the others (False), or
            the averaged ones where there are any (None).

    Returns:
        The tensors, what stays fresh, and notes.

    Raises:
        ValueError: not a checkpoint, of no known layout, or one whose backbone does not fit.
    """
    place, model = Path(place), registry_name(model)
    source = open_source(place, ema=ema)
    with named_in_refusals(source.path):
        plan = _plan(source, layout, model)
        wanted = {name: tuple(shape) for name, shape in shapes.items()}
        if plan is None:
            fitted = _fit(source.shapes, wanted, source.tensors.__getitem__)
            notes, metadata = fitted.notes, source.metadata
        else:
            tensors, converted = source.tensors, plan.destination_shapes
            fitted = _fit(converted, wanted, lambda name: plan.convert(name, tensors))
            done = f"layout {plan.layout}: {len(converted)} tensors converted"
            ignored = (f"ignored: {text}" for text in by_reason(plan.ignored))
            notes, metadata = (done, *ignored, *fitted.notes), {}
    notes = (*source.notes, *notes)
    return replace(fitted, notes=notes, metadata=metadata, averaged=source.averaged)


def _plan(source: Source, layout: str, model: str) -> ConversionPlan | None:
    """The conversion to Paddle's names; None for a file that has them."""
    shapes = source.shapes
    recognised, side = recognise(shapes, first=layout)
    is_ours = FORMAT in source.metadata or source.path.suffix == ".pdparams"
    if is_ours or side == "paddle":
        if layout:
            raise ValueError(f"is in Paddle's names already; leave the layout {layout!r} out")
        return None
    if not layout and not recognised:
        raise ValueError(
            "its tensors have the names of no known layout (first:"
            f" {next(iter(shapes))!r}); name the layout to see what does not fit:"
            f" {', '.join(layouts_of(model))}"
        )
    return build_plan(layout or recognised, model, shapes)


def _fit(shapes: Shapes, wanted: Shapes, read: Callable[[str], np.ndarray]) -> Fitted:
    """Fit the tensors of a file to a model of given shapes.

    Position embeddings and bias tables are resampled. A token embedding of another kind, a head of
    another kind and classifiers of another number of classes are dropped. Everything else must fit.

    Args:
        shapes: what the file holds.
        wanted: what the model holds.
        read: name -> array of the file.

    Raises:
        ValueError: a backbone of another size or with other tensors, by name.
    """
    dropped = {**_drop_embed(shapes, wanted), **_drop_head(shapes, wanted)}
    parts = ("embed.", "head.")
    backbone = [name for name in shapes if not name.startswith(parts)]
    missing = [name for name in wanted if not name.startswith(parts) and name not in shapes]
    extra = [name for name in backbone if name not in wanted]
    if missing or extra:
        what = (("lacks", missing), ("has what the model lacks:", extra))
        raise ValueError(
            f"the backbone {'; '.join(f'{verb} {some(n)}' for verb, n in what if n)}: build the "
            "model with the depth and options the file was made with"
        )
    others = [name for name in backbone if shapes[name] != wanted[name]]
    resampled = {name: _resample(name, read(name), wanted[name]) for name in others}
    fresh = tuple(name for name in wanted if name not in shapes or name in dropped)
    arrays = {
        name: resampled[name][0] if name in resampled else read(name)
        for name in wanted
        if name not in fresh
    }
    reasons = {name: reason for name, (_, reason) in resampled.items()}
    notes = [f"resized: {text}" for text in by_reason(reasons)]
    notes += [f"not taken from the file: {text}" for text in by_reason(dropped)]
    if fresh:
        count = f"{len(fresh)} tensors" if len(fresh) > 1 else "1 tensor"
        notes.append(f"left at initialisation: {some(fresh)} ({count})")
    return Fitted(arrays, fresh, tuple(notes))


def _drop_embed(shapes: Shapes, wanted: Shapes) -> dict[str, str]:
    expected, present = ([n for n in side if n.startswith("embed.")] for side in (wanted, shapes))
    reason = "the model has another token embedding"
    if set(expected) == set(present):
        odd = next((name for name in expected if wanted[name] != shapes[name]), None)
        if odd is None:
            return {}
        reason += f": {odd} is {wanted[odd]}, not {shapes[odd]}"
    return dict.fromkeys(present, reason)


def _drop_head(shapes: Shapes, wanted: Shapes) -> dict[str, str]:
    expected, present = ([n for n in side if n.startswith("head.")] for side in (wanted, shapes))
    if set(expected) != set(present):
        return dict.fromkeys(present, "the model has another head")
    odd = {name.rpartition(".")[0] for name in expected if wanted[name] != shapes[name]}
    inner = sorted(layer for layer in odd if f"{layer}.weight" not in _CLASSIFIERS)
    if inner:
        return dict.fromkeys(present, f"the model's head has another {inner[0]}")
    reasons = {}
    for name in present:
        layer = name.rpartition(".")[0]
        if layer in odd:
            file_classes, model_classes = (side[f"{layer}.bias"][0] for side in (shapes, wanted))
            reasons[name] = (
                f"a classifier of {file_classes} classes, and {model_classes} are wanted"
                if file_classes != model_classes
                else "a classifier of another representation"
            )
    return reasons


def _resample(name: str, array: np.ndarray, wanted: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """A tensor for another number of positions, and from what to what and how it was made."""
    shape = array.shape
    same_width = len(shape) == len(wanted) and shape[-1] == wanted[-1]
    if name == POSITIONS and same_width:
        _, positions, dim = wanted
        if is_sinusoid(array):
            table = sinusoid_table(positions, dim).astype(np.float32).astype(array.dtype)
            return table, f"the fixed table of {shape[1]} positions is computed for {positions}"
        how = "bicubic with antialiasing as timm's resample_abs_pos_embed"
        reason = f"learned positions of {shape[1] - 1} tokens to {positions - 1}, {how}"
        return resample_position_embedding(array, positions - 1), reason
    raise ValueError(
        f"{name} has shape {shape}, the model wants {wanted}: a backbone of another size"
    )
