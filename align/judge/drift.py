"""How far the weights of two training runs drift apart, step by step, against a noise band.

Whole states of every step would weigh gigabytes, so the same elements of both sides are taken: all
of a small tensor, up to LIMIT drawn ones of a large one. They follow from PyTorch's names and
shapes alone, so that the PyTorch side can be recorded where Paddle's names are not known; the
Paddle side finds them through the mapping. The band is the drift of two runs of the reference, one
of which is moved by one unit in the last place before every step. A tensor whose gradient is zero
in exact arithmetic (a bias before a normalisation) is driven by rounding alone and would drown all
others: it is left out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.judging import apart
from align.match.mapping import WeightMapping
from align.match.renamed import to_paddle
from align.record.entries import Entry, canonical, named
from align.record.results import Comparison
from align.record.stored_arrays import Lazy, Reader, Store
from align.record.tolerance import Tolerance

LIMIT = 1024
NAME = "drift of the weights"
UNSTEADY = 1e3  # times as sensitive to noise as the median tensor, in units of the tensor's way


class Sample:
    """The same elements of both sides' trained weights, as one vector in PyTorch's order.

    Args:
        entries: PyTorch's; running statistics are left out.
        weights: the mapping, None where only PyTorch's side is known.

    Attributes:
        size: number of elements.
        parts: places of each Paddle tensor's elements in the vector.
    """

    def __init__(self, entries: Sequence[Entry], weights: WeightMapping | None = None) -> None:
        first = canonical(entries)
        self._theirs: dict[str, np.ndarray] = {}
        numbers, self.size = Lazy(), 0
        for entry in entries:
            moves = not entry.buffer and entry.dtype.startswith(("float", "bfloat"))
            if moves and first[entry.name] == entry.name:
                few = _drawn(entry)
                self._theirs[entry.name] = few
                numbers.hold(entry.name, partial(_numbered, entry.shape, few, self.size + 1))
                self.size += few.size
        found = {} if weights is None else to_paddle(weights, numbers)
        self._ours = {name: _places(array) for name, array in found.items()}
        self.parts = [places for _, places in self._ours.values()]

    def reference(self, side: Any, model: Any) -> np.ndarray:
        """(size,) The elements of the PyTorch model, float64."""
        held = named(side, model)
        parts = [_pick(side, held[name], few) for name, few in self._theirs.items()]
        return np.concatenate([np.zeros(0), *parts])

    def ours(self, side: Any, model: Any) -> np.ndarray:
        """(size,) The same of the Paddle model; 0 for those that the mapping leaves out."""
        held = named(side, model)
        found = np.zeros(self.size)
        for name, (few, places) in self._ours.items():
            found[places] = _pick(side, held[name], few)
        return found

    def steady(self, plain: Track, moved: Track) -> np.ndarray:
        """Places of the elements of all Paddle tensors but those that rounding drives.

        Args:
            plain: the reference.
            moved: the reference, moved by one unit in the last place before every step.
        """
        way, noise = plain[-1] - plain[0], moved[-1] - plain[-1]
        sizes = [[float(np.linalg.norm(a[part])) for a in (noise, way)] for part in self.parts]
        shares = [a / b if b > 0 else math.inf for a, b in sizes]
        most = UNSTEADY * max(float(np.median(shares or [0.0])), float(np.finfo(np.float64).eps))
        pairs = zip(self.parts, shares, strict=True)
        kept = [part for part, share in pairs if share <= most] or self.parts
        return np.concatenate([np.zeros(0, np.int64), *kept])


def _drawn(entry: Entry) -> np.ndarray:
    """Flat places in a tensor: all of a small one, up to LIMIT of a large one, by its name."""
    size = math.prod(entry.shape)
    if size <= LIMIT:
        return np.arange(size)
    return np.unique(np.random.default_rng(zlib.crc32(entry.name.encode())).choice(size, LIMIT))


def _numbered(shape: Sequence[int], few: np.ndarray, start: int) -> np.ndarray:
    """Zeros, and in the chosen places whole numbers from ``start`` on."""
    found = np.zeros(math.prod(shape), np.int64)
    found[few] = np.arange(start, start + few.size)
    return found.reshape(shape)


def _places(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat places of the chosen elements in a Paddle tensor, and their places in the vector."""
    flat = numbers.reshape(-1)
    few = np.flatnonzero(flat)
    return few, flat[few] - 1


def _pick(side: Any, tensor: Any, few: np.ndarray) -> np.ndarray:
    return side.numpy(tensor.detach().reshape([-1])[side.tensor(few)]).astype(np.float64)


class Track:
    """The sampled weights of a run: before the first step, and after every one.

    Args:
        pick: from a live model to the vector, `Sample.ours` or `Sample.reference`.
        rows: (steps + 1, N), those of a run that was recorded.
    """

    def __init__(
        self, pick: Callable[[Any], np.ndarray] = np.asarray, rows: Iterable[np.ndarray] = ()
    ) -> None:
        self._pick, self._store = pick, Store()
        self._held: list[Reader] = []
        for row in rows:
            self._held.append(self._store.put(row))

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
