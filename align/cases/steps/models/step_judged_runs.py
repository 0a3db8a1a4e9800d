"""Runs of several optimizer steps, judged; faulty runs are stopped as soon as a fault shows."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from align.cases.case_pair import CasePair, entries
from align.cases.kinds.case_kinds import Recipe
from align.cases.planted_controls import judge
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.noise_band import Kinds, NoiseBand
from align.record.arrays import TrainingRun
from align.record.results import Comparison, ControlResult

Runs = Generator[TrainingRun, None, None]
"""What a run holds at each of its pauses, and last at its end."""


@dataclass(frozen=True)
class JudgedRuns:
    """Both sides of a run and what was found.

    Attributes:
        ours: Paddle's run at its end.
        reference: PyTorch's run at its end, in Paddle's names.
        comparisons: of the two ends; and whatever differed at a pause.
        controls: of the faulty recipes.
        stamps: for `align.record.results.StepResult`.
    """

    ours: TrainingRun
    reference: TrainingRun
    comparisons: list[Comparison]
    controls: list[ControlResult]
    stamps: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _RunJudge:
    """The reference's run, and its float64 run in float32, at each pause and at the end."""

    pair: CasePair
    step: str
    references: list[TrainingRun]
    oracles: list[TrainingRun | None]
    noise: NoiseBand | None

    def compare(self, index: int, ours: TrainingRun) -> Iterator[Comparison]:
        """Judge our run at pause ``index``."""
        sides = self.references[index], self.oracles[index]
        noise = None if self.noise is None else lambda kind: self.noise.of(f"{kind} {index}")
        return self.pair.compare_training(self.step, ours, *sides, noise)

    def control(self, name: str, faulty: Runs, places: list[str]) -> ControlResult:
        """Judge a faulty run at its first pause and, while nothing fails, at the next one."""
        with contextlib.closing(faulty):
            for index, (run, place) in enumerate(zip(faulty, places, strict=True)):
                result = judge(name, self.compare(index, run), f"the recipe, {place}")
                if result.caught:
                    break
        return result


def compare_runs(
    pair: CasePair,
    step: str,
    steps: Iterable[int],
    reference: Callable[[str, MovedRoundings | None], Iterable[TrainingRun]],
    ours: Callable[[Recipe], Runs],
    faults: Mapping[str, Recipe],
) -> JudgedRuns:
    """Compare a run at its end, and plant faults in its recipe.

    The tolerance at a pause is that of the end, and our faultless run has to pass there too: a
    control says as much at a pause as at the end, and costs a part of it.

    Args:
        pair: of the case.
        step: ``optimizer`` or ``training``.
        steps: optimizer steps of the pauses and of the end, rising.
        reference: runs PyTorch in a precision, with those pauses; with moved roundings if given.
        ours: runs Paddle under a recipe, with those pauses.
        faults: name -> recipe with a fault.
    """

    def translated(dtype: str, seed: int | None = None) -> list[TrainingRun]:
        moves = None if seed is None else MovedRoundings(seed)
        return [pair.in_paddle_names(run) for run in reference(dtype, moves)]

    references = translated(pair.dtype)
    oracles: list[TrainingRun | None] = [None] * len(references)
    noise = None
    if pair.needs_oracle:
        oracles = list(translated("float64"))
        noise = NoiseBand(
            lambda: _numbered(oracles),
            lambda seed: contextlib.nullcontext(_numbered(translated(pair.dtype, seed))),
        )
    judging = _RunJudge(pair, step, references, oracles, noise)
    counts = list(steps)
    places = [f"after {count} of {counts[-1]} steps" for count in counts]
    clean = list(ours(pair.case.recipe))
    early = [
        dataclasses.replace(comparison, name=f"{comparison.name} ({place})")
        for index, (run, place) in enumerate(zip(clean[:-1], places[:-1], strict=True))
        for comparison in judging.compare(index, run)
        if not comparison.passed
    ]
    end = list(judging.compare(len(clean) - 1, clean[-1]))
    controls = [judging.control(name, ours(recipe), places) for name, recipe in faults.items()]
    stamps = {"ours": dict(clean[-1].stamp), "reference": dict(references[-1].stamp)}
    return JudgedRuns(clean[-1], references[-1], [*early, *end], controls, stamps)


def _numbered(runs: Iterable[TrainingRun]) -> Kinds:
    """What the runs left, by kind and number of the pause."""
    return {
        f"{kind} {index}": arrays
        for index, run in enumerate(runs)
        for kind, arrays in entries(run).items()
    }


def pauses_before(end: int, pause: int) -> tuple[int, ...]:
    """Optimizer steps of a run at which it is judged: the pause, when it comes before the end."""
    return (pause, end) if pause < end else (end,)
