"""How far the weights of two training runs drift apart, step by step, against a noise band.

Whole states of every step would weigh gigabytes, so the same elements of both sides are taken: all
of a small tensor, up to LIMIT drawn ones of a large one. They follow from PyTorch's names and
shapes alone, so that the PyTorch side can be recorded where Paddle's names are not known; the
Paddle side finds them through the mapping.

Rounding alone drives a weight whose gradient is zero in exact arithmetic, such as the bias of a
key, or a bias before a normalisation: an optimizer that divides a gradient by its own size moves it
as far as any other, each side in its own direction.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from align.judge.comparator import ZERO_RATIO, peak, within
from align.match.mapping import WeightMapping, to_paddle
from align.record.arrays import Entry, Lazy, Reader, Store, canonical
from align.record.results import Comparison, Tolerance

LIMIT = 1024


class Sample:
    """Elements of trained weights, equal ones of both sides, as one vector in PyTorch's order.

    Args:
        entries: PyTorch's; running statistics are left out.
        weights: the mapping, None where only PyTorch's side is known.
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
        paddle_numbers = {} if weights is None else to_paddle(weights, numbers)
        self._ours = {name: _places(array) for name, array in paddle_numbers.items()}
        self._in_both = np.full(self.size, weights is None)
        for _, places in self._ours.values():
            self._in_both[places] = True

    def reference(self, side: Any, model: Any) -> np.ndarray:
        """(size,) The elements of the PyTorch model, float64."""
        tensors = side.named(model)
        parts = [_pick(side, tensors[name], few) for name, few in self._theirs.items()]
        return np.concatenate([np.zeros(0), *parts])

    def ours(self, side: Any, model: Any) -> np.ndarray:
        """(size,) The same of the Paddle model; 0 for those that the mapping leaves out."""
        tensors = side.named(model)
        elements = np.zeros(self.size)
        for name, (few, places) in self._ours.items():
            elements[places] = _pick(side, tensors[name], few)
        return elements

    def without(self, names: Collection[str]) -> np.ndarray:
        """Places of the elements that both sides have, but those of some PyTorch tensors."""
        chosen, start = self._in_both.copy(), 0
        for name, few in self._theirs.items():
            chosen[start : start + few.size] &= name not in names
            start += few.size
        return np.flatnonzero(chosen)


def _drawn(entry: Entry) -> np.ndarray:
    """Flat places in a tensor: all of a small one, up to LIMIT of a large one, by its name."""
    size = math.prod(entry.shape)
    if size <= LIMIT:
        return np.arange(size)
    return np.unique(np.random.default_rng(zlib.crc32(entry.name.encode())).choice(size, LIMIT))


def _numbered(shape: Sequence[int], few: np.ndarray, start: int) -> np.ndarray:
    """Zeros, and in the chosen places whole numbers from ``start`` on."""
    numbers = np.zeros(math.prod(shape), np.int64)
    numbers[few] = np.arange(start, start + few.size)
    return numbers.reshape(shape)


def _places(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat places of the chosen elements in a Paddle tensor, and their places in the vector."""
    flat = numbers.reshape(-1)
    few = np.flatnonzero(flat)
    return few, flat[few] - 1


def _pick(side: Any, tensor: Any, few: np.ndarray) -> np.ndarray:
    if few.size == math.prod(tensor.shape):
        return side.view(tensor).reshape(-1).astype(np.float64)
    return side.numpy(tensor.detach().reshape([-1])[side.tensor(few)]).astype(np.float64)


class Samples(Sequence[np.ndarray]):
    """The sampled weights of a run, one vector before the first step and after every one."""

    def __init__(self) -> None:
        self._store = Store()
        self._readers: list[Reader] = []

    def add(self, vector: np.ndarray) -> None:
        """Take the next vector."""
        self._readers.append(self._store.put(vector))

    def __len__(self) -> int:
        return len(self._readers)

    def __getitem__(self, step: Any) -> Any:
        return self._readers[step]()


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
    comparisons: Iterable[Comparison], firsts: Mapping[str, np.ndarray], rates: Sequence[float]
) -> Iterator[Comparison]:
    """Comparisons of weights; failed ones that rounding drives by how far a run can go.

    Args:
        comparisons: by their floors; what comes after the last "/" of a name is the weight's.
        firsts: see `driven_by_rounding`; read when a comparison failed.
    """
    names: set[str] | None = None
    for measured in comparisons:
        if not measured.passed and math.isfinite(measured.worst):
            names = driven_by_rounding(firsts) if names is None else names
            if measured.name.rpartition("/")[2] in names:
                farthest = 2.0 * sum(abs(rate) for rate in rates)
                rule = Tolerance("absolute", farthest, _WHY)
                measured = dataclasses.replace(measured, worst=measured.max_abs, scale=1.0, unit="")
                measured = within(measured, farthest, rule)
        yield measured
