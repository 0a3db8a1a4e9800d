"""Scores of several seeds: mean, deviation, and the paired difference of two configurations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class SeedScores:
    """What several seeds say about one number.

    Attributes:
        values: one for each seed.
        mean: of them.
        std: sample standard deviation (n - 1); None, as are the others, for a single seed and
            where a value is NaN.
        low: lower end of the confidence interval of the mean.
        high: its upper end.
        p_value: two-sided, of Student's t-test that the mean is 0; None where all values are equal.
    """

    values: tuple[float, ...]
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


def seed_scores(values: Sequence[float], confidence: float = 0.95) -> SeedScores:
    """Mean, deviation and Student's confidence interval of the mean.

    ``mean +- t(1 - (1 - confidence) / 2, n - 1) * std / sqrt(n)``. It takes the values for draws
    from a normal distribution; where all are equal, the interval has no width.

    Args:
        values: one for each seed.
        confidence: of the interval, in (0, 1).

    Raises:
        ValueError: no value, or a confidence out of range.
    """
    values, count = tuple(map(float, values)), len(values)
    if not values or not 0.0 < confidence < 1.0:
        raise ValueError(f"needs values and a confidence in (0, 1), got {count} and {confidence}")
    mean = statistics.fmean(values)
    if count == 1 or math.isnan(mean):
        return SeedScores(values, mean)
    std = statistics.stdev(values)
    if std == 0.0:
        return SeedScores(values, mean, std, mean, mean)
    error = std / math.sqrt(count)
    low, high = stats.t.interval(confidence, count - 1, loc=mean, scale=error)
    p_value = 2.0 * stats.t.sf(abs(mean) / error, count - 1)
    return SeedScores(values, mean, std, float(low), float(high), float(p_value))


def paired_difference(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95
) -> SeedScores:
    """The differences first - second of the same seeds in one order; see :func:`seed_scores`.

    Raises:
        ValueError: not as many of one as of the other.
    """
    if len(first) != len(second):
        raise ValueError(f"pairs need as many of both, got {len(first)} and {len(second)}")
    return seed_scores([a - b for a, b in zip(first, second, strict=True)], confidence)
