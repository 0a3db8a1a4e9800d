"""The experiment: edits in their order, the stage's judge, a budget of trials."""

from __future__ import annotations

import numpy as np
import pytest

from align.explain.array_edits import every, reordered
from align.explain.experiment import close_to, fewest, first_cause, options_in_words

RNG = np.random.default_rng(5)


def test_the_first_edit_after_which_the_judge_passes_is_the_cause() -> None:
    edits = [("plus 1", 4), ("does not apply", None), ("plus 4", 7), ("plus 3", 6)]
    assert first_cause(edits, lambda x: x >= 6, budget=5) == "plus 4"
    assert first_cause(edits, lambda x: x == 9, budget=5) == ""


def test_a_budget_counts_trials_and_edits_are_made_one_at_a_time() -> None:
    made = []

    def edits():
        for number in range(10):
            made.append(number)
            yield f"plus {number}", number

    assert first_cause(edits(), lambda x: x == 5, budget=3) == ""
    assert made == [0, 1, 2]
    assert first_cause(edits(), lambda x: x == 5, budget=6) == "plus 5"


def test_an_edit_explains_neither_equal_values_nor_an_infinite_difference() -> None:
    b = RNG.normal(size=(3, 4))
    assert not close_to(b, 0.0)(b)  # only the dtypes differ: an activation of b may be b
    assert not close_to(np.where(b > 0, np.inf, b), np.inf)(b + 1)
    assert close_to(b + 1e-9, 1e-8)(b)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda x: np.roll(x, 1, 0), "shifted round by 1 along axis 0: 0 of Paddle is 5"),
        (lambda x: x[[3, 4, 5, 0, 1, 2]], "its 2 equal parts along axis 0 are in the order 1, 0"),
        (lambda x: 2 * x[:, ::-1], "reversed along axis 1; scaled: 2 x PyTorch's"),
        (lambda x: x.transpose(0, 2, 1) + 3, "axes are swapped: Paddle's are PyTorch's in the ord"),
        (lambda x: x + RNG.normal(size=x.shape), ""),
    ],
)
def test_an_edit_of_an_array_is_found_and_noise_is_not_explained(change, cause, seed) -> None:
    b = np.random.default_rng(seed).uniform(0.5, 2, (6, 5, 5))
    a = change(b)
    found = first_cause(every(a, b), close_to(a, 1e-9), budget=900)
    assert found.startswith(cause)
    assert bool(found) == bool(cause)


def test_an_order_is_found_behind_an_axis_of_length_one() -> None:
    b = RNG.normal(size=(1, 5, 4))  # a position embedding
    a = b[:, [1, 0, 2, 4, 3]]
    cause = first_cause(every(a, b), close_to(a, 1e-9), budget=120)
    assert cause == "slices along axis 1 are in another order: 0 of Paddle is 1 of PyTorch"


def test_values_that_repeat_are_in_another_order_only_where_they_are() -> None:
    for ours, told in (([1.0, 0.0, 1.0], False), ([0.0, 0.0, 1.0], True)):
        said = [says for says, _ in reordered(np.array(ours), np.array([1.0, 0.0, 0.0]))]
        assert any("order" in one or "shifted round" in one for one in said) is told


def test_what_an_experiment_raises_ends_that_experiment_only() -> None:
    def passes(made: int) -> bool:
        if made < 3:
            raise (MemoryError, KeyError, OSError)[made]("of this trial")
        return made == 4

    edits = [(f"edit {i}", i) for i in range(6)]
    assert first_cause(edits, passes, 9) == "edit 4"
    assert fewest([0, 1, 2, 4], lambda some: all(map(passes, some)), 9) == [4]


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
    assert options_in_words(values) == expected


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
    found, trials = needed({4}, budget=2)
    assert found == ""
    assert trials <= 3
