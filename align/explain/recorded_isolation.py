"""Layers whose own code is wrong, found in two records: no model runs here.

Both sides recorded what every layer was given. A layer is guilty when it was given the right and
returned the wrong; when nothing inside it is guilty, its own code is. `align.pair.isolation` and
`align.pair.isolation_backward` find the same by feeding a live model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from align.explain.arrays.gradient_edits import explain_gradient
from align.explain.losses import loss_causes
from align.explain.losses.loss_causes import LossRun
from align.judge import bounds
from align.judge.judging import alike, compare_outputs, largest
from align.match.mapping import to_paddle
from align.pair.isolation import Guilty, is_mask
from align.pair.pair import DumpPair
from align.record.arrays import Leaf
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, Divergence, Tolerance

ROUGH = Tolerance("scaled", 1e-3, "to find a place in float32, not to judge it")


def guilty_forward(pair: DumpPair, failed: Collection[Comparison]) -> list[Guilty]:
    """The first call that was given the right and returned the wrong, none deeper; [] for none.

    Args:
        pair: both sides.
        failed: the failed comparisons of the forward stage.
    """
    rule, names = bounds.ISOLATED[pair.dtype], {c.name for c in failed}
    suspects: list[str] = []
    for key, own, call in pair.judge.taps(pair.ours, pair.reference):
        taps = {key, *(f"{key}[{path}]" for path, _ in (*own.outputs, *call.outputs))}
        if not (own.inputs and call.inputs and taps & names and _same_inputs(own, call, rule)):
            continue
        if any(_is_inside(inner, key, pair.ours) for inner in suspects):
            continue
        suspects.append(key)
        found = _of_output(own, call, key, rule)
        if found is not None:
            found.inputs += _inside(pair, call.key)
            return [found]
    return []


def _same_inputs(own: Call, call: Call, rule: Tolerance) -> bool:
    """Whether every input has an equal one, whatever the order of the parameters.

    Masks are left out (their conventions differ), and so are whole numbers when PyTorch's layer is
    given none.
    """
    for kinds in ("f", "iu"):
        theirs, ours = (
            [a for _, a in one.inputs if a.dtype.kind in kinds and a.size and not is_mask(a)]
            for one in (call, own)
        )
        if theirs and not all(any(alike(a, b, rule) for b in theirs) for a in ours):
            return False
    return True


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


def _inside(pair: DumpPair, key: str) -> list[Leaf]:
    """What the layers inside a call of the reference returned."""
    return [
        (f"output of {call.key}", array)
        for call in pair.reference.calls.values()
        if call.parent == key
        for _, array in call.outputs
        if array.dtype.kind == "f"
    ]


def loss_cause(pair: DumpPair) -> str:
    """What makes two losses of one and the same output differ."""
    sides = (
        LossRun(side.loss, dict(side.calls[ROOT].grad_outputs), side.stamp)
        for side in (pair.ours, pair.reference)
    )
    outputs = {p: a for p, a in pair.reference.calls[ROOT].outputs if a.dtype.kind == "f"}
    return loss_causes.explain(outputs, pair.setup.torch.labels(), *sides)


def guilty_backward(pair: DumpPair) -> list[Divergence]:
    """The deepest call that gets a right gradient and hands on a wrong one, the first of them."""
    wrong = _wrong_calls(pair)
    for key, (shown, *gradients) in wrong.items():
        if not any(_is_inside(other, key, pair.ours) for other in wrong):
            cause = explain_gradient(*gradients)
            found = shown.name, key, "backward", pair.dtype, shown.reason, cause
            return [Divergence(*found, pair.code(key))]
    return []


def _wrong_calls(pair: DumpPair) -> dict[str, tuple]:
    """Calls that get a right gradient and hand on a wrong one, in backward order.

    Each with the comparison that shows it and what explains a gradient.
    """
    rule = ROUGH
    if pair.dtype == "float64":
        rule = bounds.backward(pair.dtype, pair.pooled)
    held = {key: (own, call) for key, own, call in pair.judge.taps(pair.ours, pair.reference)}
    scale = largest(g for _, call in held.values() for g in call.grad_outputs.values())
    expected = to_paddle(pair.setup.weights, pair.reference.gradients)
    found: dict[str, tuple] = {}
    for key, (own, call) in reversed(held.items()):
        if _first_bad(_partners(own.grad_outputs, call.grad_outputs), rule, scale) is not None:
            continue
        leaving = _partners(own.grad_inputs, call.grad_inputs)
        parameters = _own_parameters(own, pair.ours.gradients, expected)
        wrong = _first_bad(leaving, rule, scale) or _first_bad(parameters, rule, scale)
        if wrong is not None:
            theirs = wrong[-1]
            values = next((a for _, a in call.inputs if a.shape == theirs.shape), None)
            found[key] = *wrong, list(call.grad_outputs.values()), values
    return found


Gradients = list[tuple[np.ndarray, np.ndarray]]


def _partners(own: Mapping[str, np.ndarray], call: Mapping[str, np.ndarray]) -> Gradients:
    """Gradients that belong together: by path, else in order."""
    if set(own) & set(call):
        return [(own[path], call[path]) for path in call if path in own]
    return list(zip(own.values(), call.values(), strict=False))


def _own_parameters(
    call: Call, ours: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> Gradients:
    """The gradients of a layer's own parameters on both sides."""
    prefix = "" if call.name == ROOT else f"{call.name}."
    names = [n for n in expected if n.startswith(prefix) and "." not in n.removeprefix(prefix)]
    return [(ours[n], expected[n]) for n in names if n in ours]


def _first_bad(
    pairs: Gradients, rule: Tolerance, scale: float
) -> tuple[Comparison, np.ndarray, np.ndarray] | None:
    """The first wrong gradient, and both sides'; what differs in shape is left out."""
    for a, b in (pair for pair in pairs if pair[0].shape == pair[1].shape):
        found = compare_outputs("gradient", a, b, None, rule, zero_scale=scale)
        if found is not None and not found.passed:
            return found, a, b
    return None


def _is_inside(inner: str, outer: str, recording: Recording) -> bool:
    """Whether the call ``inner`` ran inside the call ``outer``."""
    around = recording.around(recording.calls[inner])
    return any(call.key == outer for call in around)
