"""What a pair may be asked for besides its passes: the metric and the schedule, side by side.

Each side computes its own numbers where it is dumped. A metric alone is judged: the Paddle side's
gets PyTorch's output, when PyTorch's dump is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from align.explain.settings import schedule_causes
from align.judge.bounds import SCHEDULE
from align.judge.comparator import compare_mappings
from align.judge.record_controls import controls
from align.pair.one_side import OneSide
from align.record.arrays import Arrays
from align.record.files.dump_reading import NUMBERS, Dump
from align.record.files.storage import write_json
from align.record.recording import ROOT, Recording
from align.record.results import Comparison, Divergence, StepResult
from align.record.tolerance import Tolerance

METRIC = Tolerance(
    "scaled", 1e-6, "counts are equal; sums in float32 round by 8 units in the last place"
)
Numbers = dict[str, dict[str, list[float]]]


def write_numbers(one: OneSide, plain: Recording, folder: Path) -> None:
    """Compute and write what one side was asked for.

    Args:
        one: the side.
        plain: its pass in the first precision.
        folder: of the dump.

    Raises:
        ValueError: a metric or a schedule that is no number.
    """
    found: Numbers = {}
    at = 0 if one.is_torch else 1
    if one.plan.metric is not None:
        found["metric"] = _metric(one, one.plan.metric[at], plain)
    if one.plan.schedule is not None:
        rates = [float(rate) for rate in one.plan.schedule[at](one.plan.schedule_steps)]
        if len(rates) != one.plan.schedule_steps or not np.isfinite(rates).all():
            raise ValueError(
                f"schedule: the {one.side.NAME} callable returned {len(rates)} rates, expected "
                f"{one.plan.schedule_steps} finite ones (SCHEDULE_STEPS)"
            )
        found["learning_rate"] = {"schedule": rates}
    write_json(folder / NUMBERS, found)


def _metric(one: OneSide, metric: Any, plain: Recording) -> dict[str, list[float]]:
    other, dtype = one.asked.other, one.plan.dtypes[0]
    if not one.is_torch and other is not None and dtype in other.meta.dtypes:
        plain = other.recording(dtype)
    outputs = [a for _, a in plain.calls[ROOT].outputs if a.dtype.kind == "f" and a.size]
    if not outputs:
        raise ValueError("metric: the model returns no floating tensor")
    labels = one.plan.labels
    given = one.side.tensor(outputs[0]), None if labels is None else one.side.tensor(labels)
    value = metric(*given)
    held = value if isinstance(value, Mapping) else {"metric": value}
    found = {}
    for name, number in held.items():
        if one.side.is_tensor(number):
            number = one.side.numpy(number)
        if np.size(number) != 1:
            raise ValueError(f"metric {name!r}: got {np.shape(number)} values, expected a number")
        found[str(name)] = [float(np.asarray(number).reshape(()))]
    return found


def stages(torch: Dump, paddle: Dump) -> Iterator[tuple[StepResult, list[Divergence]]]:
    """Compare the numbers of both dumps, a stage for each kind that either of them holds."""
    reference, ours = torch.numbers(), paddle.numbers()
    stamps = {"ours": paddle.meta.framework, "reference": torch.meta.framework}
    for step, rule in (("metric", METRIC), ("learning_rate", SCHEDULE)):
        sides = [
            {name: np.asarray(values) for name, values in side.get(step, {}).items()}
            for side in (ours, reference)
        ]
        if not any(sides):
            continue

        def judge(own: Arrays, expected: Arrays = sides[1], rule: Tolerance = rule):
            return compare_mappings(own, expected, rule)

        comparisons = judge(sides[0])
        checks = controls(judge, faults(sides[1]), judge(sides[1]))
        result = StepResult(torch.meta.name, step, None, comparisons, checks, stamps=stamps)
        if step == "learning_rate":
            result.series = _series(*sides)
        yield result, [_divergence(step, c, *sides) for c in comparisons if not c.passed]


def faults(sides: Arrays) -> list[tuple[str, str, Arrays]]:
    """Slips that a stage must notice: one number 0.1 % off, one name missing, a late schedule."""
    if not sides:
        return []
    name = next(iter(sides))
    values = sides[name]
    wrong = np.where(values == 0, 1e-3, values * 1.001)
    found = [
        ("a number 0.1 % off", name, {**sides, name: wrong}),
        ("a name left out", name, {n: v for n, v in sides.items() if n != name}),
    ]
    late = np.concatenate([values[:1], values[:-1]])
    if not np.array_equal(late, values):
        found.append(("one step late", name, {**sides, name: late}))
    return found


def _series(ours: Arrays, reference: Arrays) -> dict[str, dict[str, list[float]]]:
    name = next((name for name in reference if name in ours), None)
    if name is None:
        return {}
    curves = {"paddle": ours[name].tolist(), "pytorch": reference[name].tolist()}
    return {"learning_rate": curves}


def _divergence(step: str, comparison: Comparison, ours: Arrays, reference: Arrays) -> Divergence:
    name, cause = comparison.name, comparison.hint
    both: Sequence[Arrays] = (ours, reference)
    if step == "learning_rate" and all(name in side for side in both):
        cause = schedule_causes.explain(ours[name], reference[name]) or cause
    place = name if step == "learning_rate" or name == "metric" else f"metric {name}"
    return Divergence(name, place, step, "", comparison.reason, cause)
