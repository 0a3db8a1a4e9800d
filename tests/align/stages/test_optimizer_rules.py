"""Rules that Paddle's optimizers lack, have otherwise, or apply to other gradients."""

from __future__ import annotations

import re

import paddle
import pytest
from paddle import optimizer as P
from torch import optim as T

from tests.align.stages.test_optimizing import LR, clipping, in_groups, ours, run


def clipped_in_groups(model):
    """Matrices by one norm, the rest by another, without groups in the optimizer."""

    def clip(own):
        for group in in_groups(own):
            paddle.nn.utils.clip_grad_norm_(group["params"], 0.125)

    return ours()(model), None, clip


RULES = {
    "Adamax": (
        lambda model: T.Adamax(model.parameters(), lr=LR),
        ours(P.Adamax),
        "epsilon.s place: Paddle adds it to the decayed norm, .* no fault of the port; with",
    ),
    "dampening": (
        lambda model: T.SGD(model.parameters(), lr=LR, momentum=0.9, dampening=0.25),
        ours(P.Momentum, momentum=0.9),
        "^dampening: PyTorch 0.25, none in Paddle; with PyTorch's the step agrees",
    ),
    "groups clipped apart by hand": (
        clipping(1.0),
        clipped_in_groups,
        "Paddle clips the norm of each group at 0.125, PyTorch clips the global norm at 1; with",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_differs_is_named(name) -> None:
    theirs, port, expected = RULES[name]
    result, found = run(theirs, port)
    assert not result.passed
    assert found[0].place == "optimizer"
    assert re.search(expected, found[0].cause), found[0].cause
