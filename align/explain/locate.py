"""From failed comparisons to the layer to fix, its cause and its line of code.

Of two live models inject mode has found the wrong layers (`align.pair.isolation`), of two records
what every layer was given and returned (`align.pair.dumped_pair`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from align.explain import hints, loss_causes
from align.explain.loss_causes import LossRun
from align.explain.options import unequal
from align.judge.judging import OUTPUTS
from align.pair.dumped_pair import DumpPair
from align.pair.isolation import Guilty, merged
from align.pair.pair import Pair
from align.record.recording import ROOT
from align.record.results import Comparison, Divergence

REPEATS = 3  # layers of the class of the first on which its cause is tried


def forward_divergences(pair: Pair, wrong_layers: Sequence[Guilty]) -> list[Divergence]:
    """Return wrong layers with their causes, each once.

    Experiments are made on the first one; what they find is tried on others of its class.
    """
    divergences: list[Divergence] = []
    first_cause, repeats = "", 0
    # a wrong input of a layer that is right in the pass itself is rounding, as a rule
    right = {f"input of {c.name}" for c in pair.settled_taps if c.passed}
    wrong_layers = [w for w in wrong_layers if w.shown_at not in right] or wrong_layers
    for wrong in merged(list(wrong_layers)):
        cause, is_again = "", first_cause and _of_one_class(pair, wrong.place, divergences[0].place)
        if is_again and repeats < REPEATS:
            cause, repeats = _again(pair, wrong, divergences[0]), repeats + 1
        cause = cause or wrong.note or _forward_cause(pair, wrong, experiments=not divergences)
        if not divergences:
            first_cause = cause
        elif not cause and is_again:
            cause = f"perhaps as at {divergences[0].place}: {first_cause}"
        if not cause:
            inside = ", ".join(dict.fromkeys(wrong.siblings[:4]))
            hidden = f"layers without a partner run there: {inside}" if inside else ""
            cause = "; ".join(filter(None, [_left_out(pair, wrong), wrong.comparison.hint, hidden]))
        divergence = Divergence(
            name=wrong.shown_at,
            place=wrong.place,
            step="forward",
            dtype=pair.dtype,
            reason=wrong.comparison.reason,
            cause=cause,
            source=pair.code(wrong.place),
        )
        divergences.append(divergence)
    return divergences


def _of_one_class(pair: Pair, *places: str) -> bool:
    return pair.live and len({type(pair.layer(place)[0]) for place in places}) == 1


def _again(pair: Pair, wrong: Guilty, first: Divergence) -> str:
    """Try the edit that mended the first wrong layer on another one of its class, "" in vain."""
    from align.explain import calls

    proved = calls.study(pair, wrong, like=first.cause).proved
    return f"as at {first.place}: {proved}" if proved else ""


def _left_out(pair: Pair, wrong: Guilty) -> str:
    """Say which tensors of a layer itself are not PyTorch's, "" for none."""
    prefix = f"Paddle {wrong.place.partition('#')[0]}."
    ignored = [name for name in pair.setup.weights.ignored if name.startswith(prefix)]
    ends = [end for name in ignored if "." not in (end := name.removeprefix(prefix))]
    return f"its {' and '.join(ends)} has no partner and keeps its own numbers" if ends else ""


def _forward_cause(pair: Pair, wrong: Guilty, *, experiments: bool) -> str:
    """Experiments on the layer, then what is recorded, then edits of its output, then a guess."""
    proved = guess = missing = ""
    if experiments and pair.live:
        from align.explain import calls  # two dumps are compared without a framework

        proved, guess, missing = calls.study(pair, wrong)
    layer, module, weights = pair.layer(wrong.place)
    cause = proved or hints.explain_output(wrong, weights, fed=pair.live)
    return cause or guess or hints.guess_output(wrong, layer, module) or missing


def first_forward(
    pair: Pair, failed: Sequence[Comparison], wrong_layers: Sequence[Divergence]
) -> Divergence:
    """Return the first failed tap, placed at the first layer that is wrong on its own."""
    first = failed[0]
    if wrong_layers:
        shown = next((c for c in failed if not c.name.startswith("(")), first)
        return dataclasses.replace(wrong_layers[0], name=shown.name, reason=shown.reason)
    tap, cause = first.name.partition("[")[0], first.hint
    code = "" if tap.startswith("(") and tap != ROOT else pair.code(tap)
    if not code:
        tap, cause = _of_structure(pair, first, tap)
    return Divergence(first.name, tap, "forward", pair.dtype, first.reason, cause, code)


def _of_structure(pair: Pair, first: Comparison, tap: str) -> tuple[str, str]:
    """Place and cause of "(tied parameters: a, b)", "(trainable parameters: a)", "(inputs: a)"."""
    title, _, names = first.name.strip("()").partition(": ")
    owner = names.split(", ")[0].rpartition(".")[0] or ROOT
    if first.name == OUTPUTS:
        return ROOT, first.hint
    if title == "inputs":
        return ROOT, f"changed in place in Paddle, not in PyTorch: input {names}"
    if title == "tied parameters":
        tied, partners = set(names.split(", ")), pair.setup.weights.partners()
        by_torch = any(len(tied & paddle_names) > 1 for paddle_names in partners.values())
        who, other = ("PyTorch", "Paddle") if by_torch else ("Paddle", "PyTorch")
        sides = f"one tensor on one side ({who} ties them), several on the other ({other})"
        return owner, f"{sides}: {names}"
    if title == "trainable parameters":
        return owner, f"trained on one side only (stop_gradient, requires_grad): {names}"
    return tap, first.hint


def backward_divergences(
    pair: Pair, wrong_gradients: Sequence[Any], forward_wrong: Collection[str] = ()
) -> list[Divergence]:
    """Return one entry for each wrong layer, its first wrong gradient, in backward order.

    Args:
        pair: both sides.
        wrong_gradients: `align.pair.isolation.WrongGradient`, of a live pair or of two records.
        forward_wrong: calls whose own code is wrong in the forward pass already.
    """
    by_layer: dict[str, Divergence] = {}
    for wrong in wrong_gradients:
        layer_name = wrong.place.partition("#")[0] if pair.live else wrong.place
        if layer_name in by_layer:
            continue
        of_parameter = wrong.value is None
        cause = hints.explain_gradient(
            wrong.ours, wrong.expected, wrong.seeds, of_parameter=of_parameter
        )
        if cause.startswith(hints.NO_TORCH) and pair.live and pair.dtype == "float64":
            from align.pair.bench import refutes_paddle  # with a framework

            cause = hints.UNKNOWN if refutes_paddle(pair) else cause
        finding = Divergence(
            name=wrong.comparison.name,
            place=layer_name,
            step="backward",
            dtype=pair.dtype,
            reason=wrong.comparison.reason,
            cause=cause,
            source=pair.code(wrong.place),
        )
        by_layer[layer_name] = finding.after("forward") if wrong.place in forward_wrong else finding
    return list(by_layer.values())


def first_backward(
    pair: Pair, failed: Sequence[Comparison], wrong_layers: Sequence[Divergence]
) -> Divergence:
    """Return the first bad gradient in backward order, at the layer that makes it."""
    first = failed[0]
    if not wrong_layers:
        where = first.name.removeprefix("gradient at ").partition("[")[0]
        where = "loss" if is_of_loss(first) else where
        return Divergence(first.name, where, "backward", pair.dtype, first.reason, first.hint)
    divergence = dataclasses.replace(wrong_layers[0], name=first.name, reason=first.reason)
    if not pair.live:
        return divergence
    from align.explain import calls  # two dumps are compared without it

    cause = calls.explain_backward(pair, divergence.place, divergence.cause)
    return dataclasses.replace(divergence, cause=cause)


def is_of_loss(first: Comparison) -> bool:
    """Say whether the first wrong gradient is that of the model's output, or the loss itself."""
    return first.name == "loss" or ROOT in first.name


def running_statistic(pair: Pair, name: str) -> str:
    """Name the options that differ of the layer of a running statistic, "" for none."""
    if name not in pair.setup.weights.statistics:
        return ""
    layer, module, _ = pair.layer(name.rpartition(".")[0] or ROOT)
    return "; ".join(option.says for option in unequal(layer, module))


def recorded_loss_cause(pair: DumpPair) -> str:
    """Explain two losses of one and the same output that differ."""
    paddle_run, torch_run = (
        LossRun(side.loss, dict(side.calls[ROOT].grad_outputs), side.stamp)
        for side in (pair.ours, pair.reference)
    )
    outputs = {p: a for p, a in pair.reference.calls[ROOT].outputs.items() if a.dtype.kind == "f"}
    return loss_causes.explain(outputs, pair.setup.torch.labels(), paddle_run, torch_run)
