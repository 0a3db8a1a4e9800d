"""Layers whose own code is wrong, found in two records: no model runs here.

Both sides recorded what every layer was given. A layer is wrong when it was given the right and
returned the wrong, and nothing inside it did; then its own code is. `align.pair.isolation` and
`align.pair.isolation_backward` find the same by feeding a live model.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import numpy as np

from align.judge import bounds
from align.judge.judging import alike, compare_outputs, largest
from align.match.mapping import to_paddle
from align.pair.isolation import Guilty, WrongGradient, is_mask
from align.pair.pair import DumpPair
from align.record.arrays import Leaf
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, Tolerance

Gradients = list[tuple[np.ndarray, np.ndarray]]
ROUGH = Tolerance("scaled", 1e-3, "to find a place in float32, not to judge it")


def wrong_output(pair: DumpPair, failed: Collection[Comparison]) -> list[Guilty]:
    """Find the first call that was given the right and returned the wrong, none deeper."""
    rule, names = bounds.ISOLATED[pair.dtype], {c.name for c in failed}
    suspects: list[str] = []
    for key, paddle_call, torch_call in pair.judge.taps(pair.ours, pair.reference):
        taps = {key, *(f"{key}[{path}]" for path, _ in (*paddle_call.outputs, *torch_call.outputs))}
        recorded = paddle_call.inputs and torch_call.inputs and taps & names
        if not (recorded and _same_inputs(paddle_call, torch_call, rule)):
            continue
        if any(_is_inside(inner, key, pair.ours) for inner in suspects):
            continue
        suspects.append(key)
        wrong = _differing_output(paddle_call, torch_call, key, rule)
        if wrong is not None:
            wrong.inputs += _outputs_inside(pair, torch_call.key)
            return [wrong]
    return []


def _same_inputs(paddle_call: Call, torch_call: Call, rule: Tolerance) -> bool:
    """Whether every input has an equal one, whatever the order of the parameters.

    Masks are left out (their conventions differ), and so are whole numbers when PyTorch's layer is
    given none.
    """
    for kinds in ("f", "iu"):
        b, a = (
            [x for _, x in call.inputs if x.dtype.kind in kinds and x.size and not is_mask(x)]
            for call in (torch_call, paddle_call)
        )
        if b and not all(any(alike(x, y, rule) for y in b) for x in a):
            return False
    return True


def _differing_output(
    paddle_call: Call, torch_call: Call, key: str, rule: Tolerance
) -> Guilty | None:
    """The first differing output of a wrong call, with what formulas need."""
    for (path, a), (_, b) in zip(paddle_call.outputs, torch_call.outputs, strict=False):
        comparison = compare_outputs(key, a, b, None, rule)
        if comparison is None or comparison.passed:
            continue
        name = f"{key}[{path}]" if path else key
        inputs = [(f"input {p.partition('.')[2]}", x) for p, x in torch_call.inputs]
        floats = [(name, x) for name, x in inputs if x.dtype.kind == "f"]
        return Guilty(key, comparison, name, floats, a, b)
    return None


def _outputs_inside(pair: DumpPair, key: str) -> list[Leaf]:
    """What the layers inside a call of the reference returned."""
    outputs = []
    for call in pair.reference.calls.values():
        if call.parent == key:
            floats = [array for _, array in call.outputs if array.dtype.kind == "f"]
            outputs += [(f"output of {call.key}", array) for array in floats]
    return outputs


def wrong_gradient(pair: DumpPair) -> list[WrongGradient]:
    """Find the deepest call that gets a right gradient and hands on a wrong one, the first."""
    rule = bounds.backward(pair.dtype, pair.pooled) if pair.dtype == "float64" else ROUGH
    taps = list(pair.judge.taps(pair.ours, pair.reference))
    scale = largest(itertools.chain(*(call.grad_outputs.values() for _, _, call in taps)))
    expected = to_paddle(pair.setup.weights, pair.reference.gradients)
    wrong: dict[str, WrongGradient] = {}
    for key, paddle_call, torch_call in reversed(taps):
        arriving = _partners(paddle_call.grad_outputs, torch_call.grad_outputs)
        if _first_bad(arriving, rule, scale) is not None:
            continue
        leaving = _partners(paddle_call.grad_inputs, torch_call.grad_inputs)
        first = _first_bad(leaving, rule, scale)
        worse = first or _first_bad(_parameters(pair, paddle_call, expected), rule, scale)
        if worse is not None:
            comparison, a, b = worse
            values = [x for _, x in torch_call.inputs if x.shape == b.shape]
            value = values[0] if first and values else None
            seeds = list(torch_call.grad_outputs.values())
            wrong[key] = WrongGradient(key, comparison, a, b, seeds, value)
    for key, gradient in wrong.items():
        if not any(_is_inside(other, key, pair.ours) for other in wrong):
            return [gradient]
    return []


def _parameters(pair: DumpPair, call: Call, expected: Mapping[str, np.ndarray]) -> Gradients:
    """The gradients of a layer's own parameters on both sides."""
    prefix = "" if call.name == ROOT else f"{call.name}."
    names = [n for n in expected if n.startswith(prefix) and "." not in n.removeprefix(prefix)]
    return [(pair.ours.gradients[n], expected[n]) for n in names if n in pair.ours.gradients]


def _partners(
    paddle_gradients: Mapping[str, np.ndarray], torch_gradients: Mapping[str, np.ndarray]
) -> Gradients:
    """Gradients that belong together: by path, else in order."""
    if set(paddle_gradients) & set(torch_gradients):
        return [
            (paddle_gradients[path], torch_gradients[path])
            for path in torch_gradients
            if path in paddle_gradients
        ]
    return list(zip(paddle_gradients.values(), torch_gradients.values(), strict=False))


def _first_bad(
    pairs: Gradients, rule: Tolerance, scale: float
) -> tuple[Comparison, np.ndarray, np.ndarray] | None:
    """The first wrong gradient; what differs in shape is left out."""
    for a, b in (pair for pair in pairs if pair[0].shape == pair[1].shape):
        comparison = compare_outputs("gradient", a, b, None, rule, zero_scale=scale)
        if comparison is not None and not comparison.passed:
            return comparison, a, b
    return None


def _is_inside(inner: str, outer: str, recording: Recording) -> bool:
    """Whether the call ``inner`` ran inside the call ``outer``."""
    around = recording.around(recording.calls[inner])
    return any(call.key == outer for call in around)
