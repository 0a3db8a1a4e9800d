"""Whole models beyond their taps: plain calls, exports, what norms keep, native operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.planted_controls import MODEL_FAULTS, planted
from align.cases.tensor_functions import called
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays, cast
from align.record.results import Tolerance
from sot_paddle.deploy.graph import JSON, PARAMETERS, Runner, load_graph, save_graph
from sot_paddle.deploy.onnx_file import ONNX, load_onnx, translate

_INPUTS = ("input_ids", "images")
"""What a plain call gives, whichever of them the batch has."""

_TYPES = "token_type_ids"
_VALID = "attention_mask"
_ALL_INPUTS = ("input_ids", _TYPES, _VALID, "images")
_KEPT = Tolerance(
    "scaled",
    1e-5,
    "a batch moves a running value by 1 to 10 % of itself: rounding of the batch's moments, below "
    "1e-5, shows as less than 1e-6; a value that is never updated is 1e-3 and more off",
)
_ROUNDED = Tolerance(
    "scaled", 2e-5, "float32: an operator rounds below 1e-6 of its largest value, some in a row"
)


def plain_call(setting: Setting) -> BothSides:
    """The logits of ``model(input_ids)`` or ``model(images)``, as in a README.

    No mask, no token types and no taps are asked for. A text model is then given masks of every
    type that it takes, and hands truth values to its head.
    """
    pair, dtype = setting.pair, setting.dtype
    given = next(pair.batch[name] for name in _INPUTS if name in pair.batch)
    mask = pair.batch.get(_VALID)
    kinds = () if mask is None else ("int64", "bool", dtype)

    def of(side: Any, model: Any, context: Any, own: bool) -> tuple[Arrays, Mapping[str, Any]]:
        with side.default_dtype(dtype), context.no_grad():
            tensor = side.tensor(given)
            logits = {"logits": model(tensor)}
            for kind in kinds:
                valid = side.tensor(mask.astype(kind if own else "int64"))
                logits[f"logits, mask of {kind}"] = model(tensor, attention_mask=valid)
        found = {name: side.numpy(value) for name, value in logits.items()}
        return found, side.stamp(logits["logits"])

    def ours_of() -> tuple[Arrays, Mapping[str, Any]]:
        return of(on_paddle, pair.model, paddle, own=True)

    reference, stamp = of(on_torch, pair.fresh_reference(), torch, own=False)
    ours, our_stamp = ours_of()
    for kind in kinds:
        handed = pair.model.features(
            paddle.to_tensor(given), None, paddle.to_tensor(mask.astype(kind))
        )
        ours[f"truth values, mask of {kind}"] = np.array(handed.mask.dtype == paddle.bool)
        reference[f"truth values, mask of {kind}"] = np.array(True)
    faults = {}
    for fault in MODEL_FAULTS:
        if fault.backward_only:
            continue
        with planted(fault, pair.model) as where:
            if where is not None:
                faults[fault.name] = ValueFault(ours | ours_of()[0], place=where)
    return BothSides(ours, reference, faults, stamps=stamps(our_stamp, stamp))


def running_statistics(setting: Setting) -> BothSides:
    """Every running mean and variance after a forward pass in training mode, in Paddle's names.

    In float32 the gradients of the token embeddings part by chance (a ReLU or a maximum that
    flips), so their cases compare the forward pass alone; what the batch norms keep is compared
    here.
    """
    pair = setting.pair
    held = pair.judge.statistics(pair.reference).items()
    reference = {name: value for name, value in held if "running" in name}
    ours = {name: pair.ours.state[name] for name in reference}
    before = pair.to_paddle(dict(pair.setup.state))
    faults = {}
    for kind in ("running_mean", "running_var"):
        names = [name for name in ours if name.endswith(kind)]
        kept = ours | {name: before[name] for name in names}
        faults[f"{kind} never updated"] = ValueFault(kept, place=names[0])
    name = next(iter(ours))
    lagging = ours | {name: np.float32(0.5) * (ours[name] + before[name])}
    faults["half of an update"] = ValueFault(lagging, place=name)
    return BothSides(
        ours,
        reference,
        faults,
        rule=_KEPT,
        stamps=stamps(pair.ours.stamp, pair.reference.stamp),
    )


def exported(
    setting: Setting, *, as_onnx: bool = False, types: bool = True, mask: str = "int64"
) -> BothSides:
    """Logits of an export for the batch it was traced with, one row of it, and fewer tokens.

    PADDLE: a saved graph holds a Python number as float32 (4e-8 off), in float64 too: the vision
    models, whose layers have some, are compared in float32 alone, in which exports are made.

    Args:
        setting: of the case.
        as_onnx: run the ONNX file in onnxruntime (float32), not the graph in Paddle.
        types: whether the model looks at token types.
        mask: type of our attention mask: an export takes either, as the model does.
    """
    pair, dtype = setting.pair, setting.dtype
    seen = [name for name in _ALL_INPUTS if name in pair.batch and (types or name != _TYPES)]
    given = {name: pair.batch[name] for name in seen}
    batch = cast(given, dtype, dtype)
    given = {n: a.astype(mask) if n == _VALID else a for n, a in batch.items()}
    graph, axes = _export(setting, given, as_onnx)
    reference = pair.fresh_reference().eval()

    def run(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        return graph({name: value.astype(given[name].dtype) for name, value in inputs.items()})

    def theirs(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        made = called(on_torch, reference, inputs, dtype)
        spans = isinstance(made, tuple)  # scores of starts, and of ends
        return on_torch.numpy(torch.stack(made, dim=1) if spans else made)

    calls = {"the batch": batch, "one row": {name: value[1:2] for name, value in batch.items()}}
    if "images" not in batch:
        calls["fewer tokens"] = {name: value[:, :5] for name, value in batch.items()}
    ours: Arrays = {name: run(inputs) for name, inputs in calls.items()}
    expected: Arrays = {name: theirs(inputs) for name, inputs in calls.items()}
    if as_onnx:
        ours["axes"] = np.array(axes == [["batch", "tokens"]] * len(batch) + [["batch"]])
        expected["axes"] = np.array(True)
    last = list(batch)[-1]
    changed = {**batch, last: np.ones_like(batch[last])}
    return BothSides(
        ours,
        expected,
        {
            f"without {last}": lambda: ours | {"the batch": run(changed)},
            "the rows in reverse": ours | {"the batch": ours["the batch"][::-1]},
        },
        "the batch",
        rule=_ROUNDED if dtype == "float32" else None,
        stamps=stamps(
            on_paddle.stamp(next(iter(pair.model.parameters()))),
            on_torch.stamp(next(iter(reference.parameters()))),
        ),
        note="onnxruntime" if as_onnx else "",
    )


def _export(
    setting: Setting, batch: Mapping[str, np.ndarray], as_onnx: bool
) -> tuple[Runner, list[list[str]]]:
    """What runs the export, and of an ONNX file the names of its open axes."""
    model, folder = setting.pair.model, setting.folder()
    train = model.training
    model.eval()
    with on_paddle.default_dtype(setting.dtype):
        save_graph(model, batch, folder)
    model.train() if train else model.eval()
    if not as_onnx:
        return load_graph(folder, list(batch)), []
    translate(folder / JSON, folder / PARAMETERS, folder / ONNX, list(batch))
    graph = onnx.load(str(folder / ONNX)).graph
    named = [
        [axis.dim_param for axis in item.type.tensor_type.shape.dim if axis.dim_param]
        for item in (*graph.input, *graph.output)
    ]
    return load_onnx(folder), named
