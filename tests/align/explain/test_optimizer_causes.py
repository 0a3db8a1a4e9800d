"""Options are read by name; what hooks do to gradients is read back from what is left of them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from align.explain.optimizer_causes import Treatment, treatment_of, treatments_in_words
from align.frameworks.object_options import differing, options
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
    for scale in SCALES:
        given = {n: scale * rng.normal(size=s) for n, s in SHAPES.items()}
        norms = {n: float(np.linalg.norm(g)) for n, g in given.items()}
        found.norms.append(math.sqrt(sum(v**2 for v in norms.values())))
        for name, used in change(treatment.apply(given)).items():
            one = found.main[name]
            one.gradients.append(given[name])
            one.norms.append(norms[name])
            one.used.append(used)
    return found


@pytest.mark.parametrize(
    ("treatment", "words"),
    [
        (Treatment(), "leaves gradients as they are"),
        (Treatment("scaled", 0.25), "scales gradients by 0.25"),
        (Treatment("value", 0.5), "clips the value at 0.5"),
        (Treatment("global norm", 2.0), "clips the global norm at 2"),
        (Treatment("norm of each tensor", 1.0), "clips the norm of each tensor at 1"),
    ],
)
def test_a_treatment_is_read_back(treatment, words) -> None:
    found = treatment_of(side(treatment))
    assert found.kind == treatment.kind
    assert found.limit == pytest.approx(treatment.limit)
    assert words in str(found)


def test_what_is_no_treatment_is_none_and_cleared_gradients_say_nothing() -> None:
    assert treatment_of(side(Treatment(), lambda g: {n: v**2 for n, v in g.items()})) is None
    assert treatment_of(side(Treatment(), lambda g: {n: 0 * v for n, v in g.items()})) is None


def test_a_difference_says_what_each_side_does() -> None:
    words = treatments_in_words(Treatment("global norm", 1.0), Treatment())
    assert words.startswith("clipping in Paddle only: Paddle clips the gl")


def test_options_are_read_and_put_wherever_an_object_holds_them() -> None:
    def rate(step, *, warmup_steps, power=1.0):
        return warmup_steps, power

    def enclosing(total):
        return lambda step: total + step

    group = {"params": [], "lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-6}
    held = SimpleNamespace(
        _beta1=0.8,
        _step_count=3,
        name="adam",
        milestones=Counter([5, 9]),
        lr_lambdas=[functools.partial(rate, warmup_steps=6)],
        inner=enclosing(40),
    )
    found = options(held)
    assert {name: option.value for name, option in found.items()} == {
        "beta1": 0.8,
        "milestones": (5, 9),
        "warm-up steps": 6,
        "total": 40,
    }
    found["beta1"].put(0.9)
    found["warm-up steps"].put(7)
    found["total"].put(50)
    assert (held._beta1, held.lr_lambdas[0](0)[0], held.inner(1)) == (0.9, 7, 51)
    read = {name: option.value for name, option in options(group).items()}
    assert read == {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6}
    assert differing(found, options(group)) == ["beta1"]
