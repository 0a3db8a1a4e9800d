"""Try the candidate edits of a wrong backward pass: what cuts the graph, on one side only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import paddle

from align.explain.arrays.gradient_edits import UNKNOWN
from align.explain.calls.search import instead, together
from align.explain.experiment import Edit, becomes, first_cause
from align.frameworks.swapping import attributes
from align.frameworks.watched_calls import WatchedCall, watched_in
from align.pair.any_pair import AnyPair
from align.pair.bench import Bench
from align.pair.gradient_bench import GradientBench
from align.record.recording import ROOT

TRIALS = 200
CUTS = {
    "detach": "detach() cuts the graph: no gradient passes there, in PyTorch it does",
    "diag_embed": "paddle.diag_embed has no gradient: it cuts the graph; multiply by an identity",
}
"""Function -> what a call of it does to the gradient."""


OTHERWISE = (
    "the forward pass is right and the gradient is not, and no cut of the graph explains it: "
    "perhaps a backward pass of its own (PyLayer) is wrong"
)


def explained(pair: AnyPair, key: str, formula: str) -> str:
    """The cause of a wrong backward pass of one layer; `formula` where no experiment succeeds."""
    reference = Bench(pair, key).partner
    if key == ROOT or reference is None:
        return formula
    with Bench(pair, key).ready() as bench:
        held = bench.held
    if held is None:
        return formula
    trial = GradientBench(pair, held, reference)
    calls: list[WatchedCall] = []
    ours = trial.gradients(watched_in(trial.layer, lambda call: calls.append(call) or call.go()))
    if ours is None or trial.right(ours):
        return formula
    found = first_cause(None, _edits(trial.layer, calls), trial.mended_by, TRIALS)
    return found or (OTHERWISE if formula == UNKNOWN else formula)


def _edits(layer: Any, calls: list[WatchedCall]) -> Iterator[Edit[Any]]:
    """Cuts of Paddle undone, then cuts that PyTorch may have."""
    for numbers in together([call for call in calls if call.name in CUTS]):
        call = calls[numbers[0]]
        yield becomes(
            f"{CUTS[call.name]} ({call.place})", watched_in(layer, instead(numbers, _joined))
        )
    said = "no_grad() cuts the graph: no gradient passes there, in PyTorch it does"
    yield becomes(said, attributes(paddle, no_grad=contextlib.nullcontext))
    for numbers in together([call for call in calls if call.name not in CUTS]):
        call = calls[numbers[0]]
        said = f"PyTorch cuts the graph after {call.name}, Paddle does not: detach() is missing"
        yield becomes(f"{said} ({call.place})", watched_in(layer, instead(numbers, _detached)))


def _joined(call: WatchedCall) -> Any:
    """A cut in a form that hands gradients on."""
    x = call.args[0]
    if call.name == "diag_embed":
        return x.unsqueeze(-1) * paddle.eye(x.shape[-1], dtype=x.dtype)
    return x


def _detached(call: WatchedCall) -> Any:
    return call.go().detach()
