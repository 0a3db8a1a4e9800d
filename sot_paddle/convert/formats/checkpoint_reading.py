"""Read any known checkpoint as this project's tensors, without writing anything."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sot_paddle.checkpoint import FORMAT
from sot_paddle.convert.engine.adapting import Fitted, fit
from sot_paddle.convert.engine.build import build_plan
from sot_paddle.convert.engine.conversion_plan import ConversionPlan, by_reason
from sot_paddle.convert.engine.known_models import registry_name
from sot_paddle.convert.engine.layout import Layout
from sot_paddle.convert.engine.registry import find_table, layouts_of, recognise
from sot_paddle.convert.engine.transforms import KINDS
from sot_paddle.convert.formats.source import Source, open_source
from sot_paddle.convert.tables.bert_hf import PRETRAINING
from sot_paddle.reading import named_in_refusals

_LOG = logging.getLogger(__name__)


def read_as_paddle(
    source: Source, model: str, *, pretraining_heads: bool = False
) -> Mapping[str, np.ndarray]:
    """Convert a checkpoint of a text model in memory.

    Args:
        source: of any layout in ``TABLES``, or with Paddle's names.
        model: registry name of the model to fill.
        pretraining_heads: those of a PyTorch checkpoint as well, which a classifier leaves out;
            of a head that the checkpoint does not have nothing is there.

    Returns:
        Tensors under Paddle's names and in its layout; read lazily when nothing is converted.

    Raises:
        ValueError: not a checkpoint, or one that does not fit the model.
    """
    usual = layouts_of(model)[0]
    layout, side = recognise(source.tensors.shapes, first=usual)
    if side == "paddle":
        return source.tensors
    heads = _pretraining_heads(source.tensors) if pretraining_heads else {}
    layout = layout or usual
    plan = build_plan(layout, model, source.tensors.shapes, config=source.config)
    left_out = _heads_of_other_tasks(plan, find_table(layout, model))
    if left_out:
        _LOG.warning("%s: left out: %s", source.path, "; ".join(by_reason(left_out)))
    return {**plan.apply(source.tensors), **heads}


def _pretraining_heads(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Paddle name -> tensor of the heads of BERT's pre-training."""
    heads = {}
    for row in PRETRAINING:
        for name in (row.source, *row.aliases):
            if name in tensors:
                array = KINDS[row.kind].forward(np.asarray(tensors[name]))
                heads[row.destination] = np.ascontiguousarray(array)
    return heads


def _heads_of_other_tasks(plan: ConversionPlan, table: Layout) -> dict[str, str]:
    """Source tensor -> reason, for the head of a task that the models do not have."""
    reasons = {reason for rows in table.foreign.values() for reason in rows.values()}
    reasons |= {reason for _, reason in table.companions.values()}
    return {name: reason for name, reason in plan.ignored.items() if reason in reasons}


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
        return _fit(source, plan, {name: tuple(shape) for name, shape in shapes.items()})


def _plan(source: Source, layout: str, model: str) -> ConversionPlan | None:
    """The conversion to Paddle's names; None for a file that has them."""
    shapes = source.tensors.shapes
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


def _fit(
    source: Source, plan: ConversionPlan | None, wanted: Mapping[str, tuple[int, ...]]
) -> Fitted:
    notes = list(source.notes)
    if plan is None:
        shapes = source.tensors.shapes
    else:
        shapes = plan.destination_shapes
        notes.append(f"layout {plan.layout}: {len(shapes)} tensors converted")
        notes += [f"ignored: {text}" for text in by_reason(plan.ignored)]

    def read(name: str) -> np.ndarray:
        return source.tensors[name] if plan is None else plan.convert(name, source.tensors)

    fitted = fit(shapes, wanted, read)
    return dataclasses.replace(
        fitted,
        notes=(*notes, *fitted.notes),
        metadata=source.metadata if plan is None else {},
        averaged=source.averaged,
    )
