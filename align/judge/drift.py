"""How far the weights of two training runs drift apart, step by step, against a noise band.

Whole states of every step would weigh gigabytes, so the same elements of both sides are taken: all
of a small tensor, LIMIT drawn ones of a large one. The band is the drift of two runs of the
reference, one of which is moved by one unit in the last place before every step. A tensor whose
gradient is zero in exact arithmetic (a bias before a normalisation) is driven by rounding alone and
would drown all others: it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.judging import apart
from align.match.mapping import MappedRow, WeightMapping
from align.record.entries import named
from align.record.results import Comparison
from align.record.stored_arrays import Reader, Store
from align.record.tolerance import Tolerance

LIMIT = 1024
NAME = "drift of the weights"
UNSTEADY = 1e3  # times as sensitive to noise as the median tensor, in units of the tensor's way
_SEED = 0


class Sample:
    """The same elements of both sides' trained weights, as one vector.

    Args:
        weights: the mapping; running statistics are left out.
    """

    def __init__(self, weights: WeightMapping) -> None:
        rng = np.random.default_rng(_SEED)
        by_target: dict[str, list[MappedRow]] = {}
        for row in weights.rows:
            if not row.source.buffer and row.source.dtype.startswith(("float", "bfloat")):
                by_target.setdefault(weights.paddle_names[row.destination.name], []).append(row)
        self._ours: dict[str, np.ndarray] = {}
        self._theirs: list[tuple[str, np.ndarray, np.ndarray]] = []
        self._parts: list[slice] = []
        self.size = 0
        for name, rows in by_target.items():
            size = math.prod(rows[0].destination.shape)
            few = np.arange(size) if size <= LIMIT else np.sort(rng.choice(size, LIMIT))
            self._ours[name] = few
            self._add(WeightMapping(rows, weights.torch_names, weights.paddle_names), name, few)
            self._parts.append(slice(self.size, self.size + few.size))
            self.size += few.size

    def _add(self, weights: WeightMapping, name: str, few: np.ndarray) -> None:
        """Where the chosen elements of a Paddle tensor lie in the PyTorch tensors it is made of."""
        numbers, start = {}, 0
        for row in weights.rows:
            own = weights.torch_names[row.source.name]
            if own not in numbers:
                size = math.prod(row.source.shape)
                numbers[own] = np.arange(start, start + size).reshape(row.source.shape)
                start += size
        found = weights.to_paddle(numbers)[name].reshape(-1)[few]
        for own, array in numbers.items():
            first = int(array.flat[0]) if array.size else 0
            here = np.flatnonzero((found >= first) & (found < first + array.size))
            self._theirs.append((own, self.size + here, found[here] - first))

    def ours(self, side: Any, model: Any) -> np.ndarray:
        """The elements of the Paddle model, float64."""
        held = named(side, model)
        parts = [_pick(side, held[name], few) for name, few in self._ours.items()]
        return np.concatenate([part.astype(np.float64) for part in parts] or [np.zeros(0)])

    def reference(self, side: Any, model: Any) -> np.ndarray:
        """The same elements of the PyTorch model, in the same order, float64."""
        held = named(side, model)
        found = np.zeros(self.size)
        for name, places, few in self._theirs:
            found[places] = _pick(side, held[name], few)
        return found

    def steady(self, plain: Track, moved: Track) -> np.ndarray:
        """Places of the elements of all tensors but those that rounding drives.

        Args:
            plain: the reference.
            moved: the reference, moved by one unit in the last place before every step.
        """
        way, noise = plain[-1] - plain[0], moved[-1] - plain[-1]
        sizes = [[float(np.linalg.norm(a[part])) for a in (noise, way)] for part in self._parts]
        shares = [a / b if b > 0 else math.inf for a, b in sizes]
        most = UNSTEADY * max(float(np.median(shares or [0.0])), float(np.finfo(np.float64).eps))
        kept = np.zeros(self.size, bool)
        for part, share in zip(self._parts, shares, strict=True):
            kept[part] = share <= most
        return np.flatnonzero(kept) if kept.any() else np.arange(self.size)


def _pick(side: Any, tensor: Any, few: np.ndarray) -> np.ndarray:
    return side.numpy(tensor.detach().reshape([-1])[side.tensor(few)])


class Track:
    """The sampled weights of a run: before the first step, and after every one.

    Args:
        pick: from a live model to the vector, `Sample.ours` or `Sample.reference`.
    """

    def __init__(self, pick: Callable[[Any], np.ndarray]) -> None:
        self._pick, self._store = pick, Store()
        self._held: list[Reader] = []

    def watch(self, model: Any) -> None:
        """Take the weights of a model as the next ones."""
        self._held.append(self._store.put(self._pick(model)))

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, step: int) -> np.ndarray:
        return self._held[step]()

    def apart(self, other: Track, chosen: np.ndarray) -> list[float]:
        """L2 distance of the chosen weights after each step, in units of the other run's norm."""
        pairs = ((self[i], other[i]) for i in range(1, len(self)))
        return [apart(a[chosen], b[chosen], "l2") for a, b in pairs]


def allowed(band: Sequence[float], base: Tolerance) -> list[float]:
    """What is allowed at each step: the band with its factor, at least the floor of `base`."""
    return [bounds.widened(base, noise).lowest_bound for noise in band]


def judge(found: Sequence[float], band: Sequence[float], base: Tolerance) -> Comparison:
    """Every step's distance against what the noise band of that step allows.

    Args:
        found: distance of Paddle's weights from PyTorch's after each step.
        band: the same of the two reference runs.
        base: the training rule, whose floor holds where the band is narrower.

    Returns:
        Comparison: its position is the worst step, counted from 0.
    """
    most = allowed(band, base)
    ratios = [a / b if math.isfinite(a) else math.inf for a, b in zip(found, most, strict=True)]
    at = int(np.argmax(ratios))
    rule = Tolerance(
        "scaled",
        most[at],
        f"{bounds.NOISE_FACTOR:g} x the drift of two runs of the reference that are one unit in "
        f"the last place apart ({band[at]:.1e} at step {at + 1}), at least {base.lowest_bound:g}: "
        f"{base.why}",
        norm="l2",
    )
    reason = ""
    if not ratios[at] <= 1:
        first = next(i for i, ratio in enumerate(ratios) if not ratio <= 1)
        reason = (
            f"the weights leave the noise band at step {first + 1}; worst at step {at + 1}: "
            f"{found[at]:.2e} of their norm from PyTorch's, {most[at]:.2e} is allowed"
        )
    return Comparison(
        NAME, not reason, found[at], most[at], 1.0, found[at], (at,), None, None, rule, reason
    )
