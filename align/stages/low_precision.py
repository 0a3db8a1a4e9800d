"""bfloat16 and float16 where a GPU computes them: both sides under autocast, forward and backward.

Every tensor is judged by its L2 distance from the float64 run of the reference, in units of how far
PyTorch's own low-precision run is from it: see `bounds`. A tensor of which that run does not know
the first digit is not judged and named in the note. Two more things are asked: that autocast had an
effect on both sides, and that a fault of 4 % would have been seen.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from align.frameworks import on_paddle, on_torch
from align.judge import bounds
from align.judge.bounds import UNCERTAIN
from align.judge.comparator import compare_arrays, within
from align.pair.any_pair import AnyPair
from align.record.arrays import is_low
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, Divergence, StepResult, Tolerance
from align.stages.stages import fault, judged_control
from sot_paddle.config import some

FAULT = 0.04  # what the controls plant
TINY = {"bfloat16": 2.0**-10, "float16": 2.0**-13}
"""Part of the largest gradient below which another one is rounding."""
Found = tuple[StepResult, list[Divergence]]


def check(dtypes: Sequence[str]) -> None:
    """Refuse low precisions where a framework has no GPU to compute them on.

    Args:
        dtypes: of the plan.

    Raises:
        ValueError: one of them is low, and a framework is on the CPU.
    """
    low = [dtype for dtype in dtypes if is_low(dtype)]
    without = [side.NAME for side in (on_torch, on_paddle) if low and not side.has_gpu()]
    if without:
        raise ValueError(
            f"dtype {low[0]!r}: is computed on a CUDA device, and there is none here for "
            f"{' and '.join(without)}: leave it out, or run where there is one"
        )


def forward(pair: AnyPair) -> Found:
    """Every floating tap, running statistics in training mode, and whether autocast did anything.

    Args:
        pair: in a low precision.

    Returns:
        StepResult of step "forward" and the first divergence.
    """
    unsure: set[str] = set()

    def judge(ours: Recording) -> list[Comparison]:
        found = pair.taps(ours)
        kept = [c for c in found if c.tolerance != bounds.EXACT or c.name.startswith("(")]
        return _certain(kept, unsure)

    effect = [_in_format(side, pair.dtype) for side in (pair.ours, pair.reference)]
    judged = judge(pair.ours)
    share = fault(judged, FAULT)
    grown = _each_call(pair.ours, "outputs", lambda own: _scaled(own, 1 + share))
    controls = [
        judged_control(f"every tap {share:.0%} too large", judge(grown), "the taps"),
        judged_control("autocast without effect", [_effect(0, effect[1] or 1)], "Paddle"),
    ]
    note = f"taps that hold {pair.dtype} numbers: Paddle {effect[0]}, PyTorch {effect[1]}"
    comparisons = [*judged, _effect(*effect)]
    return _found(pair, "forward", comparisons, controls, f"{note}; {_left_out(unsure)}")


def backward(pair: AnyPair) -> Found:
    """The user's loss, the taps' gradients, those of the parameters and of the inputs.

    The default loss, a sum of both signs that cancels, says nothing here and is left out.

    Args:
        pair: in a low precision.

    Returns:
        StepResult of step "backward" and the first divergence.
    """
    unsure: set[str] = set()

    def judge(ours: Recording) -> list[Comparison]:
        kept = [c for c in pair.gradients(ours) if c.name != "loss" or pair.plan.loss is not None]
        tiny = TINY[pair.dtype] * pair.largest_gradient
        return [_vanishing(one, tiny) for one in _certain(kept, unsure)]

    comparisons = judge(pair.ours)
    share = fault(comparisons, 2 * FAULT)
    grown = _each_call(pair.ours, "grad_outputs", lambda own: _scaled(own.items(), 1 + share))
    grown.gradients = dict(_scaled(pair.ours.gradients.items(), 1 + share))
    name = f"gradients {share:.0%} too large"
    controls = [judged_control(name, judge(grown), "all gradients")]
    note = f"the backward pass runs uncast; {_left_out(unsure)}"
    if pair.plan.steps:
        note += "; training is compared in float64 and float32"
    return _found(pair, "backward", comparisons, controls, note)


def _certain(found: Sequence[Comparison], unsure: set[str]) -> list[Comparison]:
    """The comparisons of tensors of which PyTorch's own run knows the first digit.

    Args:
        found: by their floors.
        unsure: receives the names of the others.
    """
    wide = {c.name for c in found if (c.tolerance.factor or 0.0) * (c.peer or 0.0) >= UNCERTAIN}
    unsure |= wide
    return [c for c in found if c.name not in wide]


def _vanishing(one: Comparison, tiny: float) -> Comparison:
    """A gradient far below the largest one: what it is off may be a share of that one."""
    if one.passed or not one.max_abs <= tiny or one.tolerance.kind != "oracle":
        return one
    why = "a gradient far below the largest one is judged by a rounding of that one"
    rule = Tolerance("absolute", tiny, why)
    return within(dataclasses.replace(one, worst=one.max_abs, scale=1.0, unit=""), tiny, rule)


def _left_out(unsure: set[str]) -> str:
    """One remark about the tensors that were not judged."""
    if not unsure:
        return "every tensor was judged"
    return f"PyTorch's own runs scatter too far to judge {len(unsure)}: {some(sorted(unsure))}"


def _in_format(recording: Recording, dtype: str) -> int:
    """Number of floating taps whose values all fit the format."""
    bits = np.uint32(2**16 - 1 if dtype == "bfloat16" else 2**13 - 1)
    taps = [a for c in recording.calls.values() for _, a in c.outputs if a.dtype == np.float32]
    return sum(a.size > 0 and not (a.view(np.uint32) & bits).any() for a in taps)


def _effect(ours: int, reference: int) -> Comparison:
    """Whether autocast rounded anything; one side that silently stays in float32 fails."""
    flags = [np.asarray([float(count > 0)]) for count in (ours, reference)]
    return compare_arrays("(autocast has an effect)", *flags, bounds.EXACT)


def _scaled(arrays: Sequence, factor: float) -> list[tuple[str, np.ndarray]]:
    return [(path, a * factor if a.dtype.kind == "f" else a) for path, a in arrays]


def _each_call(recording: Recording, kind: str, change: Callable[[Sequence], list]) -> Recording:
    """The recording with one kind of array of every call changed."""
    changed = copy.copy(recording)
    changed.calls = {}
    for key, call in recording.calls.items():
        own: Call = copy.copy(call)
        made = change(getattr(call, kind))
        setattr(own, kind, made if kind == "outputs" else dict(made))
        changed.calls[key] = own
    return changed


def _found(
    pair: AnyPair, step: str, comparisons: list[Comparison], controls: list, note: str
) -> Found:
    """The step, and its first failed comparison as a divergence."""
    name, dtype = pair.plan.name, pair.dtype
    stamps = {"ours": pair.ours.stamp, "reference": pair.reference.stamp}
    result = StepResult(name, step, dtype, comparisons, controls, note=note, stamps=stamps)
    failed = result.first_failure
    if failed is None:
        return result, []
    if failed.name.startswith("(autocast"):
        side = on_paddle.NAME if failed.ours == 0 else on_torch.NAME
        cause = f"autocast had no effect in {side}: is it switched off inside the model?"
        return result, [Divergence(failed.name, ROOT, step, dtype, failed.reason, cause)]
    place = failed.name.removeprefix("gradient at ").removeprefix("input ").partition("[")[0]
    if place.partition("#")[0] not in on_paddle.modules(pair.model):
        place = place.rpartition(".")[0] or ROOT
    code = pair.code(place)
    return result, [Divergence(failed.name, place, step, dtype, failed.reason, failed.hint, code)]
