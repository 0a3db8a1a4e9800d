"""PyTorch's rules in NumPy: they make PyTorch's own steps, and one edit of them is recognized."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from align.explain.settings.update_formulas import Rule, explain
from align.judge.update_trace import ParameterTrace, SideTrace

RATE, STEPS, SHAPE = 1e-3, 4, (6, 5)
DECAYS = {"fc": (0.0, 0.0)}
ADAM, SGD = Rule("Adam", beta2=0.99), Rule("SGD")
MOMENTUM = Rule("Momentum", momentum=0.9)
RMS = Rule("RMSProp", rho=0.95, epsilon=1e-6)
T = torch.optim


def drawn(seed: int = 0) -> tuple[np.ndarray, list[np.ndarray]]:
    """Weights, and gradients of all sizes, so that epsilon shows."""
    rng = np.random.default_rng(seed)
    spread = 10.0 ** -rng.uniform(0, 9, SHAPE)
    return rng.normal(size=SHAPE), [spread * rng.normal(size=SHAPE) for _ in range(STEPS)]


def trace_of(rule: Rule, decay=(0.0, 0.0), seed: int = 0) -> SideTrace:
    """The steps that a rule makes."""
    weights, gradients = drawn(seed)
    trace = ParameterTrace([weights], list(gradients), used=list(gradients), rates=[RATE] * STEPS)
    for update in rule.updates(trace, decay):
        trace.weights.append(trace.weights[-1] - update)
    return SideTrace({"fc": trace})


@pytest.mark.parametrize(
    ("rule", "decay", "make"),
    [
        (ADAM, (0.01, 0.0), lambda p: T.AdamW(p, RATE, (0.9, 0.99), weight_decay=0.01)),
        (ADAM, (0.0, 0.1), lambda p: T.Adam(p, RATE, (0.9, 0.99), weight_decay=0.1)),
        (
            replace(ADAM, amsgrad=True),
            (0.0, 0.0),
            lambda p: T.Adam(p, RATE, (0.9, 0.99), amsgrad=True),
        ),
        (SGD, (0.0, 0.1), lambda p: T.SGD(p, RATE, weight_decay=0.1)),
        (replace(MOMENTUM, dampening=0.5), (0.0, 0.0), lambda p: T.SGD(p, RATE, 0.9, 0.5)),
        (
            replace(MOMENTUM, nesterov=True),
            (0.0, 0.1),
            lambda p: T.SGD(p, RATE, 0.9, weight_decay=0.1, nesterov=True),
        ),
        (RMS, (0.0, 0.0), lambda p: T.RMSprop(p, RATE, 0.95, 1e-6)),
    ],
)
def test_a_rule_makes_the_steps_of_pytorchs_optimizer(rule, decay, make) -> None:
    weights, gradients = drawn()
    parameter = torch.nn.Parameter(torch.tensor(weights))
    made = make([parameter])
    trace = trace_of(rule, decay).main["fc"]
    for step, gradient in enumerate(gradients):
        parameter.grad = torch.tensor(gradient)
        made.step()
        np.testing.assert_allclose(trace.weights[step + 1], parameter.detach(), atol=1e-14)


EDITS = {
    "no correction": (ADAM, {"corrected": False}, "bias correction: only PyTorch has it"),
    "epsilon inside": (ADAM, {"where": "inside"}, "Paddle inside, PyTorch outside"),
    "epsilon before": (ADAM, {"where": "before"}, "Paddle before, PyTorch outside"),
    "amsgrad": (ADAM, {"amsgrad": True}, "amsgrad: only Paddle has it"),
    "nesterov": (MOMENTUM, {"nesterov": True}, "nesterov: only Paddle has it"),
    "Paddle's RMSProp": (RMS, {"where": "inside"}, "Paddle inside, PyTorch outside"),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("seed", range(2))
def test_one_edit_is_named_with_both_values(name, seed) -> None:
    rule, edit, expected = EDITS[name]
    ours, theirs = trace_of(replace(rule, **edit), seed=seed), trace_of(rule, seed=seed)
    found = explain(ours, theirs, ["fc"], rule, DECAYS)
    assert expected in found


def test_nothing_is_named_where_nothing_fits_or_pytorchs_rule_is_another() -> None:
    theirs, wrong = trace_of(ADAM), trace_of(ADAM)
    rng = np.random.default_rng(5)
    wrong.main["fc"].weights[1:] = [rng.normal(size=SHAPE) for _ in range(STEPS)]
    assert explain(wrong, theirs, ["fc"], ADAM, DECAYS) == ""
    edited = trace_of(replace(ADAM, where="inside"))
    assert explain(edited, theirs, ["fc"], RMS, DECAYS) == ""
    assert explain(edited, theirs, ["fc"], None, DECAYS) == ""
