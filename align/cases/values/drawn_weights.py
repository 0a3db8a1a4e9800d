"""Step ``built`` for draws: do the initial values follow the distribution that is declared?

The product's small model is really initialised, from a fixed seed, and every parameter is judged
against the family and scale that the reference declares for it. Constants must be equal. For n
drawn values the distance of their distribution function from the declared one is judged with the
inequality of Dvoretzky, Kiefer and Wolfowitz: P(sup |F_n - F| > e) <= 2 exp(-2 n e^2). The bound e
is the one for FALSE_ALARMS, so at most that share of correct tensors fails, whatever the family.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import paddle
from scipy import stats

import sot_paddle
from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.sides import built_torch
from align.cases.sides.built_records import compare_facts
from align.frameworks import on_paddle
from align.record.arrays import Arrays
from align.record.results import Comparison, Tolerance

FALSE_ALARMS = 1e-9
"""Of one tensor; some hundred tensors together: below 1e-6 for the suite, with other seeds."""

MOST = 1 << 14
"""Values of a tensor that are judged, evenly spread: the bound is then .026."""

Starts = dict[str, tuple]


def drawn_weights(setting: Setting, *, name: str, options: Mapping[str, Any]) -> BothSides:
    """Initial values that a small model really draws, against the declared distributions.

    Args:
        setting: of the case.
        name: of the model, in the registry of both sides.
        options: overrides on both sides; small, but with enough values in the tensors that count.
    """
    with on_paddle.default_dtype("float32"):
        paddle.seed(7)
        model = sot_paddle.create_model(name, **options)
    ours = {parameter: _sample(p.numpy()) for parameter, p in model.named_parameters()}
    reference = built_torch.describe(name, options)
    starts = {n: facts["start"] for n, facts in reference.tensors.items() if facts["parameter"]}
    our_stamp = on_paddle.stamp(next(iter(model.parameters())))
    return BothSides(
        ours,
        starts,
        _faults(ours, starts),
        compare=compare,
        stamps=stamps(our_stamp, reference.stamp),
    )


def compare(ours: Arrays, starts: Starts) -> Iterator[Comparison]:
    """Judge drawn values by name; a name on one side only fails."""
    for name in dict.fromkeys([*starts, *ours]):
        if name in ours and name in starts:
            yield _judged(name, ours[name], starts[name])
        else:
            sides = ({name: {}} if name in side else {} for side in (ours, starts))
            yield from compare_facts(*sides)


def _sample(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1).astype("float64")
    return flat[:: -(-flat.size // MOST)]


def _judged(name: str, values: np.ndarray, start: tuple) -> Comparison:
    """One tensor; parts that the reference fills otherwise are another case's (listed) fact."""
    family, *numbers = start[:3]
    if family == "constant":
        bound, distance = 0.0, float(np.abs(values - np.float32(numbers[0])).max())
        deviation = 0.0
    else:
        bound = math.sqrt(math.log(2 / FALSE_ALARMS) / (2 * values.size))
        law = _LAWS[family](*numbers)
        distance = float(stats.ks_1samp(values, law.cdf, method="asymp").statistic)
        deviation = law.std()
    why = (
        f"{values.size} draws are this near to their distribution but once in {1 / FALSE_ALARMS:g}"
    )
    reason = f"not {family}{tuple(numbers)}: {distance:.3g}, {bound:.3g} allowed"
    return Comparison.stated(
        name,
        Tolerance("absolute", bound, why),
        "" if distance <= bound else reason,
        distance,
        ours=float(values.std()),
        reference=float(deviation),
    )


_LAWS: Mapping[str, Callable[[float, float], Any]] = {
    "normal": stats.norm,
    "uniform": lambda low, high: stats.uniform(low, high - low),
}
"""Family -> the distribution with its numbers."""


def _faults(ours: Arrays, starts: Starts) -> dict[str, ValueFault]:
    """Faults in the largest drawn tensor, and a constant that is not."""
    name = max((n for n in ours if starts[n][0] == "normal"), key=lambda n: ours[n].size)
    values, std = ours[name], starts[name][2]
    even = std * math.sqrt(3.0) * np.linspace(-1.0, 1.0, values.size)
    fixed = next(n for n in ours if starts[n][0] == "constant")
    faults = {
        "a deviation 10 % larger": {**ours, name: values * 1.1},
        "uniform of the same deviation": {**ours, name: even},
        "cut at 1.5 deviations": {**ours, name: np.clip(values, -1.5 * std, 1.5 * std)},
        "all zero": {**ours, name: 0 * values},
        "a tensor missing": {n: v for n, v in ours.items() if n != name},
    }
    found = {label: ValueFault(faulty, place=name) for label, faulty in faults.items()}
    moved = {**ours, fixed: ours[fixed] + 1e-6}
    return {**found, "a constant moved": ValueFault(moved, place=fixed)}
