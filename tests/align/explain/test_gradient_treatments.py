"""What hooks do to gradients is read back from what is left after the step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from align.explain.settings.gradient_treatments import Treatment, sentence, treatment_of
from align.judge.update_judging import ParameterTrace, SideTrace

SHAPES = {"fc": (6, 5), "bias": (6,), "head": (9, 4)}
SCALES = (1.0, 1e-3, 1e4)  # as `Feed` draws them: recorded, small, large


def side(treatment: Treatment, change=lambda given: given) -> SideTrace:
    """Gradients given to an optimizer whose hooks treat them."""
    rng = np.random.default_rng(0)
    found = SideTrace()
    for name, shape in SHAPES.items():
        weight = rng.normal(size=shape)
        found.main[name] = ParameterTrace([weight] * 4)
        found.still[name] = ParameterTrace([weight], used=[treatment.weight * weight])
    for scale in SCALES:
        given = {n: scale * rng.normal(size=s) for n, s in SHAPES.items()}
        norms = {n: float(np.linalg.norm(g)) for n, g in given.items()}
        found.norms.append(math.sqrt(sum(v**2 for v in norms.values())))
        for name, used in change(treatment.apply(given)).items():
            one = found.main[name]
            one.gradients.append(given[name])
            one.norms.append(norms[name])
            one.used.append(used + treatment.weight * one.weights[0])
    return found


@pytest.mark.parametrize(
    ("treatment", "words"),
    [
        (Treatment(), "leaves gradients as they are"),
        (Treatment("scaled", 0.25), "scales gradients by 0.25"),
        (Treatment("value", 0.5), "clips the value at 0.5"),
        (Treatment("global norm", 2.0), "clips the global norm at 2"),
        (Treatment("norm of each tensor", 1.0), "clips the norm of each tensor at 1"),
        (
            Treatment("norm of each group", 1.0, groups=(("fc", "bias"), ("head",))),
            "clips the norm of each group at 1",
        ),
        (Treatment("scaled", 0.25, 0.01), "scales gradients by 0.25 and adds 0.01 x the weight"),
    ],
)
def test_a_treatment_is_read_back(treatment, words) -> None:
    found = treatment_of(side(treatment))
    assert found.kind == treatment.kind
    assert (found.limit, found.weight) == pytest.approx((treatment.limit, treatment.weight))
    assert words in str(found)


def test_what_is_no_treatment_is_none_and_cleared_gradients_say_nothing() -> None:
    assert treatment_of(side(Treatment(), lambda g: {n: v**2 for n, v in g.items()})) is None
    assert treatment_of(side(Treatment(), lambda g: {n: 0 * v for n, v in g.items()})) is None


def test_a_difference_says_what_each_side_does() -> None:
    norm = Treatment("global norm", 1.0)
    limit = sentence(Treatment("global norm", 5.0), norm)
    assert limit == "clipping limit (global norm): Paddle 5, PyTorch 1"
    assert sentence(Treatment(), norm).startswith("clipping missing: Paddle leaves gradients")
    assert sentence(norm, Treatment()).startswith("clipping in Paddle only: Paddle clips the gl")
    assert sentence(Treatment("none", 1.0, 0.1), Treatment()).startswith("double decay: ")
