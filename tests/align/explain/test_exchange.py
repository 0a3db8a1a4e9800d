"""Options by name, the sentence of both values, and the fewest that have to be exchanged."""

from __future__ import annotations

import functools
from collections import Counter
from types import SimpleNamespace

import pytest

from align.explain.experiment import fewest
from align.explain.settings import exchange
from align.frameworks.object_options import differing, options


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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([("epsilon", 1e-5, 1e-8)], "epsilon: Paddle 1e-05, PyTorch 1e-08"),
        ([("nesterov", True, False)], "nesterov: only Paddle has it"),
        ([("milestones", (3, 4), (3,))], "milestones: Paddle [3, 4], PyTorch [3]"),
        (
            [("beta1", 0.99, 0.9), ("beta2", 0.9, 0.99)],
            "beta1 and beta2 exchanged: Paddle 0.99 and 0.9, PyTorch 0.9 and 0.99",
        ),
    ],
)
def test_a_sentence_names_the_options_and_both_values(values, expected) -> None:
    assert exchange.sentence(values) == expected


def needed(wrong: set[int], budget: int = 9) -> tuple[str, int]:
    """What is found when these of five changes are needed, and the trials it took."""
    asked = []

    def passes(changes: list[int]) -> bool:
        asked.append(changes)
        return wrong <= set(changes)

    found = fewest(list(range(5)), passes, budget)
    return "".join(map(str, found)), len(asked)


def test_the_first_change_that_suffices_is_taken_else_the_fewest_together() -> None:
    assert needed({2}) == ("2", 3)
    assert needed({1, 3})[0] == "13"
    assert needed({7})[0] == ""


def test_the_budget_counts_trials() -> None:
    found, trials = needed({4}, budget=2)
    assert found == ""
    assert trials <= 3
