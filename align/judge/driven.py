"""Weights that rounding alone drives, because their gradient is zero in exact arithmetic.

Such as the bias of a key, or a bias before a normalisation. An optimizer that divides a gradient by
its own size moves them as far as any other, each side in its own direction.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from align.judge.comparator import within
from align.judge.distance import ZERO_RATIO, peak
from align.record.results import Comparison
from align.record.tolerance import Tolerance

FIRST = "moment1"
"""Moment of the optimizers that divide a gradient by its own size."""
_WHY = (
    "no gradient reaches this weight in exact arithmetic, and the optimizer divides the rounding "
    "by its own size: what the learning rates add up to in both directions"
)


def driven_by_rounding(firsts: Mapping[str, np.ndarray]) -> set[str]:
    """Names of the weights whose first moment is zero in exact arithmetic.

    Args:
        firsts: first moments of the most exact run of the reference.
    """
    sizes = {name: peak(array) for name, array in firsts.items() if array.size}
    least = ZERO_RATIO * max(sizes.values(), default=0.0)
    return {name for name, size in sizes.items() if size < least}


def driven(
    found: Iterable[Comparison], firsts: Mapping[str, np.ndarray], rates: Sequence[float]
) -> Iterator[Comparison]:
    """Comparisons of weights; failed ones that rounding drives by how far a run can go.

    Args:
        found: by their floors; what comes after the last "/" of a name is the weight's.
        firsts: see `driven_by_rounding`; read when a comparison failed.
        rates: of the steps.
    """
    names: set[str] | None = None
    for one in found:
        if not one.passed and math.isfinite(one.worst):
            names = driven_by_rounding(firsts) if names is None else names
            if one.name.rpartition("/")[2] in names:
                farthest = 2.0 * sum(abs(rate) for rate in rates)
                rule = Tolerance("absolute", farthest, _WHY)
                one = dataclasses.replace(one, worst=one.max_abs, scale=1.0, unit="")
                one = within(one, farthest, rule)
        yield one
