"""Mixed precision against the float64 oracle: forward, backward, training; see `precision`.

Every tensor is judged by its L2 distance from the float64 run of the reference, in units of what
PyTorch's own low-precision runs are off: see `bounds` and `low_noise`. A tensor of which those runs
do not know the first digit is not judged and named in the note. Two more things are asked: that
mixed precision had an effect on Paddle at all, and that a fault of 4 % would have been seen.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch
from align.judge import bounds
from align.judge.comparator import compare_arrays, compare_mappings
from align.judge.judging import apart, largest
from align.pair import code_lines, runs
from align.pair.any_pair import AnyPair
from align.pair.low_noise import DRAWS, Scatter, fault, left_out, shifted, with_noise
from align.record import precision
from align.record.arrays import Arrays, TrainingRun
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, Divergence, StepResult
from align.stages.stages import judged_control

FAULT = 0.04  # what the controls plant
_RIGHT = 1e-3  # of its size: a tensor of the float32 run this near to the oracle is right
Found = tuple[StepResult, list[Divergence]]


def check(dtypes: tuple[str, ...]) -> None:
    """Refuse precisions that Paddle cannot run on its device.

    Args:
        dtypes: of the plan.

    Raises:
        ValueError: float16 on the CPU.
    """
    import paddle

    precision.refuse_on_cpu(dtypes, paddle.get_device())


def stages(pair: AnyPair) -> Iterator[Callable[[], Found]]:
    """What to run, in this order, for a pair in "bfloat16" or "float16".

    Args:
        pair: of that dtype.

    Raises:
        ValueError: not a low precision, or one that Paddle cannot run here.
    """
    if not precision.is_low(pair.dtype):
        raise ValueError(f"dtype {pair.dtype!r}: expected bfloat16 or float16")
    check((pair.dtype,))
    scatter = Scatter(pair)
    yield functools.partial(forward, pair, scatter)
    yield functools.partial(backward, pair, scatter)
    if pair.plan.steps:
        yield functools.partial(training, pair)


def _ran(side: Any, dtype: str, run: Callable[[], Any]) -> Any:
    """A run, or one clear line about the operator that does not exist in this precision."""
    try:
        return run()
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise precision.failed(side.NAME, dtype, error) from error


def _recordings(pair: AnyPair) -> tuple[Recording, Recording, Recording]:
    reference = _ran(on_torch, pair.dtype, lambda: pair.reference)
    return _ran(on_paddle, pair.dtype, lambda: pair.ours), reference, pair.oracle


def forward(pair: AnyPair, scatter: Scatter) -> Found:
    """Every floating tap, running statistics in training mode, and whether auto_cast did anything.

    Args:
        pair: in a low precision.
        scatter: of PyTorch's own runs.

    Returns:
        StepResult of step "forward" and the first divergence.
    """
    ours, reference, oracle = _recordings(pair)
    plain = _float32(pair, on_paddle)
    effects = _moved(ours, plain), _moved(reference, _float32(pair, on_torch))

    unsure: set[str] = set()

    def judge(recording: Recording) -> list[Comparison]:
        found = pair.judge.each_tap(recording, reference, oracle, None)
        kept = [c for c in found if c.tolerance != bounds.EXACT or c.name.startswith("(")]
        if pair.plan.train:
            kept += pair.judge.buffers(recording, reference, oracle, None)
        return with_noise(kept, scatter.forward, _factor(pair, "forward"), unsure)

    judged = judge(ours)
    share = fault(judged, FAULT)
    controls = [
        judged_control(f"every tap {share:.0%} too large", judge(_scaled(ours, share)), "the taps"),
        judged_control("auto_cast without effect", [_effect(0.0, effects[1] or 1.0)], "Paddle"),
    ]
    comparisons = [*judged, _effect(*effects)]
    note = f"{_note(pair.dtype, ours, reference)}; {left_out(unsure)}"
    result = _result(pair, "forward", comparisons, controls, note)
    return result, _first(pair, result, plain)


def backward(pair: AnyPair, scatter: Scatter) -> Found:
    """The user's loss, the taps' gradients, those of the parameters and of the inputs.

    The default loss, a sum of both signs that cancels, says nothing here and is left out.

    Args:
        pair: in a low precision.
        scatter: of PyTorch's own runs.

    Returns:
        StepResult of step "backward" and the first divergence.
    """
    ours, reference, oracle = _recordings(pair)
    unsure: set[str] = set()

    def judge(recording: Recording) -> list[Comparison]:
        found = pair.judge.each_gradient(recording, reference, oracle, None)
        kept = [c for c in found if c.name != "loss" or pair.plan.loss is not None]
        return with_noise(kept, scatter.backward, _factor(pair, "backward"), unsure)

    comparisons = judge(ours)
    share = fault(comparisons, 2 * FAULT)
    grown = copy.copy(ours)
    grown.gradients = {n: g * (1 + share) for n, g in dict(ours.gradients).items()}
    grown.input_gradients = {n: g * (1 + share) for n, g in ours.input_gradients.items()}
    grown.calls = {key: _grown(call, share) for key, call in ours.calls.items()}
    name = f"gradients {share:.0%} too large"
    controls = [judged_control(name, judge(grown), "all gradients")]
    note = f"the backward pass runs uncast; {left_out(unsure)}"
    result = _result(pair, "backward", comparisons, controls, note)
    return result, _first(pair, result, None)


def training(pair: AnyPair) -> Found:
    """Losses, weights and moments after the plan's steps.

    Args:
        pair: in a low precision, with steps.

    Returns:
        StepResult of step "training" and the first divergence.
    """
    reference = _ran(on_torch, pair.dtype, lambda: pair.train_reference(pair.dtype))
    oracle = pair.train_reference("float64")
    ours = _ran(on_paddle, pair.dtype, pair.train_ours)

    moved = [_quantities(pair, _moved_training(pair, seed)) for seed in range(DRAWS)]
    held = _quantities(pair, oracle)
    noise = {n: max(apart(run[n], o, "l2") for run in moved) for n, o in held.items()}
    unsure: set[str] = set()

    def judge(run: TrainingRun) -> list[Comparison]:
        found = _compare_training(pair, run, reference, oracle)
        return with_noise(found, noise, _factor(pair, "training"), unsure)

    comparisons = judge(ours)
    share = fault(comparisons, FAULT)
    grown = copy.copy(ours)
    grown.losses = [loss * (1 + share) for loss in ours.losses]
    grown.state = {name: value * (1 + share) for name, value in ours.state.items()}
    name = f"losses and weights {share:.0%} too large"
    controls = [judged_control(name, judge(grown), "the run")]
    note = f"{pair.plan.steps} steps; {left_out(unsure)}"
    result = _result(pair, "training", comparisons, controls, note)
    result.series = {"loss": {"paddle": ours.losses, "pytorch": reference.losses}}
    result.stamps = {"ours": ours.stamp, "reference": reference.stamp}
    failed = result.first_failure
    if failed is None:
        return result, []
    place = "loss" if failed.name == "losses" else failed.name.rpartition("/")[2]
    found = Divergence(failed.name, place, "training", pair.dtype, failed.reason, failed.hint)
    return result, [found]


def _factor(pair: AnyPair, step: str) -> float:
    return bounds.FLOORS[step, pair.dtype].factor


def _moved_training(pair: AnyPair, seed: int) -> TrainingRun:
    """The reference trained from weights moved by up to half a unit of the format."""
    model = pair.reference_model(pair.dtype, True)
    on_torch.load(model, shifted(on_torch.state(model), pair, seed))
    return runs.train(on_torch, model, pair.plan, pair.dtype, pair.dtype, None, pair.setup.masks)


def _quantities(pair: AnyPair, run: TrainingRun, ours: bool = False) -> Arrays:
    """Losses, floating tensors and moments of a run, in Paddle's names."""
    named = (lambda arrays: arrays) if ours else pair.setup.weights.to_paddle
    found = {"losses": np.asarray(run.losses, np.float64), **named(run.state)}
    for kind, arrays in run.moments.items():
        found.update({f"{kind}/{name}": value for name, value in named(arrays).items()})
    return {name: array for name, array in found.items() if array.dtype.kind == "f"}


def _compare_training(
    pair: AnyPair, ours: TrainingRun, reference: TrainingRun, oracle: TrainingRun
) -> list[Comparison]:
    own, expected = _quantities(pair, ours, True), _quantities(pair, reference)
    judged = {n: a.astype(np.float64) for n, a in _quantities(pair, oracle).items()}
    own = {name: array for name, array in own.items() if name in expected or "/" in name}
    base = bounds.FLOORS["training", pair.dtype]
    found = []
    for kind in dict.fromkeys(name.partition("/")[0] if "/" in name else "" for name in expected):
        prefix = f"{kind}/" if kind else ""
        a, b, o = (
            {n: v for n, v in side.items() if n.startswith(prefix) and ("/" in n) == bool(kind)}
            for side in (own, expected, judged)
        )
        scale = largest(b.values())
        rule = bounds.gradient_rules(base, None, b, o, scale, pair.dtype)
        found += compare_mappings(a, b, rule, oracle=o, zero_scale=scale)
    return found


def _result(
    pair: AnyPair, step: str, comparisons: list[Comparison], controls: list, note: str
) -> StepResult:
    name, dtype = pair.plan.name, pair.dtype
    stamps = {"ours": pair.ours.stamp, "reference": pair.reference.stamp}
    return StepResult(name, step, dtype, comparisons, controls, note=note, stamps=stamps)


def _float32(pair: AnyPair, side: Any) -> list[np.ndarray]:
    """The floating outputs of the model in plain float32."""
    ours = side is on_paddle
    model = pair.model if ours else pair.reference_model(pair.dtype, pair.plan.train)
    masks = pair.setup.masks
    options = {"masks": masks, "backward": False}
    with runs.passed(side, model, pair.plan, "float32", "float32", **options) as found:
        return _outputs(found)


def _outputs(recording: Recording) -> list[np.ndarray]:
    return [np.array(a) for _, a in recording.calls[ROOT].outputs if a.dtype.kind == "f"]


def _moved(low: Recording, plain: list[np.ndarray]) -> float:
    """Largest distance between the low-precision and the float32 outputs, of their size."""
    sizes = [0.0]
    for a, b in zip(_outputs(low), plain, strict=False):
        if a.shape == b.shape and a.size:
            norm = float(np.linalg.norm(b.astype(np.float64))) or 1.0
            sizes.append(float(np.linalg.norm(a.astype(np.float64) - b)) / norm)
    return max(sizes)


def _effect(ours: float, reference: float) -> Comparison:
    """Whether mixed precision moved the outputs; one side that silently stays in float32 fails."""
    flags = [np.asarray([float(size > 0)]) for size in (ours, reference)]
    return compare_arrays("(mixed precision has an effect)", *flags, bounds.EXACT)


def _scaled(recording: Recording, fault: float) -> Recording:
    """Every floating output too large by a share."""
    changed = copy.copy(recording)
    changed.calls = {}
    for key, call in recording.calls.items():
        own = copy.copy(call)
        own.outputs = [(p, a * (1 + fault) if a.dtype.kind == "f" else a) for p, a in call.outputs]
        changed.calls[key] = own
    return changed


def _grown(call: Call, fault: float) -> Call:
    """The gradients at a call's outputs too large by a share."""
    own = copy.copy(call)
    own.grad_outputs = {p: g * (1 + fault) for p, g in dict(call.grad_outputs).items()}
    return own


def _note(dtype: str, ours: Recording, reference: Recording) -> str:
    rounded = [_in_format(recording, dtype) for recording in (ours, reference)]
    text = f"taps that hold {dtype} numbers: Paddle {rounded[0]}, PyTorch {rounded[1]}"
    if str(ours.stamp.get("device", "")).lower().find("cpu") >= 0:
        text += "; on the CPU Paddle's auto_cast O1 is computed by rounding at its white list"
    return text


def _in_format(recording: Recording, dtype: str) -> int:
    """Number of floating taps whose values all fit the format."""
    bits = np.uint32(2**16 - 1 if dtype == "bfloat16" else 2**13 - 1)
    taps = [a for c in recording.calls.values() for _, a in c.outputs if a.dtype == np.float32]
    return sum(a.size > 0 and not (a.view(np.uint32) & bits).any() for a in taps)


def _first(pair: AnyPair, result: StepResult, plain: list[np.ndarray] | None) -> list[Divergence]:
    """The first failed comparison as a divergence, with what the float32 run says about it."""
    failed = result.first_failure
    if failed is None:
        return []
    name, step = failed.name, result.step
    if name.startswith("(mixed"):
        cause = (
            "auto_cast had no effect in Paddle: its outputs are those of float32 (is it switched "
            "off inside the layer, or is no operator on its white list?)"
            if failed.ours == 0
            else "autocast had no effect in PyTorch: its outputs are those of float32"
        )
        return [Divergence(name, ROOT, step, pair.dtype, failed.reason, cause)]
    place = name.removeprefix("gradient at ").removeprefix("input ").partition("[")[0]
    if place.partition("#")[0] not in on_paddle.modules(pair.model):
        place = place.rpartition(".")[0] or ROOT
    cause = failed.hint
    if plain is not None:
        cause = "; ".join(part for part in (cause, _also_in_float32(pair, plain)) if part)
    layer, _, _ = pair.layer(place)
    source = code_lines.source_of(layer) if layer is not None else ""
    return [Divergence(name, place, step, pair.dtype, failed.reason, cause, source)]


def _also_in_float32(pair: AnyPair, plain: list[np.ndarray]) -> str:
    """Whether Paddle's float32 outputs are right."""
    expected = [a for _, a in pair.oracle.calls[ROOT].outputs if a.dtype.kind == "f"]
    for a, b in zip(plain, expected, strict=False):
        size = float(np.abs(b).max(initial=0)) or 1.0
        if a.shape != b.shape or float(np.abs(a - b).max(initial=0)) > _RIGHT * size:
            return "the float32 run is wrong as well: mend that first"
    return "the float32 run is right: only the cast run departs (a cast, or its white list)"
