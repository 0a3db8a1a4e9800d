"""From failed comparisons to the layer to mend, its cause and its line of code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from align.anypair import bounds, hints
from align.anypair.isolation import Guilty, merged
from align.anypair.judging import compare_outputs
from align.anypair.outcome import Divergence
from align.anypair.pair import AnyPair
from align.anypair.recording import ROOT, Call, Recording
from align.results import Comparison
from align.tolerance import Tolerance

_ROUGH = Tolerance("scaled", 1e-3, "to find a place in float32, not to judge it")


def forward_guilty(pair: AnyPair, guilty: Sequence[Guilty]) -> list[Divergence]:
    """Inject mode's guilty layers with their causes, each once."""
    return [_describe(pair, one) for one in merged(list(guilty))]


def _describe(pair: AnyPair, one: Guilty) -> Divergence:
    layer, module, weights = pair.layer(one.place)
    cause = hints.explain(one, weights, layer, module) or one.comparison.hint
    if one.siblings:
        inside = ", ".join(dict.fromkeys(one.siblings[:4]))
        cause = (cause + "; " if cause else "") + f"layers without a partner run there: {inside}"
    return Divergence(
        one.shown_at,
        one.place,
        "forward",
        pair.dtype,
        one.comparison.reason,
        cause,
        hints.source_of(layer),
    )


def first_forward(
    pair: AnyPair, failed: Sequence[Comparison], guilty: Sequence[Divergence]
) -> Divergence:
    """The first failed tap, accused of it the first guilty layer of inject mode."""
    first = failed[0]
    taps = [c for c in failed if not c.name.startswith("(")]
    if taps and guilty and first.name.startswith("("):
        first = taps[0]
    if guilty:
        held = guilty[0]
        return Divergence(
            first.name, held.place, "forward", pair.dtype, first.reason, held.cause, held.source
        )
    place = first.name.partition("[")[0]
    if place.startswith("(") and place != ROOT:
        place, cause = _structural(place)
        return Divergence(first.name, place, "forward", pair.dtype, first.reason, cause)
    layer, _, _ = pair.layer(place)
    source = hints.source_of(layer) if layer is not None else ""
    cause = first.hint or _undetermined(pair)
    return Divergence(first.name, place, "forward", pair.dtype, first.reason, cause, source)


def _structural(name: str) -> tuple[str, str]:
    """Place and cause of "(tied parameters: a, b)" and "(trainable parameters: a)"."""
    title, _, names = name.strip("()").partition(": ")
    if title not in ("tied parameters", "trainable parameters"):
        return ROOT, "the two models return different numbers of tensors"
    owner = names.split(", ")[0].rpartition(".")[0] or ROOT
    if title == "tied parameters":
        return owner, f"one tensor on one side, several on the other: {names}"
    return owner, f"trained on one side only (stop_gradient, requires_grad): {names}"


def _undetermined(pair: AnyPair) -> str:
    """Says when the Paddle side does not repeat itself: something in it is drawn by chance."""
    again = pair.run_ours()
    for key, call in pair.ours.calls.items():
        for (_, a), (_, b) in zip(call.outputs, again.calls[key].outputs, strict=False):
            if a.shape == b.shape and not np.array_equal(a, b):
                return f"two runs of the Paddle side differ at {key}: is a dropout active?"
    return ""


def first_backward(pair: AnyPair, failed: Sequence[Comparison]) -> Divergence:
    """The first bad gradient in backward order, and the layer whose backward pass makes it.

    A layer is guilty when the gradient that arrives at its output is right and the one that leaves
    through its inputs, or reaches its own parameters, is wrong. The deepest such layer is named.
    """
    first = failed[0]
    ours, reference = pair.run_ours(deep=True), pair.deep
    judge, rule = pair.judge, _ROUGH if pair.dtype == "float32" else _base(pair)
    held = {key: (own, call) for key, own, call in judge.taps(ours, reference)}
    scale = max(
        [float(np.abs(g).max()) for _, c in held.values() for g in c.grad_outputs.values()],
        default=1.0,
    )
    found: list[tuple[str, Comparison]] = []
    for key, (own, call) in reversed(held.items()):
        if _first_bad(_pairs(own.grad_outputs, call.grad_outputs), rule, scale):
            continue
        leaving = _first_bad(_pairs(own.grad_inputs, call.grad_inputs), rule, scale)
        wrong = leaving or _bad_parameter(own, ours, pair, rule, scale)
        if wrong is not None:
            found.append((key, wrong))
    places = [key for key, _ in found]
    deepest = [
        (key, c)
        for key, c in found
        if not any(_is_inside(other, key, ours) for other in places if other != key)
    ]
    if not deepest:
        place = "loss" if first.name == "loss" or ROOT in first.name else first.name
        return Divergence(first.name, place, "backward", pair.dtype, first.reason, first.hint)
    key, comparison = deepest[0]
    layer, _, _ = pair.layer(key)
    cause = f"its backward pass: the gradient {comparison.hint}" if comparison.hint else ""
    cause = _padding_row(pair, key) or cause
    source = hints.source_of(layer)
    return Divergence(first.name, key, "backward", pair.dtype, first.reason, cause, source)


def _padding_row(pair: AnyPair, key: str) -> str:
    """An embedding row that PyTorch does not train and Paddle does, or the other way round."""
    name = f"{key.partition('#')[0]}.weight"
    ours = pair.ours.gradients.get(name)
    expected = pair.setup.weights.to_paddle(pair.reference.gradients).get(name)
    if ours is None or expected is None or ours.ndim != 2 or ours.shape != expected.shape:
        return ""
    still, own_still = ~expected.any(axis=1), ~ours.any(axis=1)
    rows = np.flatnonzero(still != own_still)
    if len(rows) != 1:
        return ""
    who = "Paddle trains it" if still[rows[0]] else "Paddle does not train it"
    other = "PyTorch does not" if still[rows[0]] else "PyTorch does"
    return f"padding_idx: row {rows[0]} of the embedding: {who}, {other}"


def _base(pair: AnyPair) -> Tolerance:
    return bounds.POOLED if pair.setup.pooled else bounds.FLOORS["backward", pair.dtype]


def _pairs(own: dict, call: dict) -> list[tuple[np.ndarray, np.ndarray]]:
    """Gradients that belong together: by path, else in order; other shapes are left out."""
    if set(own) & set(call):
        held = [(own[p], call[p]) for p in call if p in own]
    else:
        held = list(zip(own.values(), call.values(), strict=False))
    return [(a, b) for a, b in held if a.shape == b.shape]


def _first_bad(pairs: list, rule: Tolerance, scale: float) -> Comparison | None:
    for a, b in pairs:
        found = compare_outputs("gradient", a, b, None, rule, zero_scale=scale)
        if found is not None and not found.passed:
            return found
    return None


def _bad_parameter(
    call: Call, ours: Recording, pair: AnyPair, rule: Tolerance, scale: float
) -> Comparison | None:
    """The first wrong gradient among the layer's own parameters."""
    expected = pair.setup.weights.to_paddle(pair.deep.gradients)
    prefix = "" if call.name == ROOT else f"{call.name}."
    for name, b in expected.items():
        leaf = name.removeprefix(prefix)
        if not name.startswith(prefix) or "." in leaf or name not in ours.gradients:
            continue
        bad = _first_bad([(ours.gradients[name], b)], rule, scale)
        if bad is not None:
            return bad
    return None


def _is_inside(inner: str, outer: str, recording: Recording) -> bool:
    """Whether the call ``inner`` ran inside the call ``outer``."""
    key = recording.calls[inner].parent
    while key:
        if key == outer:
            return True
        key = recording.calls[key].parent if key in recording.calls else ""
    return False


def momentum_hint(name: str, before: np.ndarray, ours: np.ndarray, b: np.ndarray) -> str:
    """The momentum convention of a running statistic, fitted from how far both sides moved it.

    Args:
        name: of the buffer.
        before: before the pass.
        ours: Paddle's after it.
        b: PyTorch's after it.

    Returns:
        A sentence, "" when the two did not move along one line.
    """
    moved, expected = (ours - before).ravel(), (b - before).ravel()
    energy = float(expected @ expected)
    if not energy:
        return ""
    ratio = float(expected @ moved) / energy
    if np.abs(moved - ratio * expected).max() > 0.01 * np.abs(moved).max() or abs(ratio - 1) < 1e-3:
        return ""
    text = f"{name}: Paddle moves it {ratio:.4g} times as far as PyTorch"
    if abs(ratio - 9) < 0.05 or abs(ratio - 99) < 0.5:
        share = 1 / (ratio + 1)
        text += (
            f": momentum is written in PyTorch's convention; Paddle's is 1 - PyTorch's, so use "
            f"momentum={1 - share:.4g}"
        )
    return text
