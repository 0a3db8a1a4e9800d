"""Step ``metric`` of a choice: which evaluation the trainer keeps, after each one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from align.cases.context import Context
from align.cases.kinds.image_case_kinds import BestChoiceCase
from align.cases.planted_controls import judge
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult

Choose = Callable[[Sequence[float]], int]


def run(case: BestChoiceCase, dtype: None, context: Context) -> StepResult:
    """Compare the best, the kept folder and the evaluations in vain after each evaluation."""
    from align.cases.sides.paddle_best_choice import choices
    from sot_torch_ref.train.image_scores import best_evaluation

    ours = {name: np.array(v) for name, v in choices(case.values, case.maximise).items()}

    def reference(choose: Choose) -> Arrays:
        best = [choose(case.values[: end + 1]) for end in range(len(case.values))]
        since = [end - place for end, place in enumerate(best)]
        return {"best": np.array(best), "kept": np.array(best), "since": np.array(since)}

    def compare(choose: Choose) -> list[Comparison]:
        return compare_mappings(ours, reference(choose), TOLERANCES["data", None])

    def chosen(values: Sequence[float]) -> int:
        return best_evaluation(values, maximise=case.maximise)

    faults: dict[str, Choose] = {
        "the last of equals": lambda values: _last(values, chosen),
        "the other direction": lambda values: best_evaluation(values, maximise=not case.maximise),
        "nan is the best": lambda values: _first_nan(values, chosen),
        "the newest": lambda values: len(values) - 1,
    }
    found = reference(chosen)
    controls = [
        judge(name, compare(choose), "another choice")
        for name, choose in faults.items()
        if not np.array_equal(reference(choose)["best"], found["best"])
    ]
    return StepResult(
        case.name,
        "metric",
        None,
        compare(chosen),
        controls,
        framework_free=True,
        note=f"{len(case.values)} evaluations of ExactTrainer on scripted metrics",
    )


def _last(values: Sequence[float], choose: Choose) -> int:
    best = values[choose(values)]
    return max((i for i, value in enumerate(values) if value == best), default=choose(values))


def _first_nan(values: Sequence[float], choose: Choose) -> int:
    return next((i for i, value in enumerate(values) if math.isnan(value)), choose(values))
