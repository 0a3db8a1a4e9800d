"""Step ``forward`` of whole models beyond their taps: a plain call, and what batch norms keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.planted_controls import MODEL_FAULTS, planted
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from align.record.tolerance import Tolerance

_INPUTS = ("input_ids", "images")
"""What a plain call gives, whichever of them the batch has."""

_KEPT = Tolerance(
    "scaled",
    1e-5,
    "a batch moves a running value by 1 to 10 % of itself: rounding of the batch's moments, below "
    "1e-5, shows as less than 1e-6; a value that is never updated is 1e-3 and more off",
)


def plain_call(setting: Setting) -> BothSides:
    """The logits of ``model(input_ids)`` or ``model(images)``, as in a README.

    No mask, no token types and no taps are asked for.
    """
    pair, dtype = setting.pair, setting.dtype
    given = next(pair.batch[name] for name in _INPUTS if name in pair.batch)

    def of(side: Any, model: Any, context: Any) -> tuple[Arrays, Mapping[str, Any]]:
        with side.default_dtype(dtype), context.no_grad():
            logits = model(side.tensor(given))
        return {"logits": side.numpy(logits)}, side.stamp(logits)

    reference, stamp = of(on_torch, pair.fresh_reference(), torch)
    ours, our_stamp = of(on_paddle, pair.model, paddle)
    faults = {}
    for fault in MODEL_FAULTS:
        if fault.backward_only:
            continue
        with planted(fault, pair.model) as where:
            if where is not None:
                faults[fault.name] = ValueFault(of(on_paddle, pair.model, paddle)[0], place=where)
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
