"""From failed comparisons of two dumps to the layer to fix: no model runs here.

Both sides recorded what every layer was given. A layer is guilty when it was given the right and
returned the wrong; when nothing inside it is guilty, its own code is. The formulas that name a
cause are those of `align.compare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from align.explain.hints import layer_hints
from align.explain.hints.hint_gradients import GradientCase, explain_gradient
from align.explain.losses import loss_causes
from align.explain.losses.loss_causes import LossRun
from align.judge import bounds
from align.judge.judging import compare_outputs, largest
from align.match.renamed import to_paddle
from align.pair.dump_pair import DumpPair
from align.pair.isolation import Guilty, is_mask
from align.record.files.dump_meta import Module
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, Divergence
from align.record.tolerance import Tolerance

ROUGH = Tolerance("scaled", 1e-3, "to find a place in float32, not to judge it")


def forward(pair: DumpPair, failed: Sequence[Comparison]) -> Divergence:
    """The first bad tap in execution order, and the layer that makes it.

    Args:
        pair: both sides.
        failed: the failed comparisons of the forward stage, in order; not empty.
    """
    taps = [c for c in failed if not c.name.startswith("(") or c.name.startswith(ROOT)]
    first = taps[0] if taps else failed[0]
    names = {c.name for c in failed}
    guilty = next(_guilty_calls(pair, names), None)
    if guilty is None:
        return _plain(pair, first)
    cause = _cause(pair, guilty) or first.hint
    source = _source(pair, guilty.place)
    return Divergence(
        guilty.shown_at, guilty.place, "forward", pair.dtype, first.reason, cause, source
    )


def _plain(pair: DumpPair, first: Comparison) -> Divergence:
    """The place from the name alone: a tap's layer, a buffer's owner, a structural title."""
    place = first.name.partition("[")[0]
    cause = first.hint
    if first.name.startswith("(") and not first.name.startswith(ROOT):
        title, _, names = first.name.strip("()").partition(": ")
        place = names.split(", ")[0].rpartition(".")[0] or ROOT
        cause = f"{title} on one side only: {names}" if names else title
    elif place.partition("#")[0] not in pair.names.layers:
        place = place.rpartition(".")[0] or ROOT
    return Divergence(
        first.name, place, "forward", pair.dtype, first.reason, cause, _source(pair, place)
    )


def _source(pair: DumpPair, place: str) -> str:
    module = pair.names.layers.get(place.partition("#")[0])
    return module.source if module is not None else ""


def _guilty_calls(pair: DumpPair, failed: set[str]) -> Iterable[Guilty]:
    """Calls that were given the right and returned the wrong, the deepest ones, in order."""
    rule = bounds.ISOLATED[pair.dtype]
    held = {key: (own, call) for key, own, call in pair.judge.taps(pair.ours, pair.reference)}
    suspects: list[str] = []
    for key, (own, call) in held.items():
        if not own.inputs or not call.inputs:
            continue
        wrong = next((n for n in _tap_names(key, own, call) if n in failed), None)
        if wrong is None or not _same_inputs(own, call, rule):
            continue
        if any(_is_inside(inner, key, pair.ours) for inner in suspects):
            continue
        suspects.append(key)
        comparison = _of_output(own, call, key, rule)
        if comparison is not None:
            yield comparison


def _tap_names(key: str, own: Call, call: Call) -> list[str]:
    return [key, *(f"{key}[{path}]" for path, _ in (*own.outputs, *call.outputs))]


def _same_inputs(own: Call, call: Call, rule: Tolerance) -> bool:
    """Whether every input has an equal one, whatever the order of the parameters.

    Masks are left out (their conventions differ), and so are whole numbers when PyTorch's layer is
    given none.
    """
    for kinds in ("f", "iu"):
        theirs = [a for _, a in call.inputs if a.dtype.kind in kinds and a.size]
        ours = [a for _, a in own.inputs if a.dtype.kind in kinds and a.size]
        if kinds == "f":
            theirs, ours = ([a for a in held if not is_mask(a)] for held in (theirs, ours))
        if theirs and not all(any(_near(a, b, rule) for b in theirs) for a in ours):
            return False
    return True


def _near(a: np.ndarray, b: np.ndarray, rule: Tolerance) -> bool:
    if a.shape != b.shape:
        return False
    found = compare_outputs("", a, b, None, rule)
    return found is None or found.passed


def _of_output(own: Call, call: Call, key: str, rule: Tolerance) -> Guilty | None:
    """The first differing output of a wrong call, with what formulas need."""
    pairs = zip(own.outputs, call.outputs, strict=False)
    for (path, ours), (_, expected) in pairs:
        comparison = compare_outputs(key, ours, expected, None, rule)
        if comparison is None or comparison.passed:
            continue
        name = f"{key}[{path}]" if path else key
        inputs = [(f"input {p.partition('.')[2]}", a) for p, a in call.inputs]
        floats = [(name, a) for name, a in inputs if a.dtype.kind == "f"]
        return Guilty(key, comparison, name, floats, ours, expected)
    return None


def _cause(pair: DumpPair, guilty: Guilty) -> str:
    name = guilty.place.partition("#")[0]
    back = {b: a for a, b in pair.names.modules.to_paddle.items()}
    layer = _stand_in(pair.names.layers.get(name))
    module = _stand_in(pair.names.theirs.get(back.get(name, "")))
    prefix = "" if name == ROOT else f"{name}."
    held = {
        n.removeprefix(prefix): a.astype(np.float64)
        for n, a in pair.names.paddle.weights().items()
        if n.startswith(prefix) and "." not in n.removeprefix(prefix)
    }
    _add_children(pair, guilty)
    return layer_hints.explain(guilty, held, layer, module)


def _add_children(pair: DumpPair, guilty: Guilty) -> None:
    """What a container had at hand in the reference: its inputs and its layers' outputs."""
    back = {b: a for a, b in pair.names.modules.to_paddle.items()}
    own = pair.ours.calls[guilty.place]
    key = Call(back[own.name], own.number).key
    for call in pair.reference.calls.values():
        if call.parent == key:
            guilty.inputs += [
                (f"output of {call.key}", a) for _, a in call.outputs if a.dtype.kind == "f"
            ]


def _stand_in(module: Module | None) -> object:
    """An object whose class has a module's name and which has its plain attributes."""
    if module is None:
        return None
    return type(module.kind, (SimpleNamespace,), {})(**dict(module.settings))


def backward(
    pair: DumpPair, failed: Sequence[Comparison], upstream: Divergence | None
) -> Divergence:
    """The first bad gradient in backward order, and the layer whose backward pass makes it.

    Args:
        pair: both sides.
        failed: the failed comparisons of the backward stage; not empty.
        upstream: the divergence of the forward pass, None when it is right.
    """
    first = failed[0]
    if upstream is not None:  # a wrong forward pass makes wrong gradients
        found = Divergence(first.name, first.name, "backward", pair.dtype, first.reason)
        return found.after("forward", upstream.place)
    if first.name == "loss" or first.name.startswith(f"gradient at {ROOT}"):
        reason, cause = first.reason, _loss_cause(pair)
        return Divergence(first.name, "loss", "loss", pair.dtype, reason, cause)
    found = _guilty_backward(pair)
    if found is None:
        place = first.name.removeprefix("gradient at ").partition("[")[0]
        cause = first.hint
    else:
        place, cause = found.key, explain_gradient(found.case)
    source = _source(pair, place)
    return Divergence(first.name, place, "backward", pair.dtype, first.reason, cause, source)


def _loss_cause(pair: DumpPair) -> str:
    """What makes two losses of one and the same output differ."""
    sides = []
    for recording in (pair.ours, pair.reference):
        root = recording.calls[ROOT]
        sides.append(LossRun(recording.loss, dict(root.grad_outputs), recording.stamp))
    outputs = {p: a for p, a in pair.reference.calls[ROOT].outputs if a.dtype.kind == "f"}
    return loss_causes.explain(outputs, pair.names.torch.labels(), *sides)


@dataclass(frozen=True)
class _Wrong:
    """A call whose backward pass is wrong, and the gradient that shows it."""

    key: str
    case: GradientCase


def _guilty_backward(pair: DumpPair) -> _Wrong | None:
    """The deepest call that gets a right gradient and hands on a wrong one, in backward order."""
    rule = ROUGH if pair.dtype == "float32" else bounds.FLOORS["backward", pair.dtype]
    if pair.names.pooled and pair.dtype == "float64":
        rule = bounds.POOLED
    held = {key: (own, call) for key, own, call in pair.judge.taps(pair.ours, pair.reference)}
    scale = largest(g for _, call in held.values() for g in call.grad_outputs.values())
    expected = to_paddle(pair.names.weights, pair.reference.gradients)
    found: list[_Wrong] = []
    for key, (own, call) in reversed(held.items()):
        if _first_bad(_partners(own.grad_outputs, call.grad_outputs), rule, scale) is not None:
            continue
        leaving = _partners(own.grad_inputs, call.grad_inputs)
        parameters = _own_parameters(own, pair.ours.gradients, expected)
        wrong = _first_bad(leaving, rule, scale) or _first_bad(parameters, rule, scale)
        if wrong is not None:
            values = next((a for _, a in call.inputs if a.shape == wrong[1].shape), None)
            seeds = list(call.grad_outputs.values())
            found.append(_Wrong(key, GradientCase(*wrong, seeds, values)))
    places = [one.key for one in found]
    deepest = (
        one
        for one in found
        if not any(_is_inside(other, one.key, pair.ours) for other in places if other != one.key)
    )
    return next(deepest, None)


Gradients = list[tuple[np.ndarray, np.ndarray]]


def _partners(own: Mapping[str, np.ndarray], call: Mapping[str, np.ndarray]) -> Gradients:
    """Gradients that belong together: by path, else in order; other shapes are left out."""
    if set(own) & set(call):
        held = [(own[path], call[path]) for path in call if path in own]
    else:
        held = list(zip(own.values(), call.values(), strict=False))
    return [(a, b) for a, b in held if a.shape == b.shape]


def _own_parameters(
    call: Call, ours: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> Gradients:
    """The gradients of a layer's own parameters on both sides."""
    prefix = "" if call.name == ROOT else f"{call.name}."
    names = [n for n in expected if n.startswith(prefix) and "." not in n.removeprefix(prefix)]
    held = [(ours[n], expected[n]) for n in names if n in ours]
    return [(a, b) for a, b in held if a.shape == b.shape]


def _first_bad(
    pairs: Gradients, rule: Tolerance, scale: float
) -> tuple[np.ndarray, np.ndarray] | None:
    for a, b in pairs:
        found = compare_outputs("gradient", a, b, None, rule, zero_scale=scale)
        if found is not None and not found.passed:
            return a, b
    return None


def _is_inside(inner: str, outer: str, recording: Recording) -> bool:
    """Whether the call ``inner`` ran inside the call ``outer``."""
    key = recording.calls[inner].parent
    while key:
        if key == outer:
            return True
        key = recording.calls[key].parent if key in recording.calls else ""
    return False
