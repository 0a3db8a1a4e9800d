"""From failed comparisons to the layer to fix, its cause and its line of code."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from align.explain.arrays import output_edits, statistic_edits
from align.explain.arrays.gradient_edits import NO_TORCH, UNKNOWN, explain_gradient
from align.judge.judging import OUTPUTS
from align.pair.isolation import Guilty, merged
from align.pair.pair import Pair
from align.record.recording import ROOT
from align.record.results import Comparison, Divergence


def forward_guilty(pair: Pair, guilty: Sequence[Guilty]) -> list[Divergence]:
    """Inject mode's wrong layers with their causes, each once; experiments on the first one."""
    held = merged(list(guilty))
    return [_describe(pair, one, first=i == 0) for i, one in enumerate(held)]


def _describe(pair: Pair, one: Guilty, *, first: bool) -> Divergence:
    cause = one.note or _cause(pair, one, first=first)
    if not cause:
        inside = ", ".join(dict.fromkeys(one.siblings[:4]))
        hidden = f"layers without a partner run there: {inside}" if inside else ""
        cause = "; ".join(filter(None, [one.comparison.hint, hidden, _other_work(pair, one)]))
    shown = one.shown_at, one.place, "forward", pair.dtype, one.comparison.reason
    return Divergence(*shown, cause, pair.code(one.place))


def _other_work(pair: Pair, one: Guilty) -> str:
    """A guess about a layer whose output has another shape; "" for what cannot be left out."""
    place, shapes = one.place.partition("#")[0], [np.shape(x) for x in (one.ours, one.expected)]
    if shapes[0] == shapes[1] or place == ROOT or not one.shown_at.startswith(place):
        return ""
    names = [a for a, b in pair.judge.modules.to_paddle.items() if b == place]
    return (
        "perhaps the two layers do not do the same part of the work: if what follows is right, "
        f'"modules": {{"{names[0]}": null}} in the table of weights= leaves this pair out'
    )


def _cause(pair: Pair, one: Guilty, *, first: bool) -> str:
    """Experiments on the layer, then what is recorded, then edits of its output, then a guess."""
    proved = recorded = odd = ""
    if first and pair.live:
        from align.explain.calls import search  # two dumps are compared without a framework

        proved, recorded, odd = search.study(pair, one)
    layer, module, weights = pair.layer(one.place)
    said = proved or recorded or output_edits.of_output(one, weights)
    return said or odd or output_edits.guess(one, layer, module)


def first_forward(
    pair: Pair, failed: Sequence[Comparison], guilty: Sequence[Divergence]
) -> Divergence:
    """The first failed tap, placed at the first layer that inject mode finds wrong."""
    first = failed[0]
    if guilty:
        shown = next((c for c in failed if not c.name.startswith("(")), first)
        return dataclasses.replace(guilty[0], name=shown.name, reason=shown.reason)
    place = first.name.partition("[")[0]
    if place.startswith("(") and place != ROOT:
        place, cause = _structural(first)
        return Divergence(first.name, place, "forward", pair.dtype, first.reason, cause)
    code = pair.code(place)
    return Divergence(first.name, place, "forward", pair.dtype, first.reason, first.hint, code)


def _structural(first: Comparison) -> tuple[str, str]:
    """Place and cause of "(tied parameters: a, b)", "(trainable parameters: a)", "(inputs: a)"."""
    title, _, names = first.name.strip("()").partition(": ")
    if first.name == OUTPUTS:
        return ROOT, first.hint
    if title == "inputs":
        return ROOT, f"changed in place in Paddle, not in PyTorch: input {names}"
    owner = names.split(", ")[0].rpartition(".")[0] or ROOT
    if title == "tied parameters":
        return owner, f"one tensor on one side, several on the other: {names}"
    return owner, f"trained on one side only (stop_gradient, requires_grad): {names}"


def backward_guilty(pair: Any, run: Any) -> list[Divergence]:
    """One entry for each wrong layer, its first wrong gradient, in backward order.

    Args:
        pair: a live one.
        run: `BackwardIsolation` that has gone.
    """
    from align.explain.calls.finite_differences import refutes_paddle  # with a framework

    found: dict[str, Divergence] = {}
    for one in run.wrong:
        layer_name = one.place.partition("#")[0]
        if layer_name in found:
            continue
        cause = explain_gradient(one.ours, one.expected, one.seeds, one.value)
        if cause.startswith(NO_TORCH) and pair.dtype == "float64" and refutes_paddle(pair):
            cause = UNKNOWN
        if one.place in run.forward_wrong:
            cause = "its forward pass differs as well, fix that first" + (cause and f": {cause}")
        shown = one.comparison.name, layer_name, "backward", pair.dtype, one.comparison.reason
        found[layer_name] = Divergence(*shown, cause, pair.code(one.place))
    return list(found.values())


def first_backward(
    pair: Pair, failed: Sequence[Comparison], guilty: Sequence[Divergence]
) -> Divergence:
    """The first bad gradient in backward order, and the layer whose own backward pass makes it.

    Args:
        pair: both sides.
        failed: failed comparisons of the backward stage.
        guilty: layers whose own backward pass is wrong, in backward order.
    """
    first = failed[0]
    if not guilty:
        place = first.name.removeprefix("gradient at ").partition("[")[0]
        place = "loss" if is_of_loss(first) else place
        return Divergence(first.name, place, "backward", pair.dtype, first.reason, first.hint)
    found = dataclasses.replace(guilty[0], name=first.name, reason=first.reason)
    if not pair.live:
        return found
    from align.explain.calls import search  # two dumps are compared without it

    cause = search.explained(pair, found.place, found.cause)
    return dataclasses.replace(found, cause=cause)


def is_of_loss(first: Comparison) -> bool:
    """Whether the first wrong gradient is that of the model's output, or the loss itself."""
    return first.name == "loss" or ROOT in first.name


def running_statistic(pair: Any, name: str) -> str:
    """The cause of a running statistic that is wrong after training, found in one pass.

    Args:
        pair: a live one.
        name: of Paddle's buffer.
    """
    from align.frameworks import (
        on_paddle,  # two dumps are compared without them
        on_torch,
    )
    from align.pair import runs

    weights, plan = pair.setup.weights, dataclasses.replace(pair.plan, train=True)
    rows = [row for row in weights.rows if row.destination.name == name and row.source.buffer]
    if not rows:
        return ""
    source, dtype = weights.torch_names[rows[0].source.name], pair.dtype

    def after(side: Any, model: Any, own: str) -> np.ndarray:
        with runs.passed(side, model, plan, dtype, dtype, backward=False) as found:
            return np.array(found.state[own])

    expected = after(on_torch, pair.reference_model(dtype, True), source)
    ours = after(on_paddle, pair.our_model(True), name)
    before, expected = (
        weights.to_paddle({source: held})[name] for held in (pair.setup.state[source], expected)
    )
    return statistic_edits.explain_statistic(name, before, ours, expected)
