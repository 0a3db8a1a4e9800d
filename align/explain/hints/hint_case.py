"""What the tests for a cause may look at: one wrong tensor and what stood around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.explain import formulas
from align.pair.isolation import is_mask
from align.record.arrays import Arrays
from align.record.nested import Leaf

EXPLAINED = 0.01  # part of the difference that may remain


@dataclass
class Case:
    """One wrong tensor.

    Attributes:
        x: floating tensors at hand by description: inputs of the layer, outputs of layers inside.
        ours: Paddle's tensor.
        expected: PyTorch's.
        weights: tensors of the Paddle layer by leaf name, Paddle's layout.
        layer: the Paddle layer.
        module: the PyTorch module.
        whole: whole numbers, flags and additive masks at hand by description.
        precision: relative error of a formula that is right.
        samples: which ones of the batch these are, () for all.
    """

    x: Sequence[Leaf]
    ours: np.ndarray
    expected: np.ndarray
    weights: Arrays
    layer: Any
    module: Any
    whole: Sequence[Leaf] = field(default_factory=tuple)
    precision: float = 1e-9
    samples: tuple[int, ...] = ()

    @property
    def near(self) -> float:
        """How far an explanation may be from ours."""
        return EXPLAINED * float(np.abs(self.ours - self.expected).max())

    def explains(self, made: np.ndarray) -> bool:
        """Whether an array is ours."""
        return formulas.close(made, self.ours, self.near)

    @property
    def exact(self) -> float:
        """How far a right formula may be from PyTorch's tensor."""
        return min(self.near, self.precision * float(np.abs(self.expected).max()))

    def is_expected(self, made: np.ndarray) -> bool:
        """Whether an array is PyTorch's, to rounding."""
        return formulas.close(made, self.expected, self.exact)

    def inputs(self) -> list[Leaf]:
        """Inputs of the shape of the output."""
        return [(n, a.astype(np.float64)) for n, a in self.x if a.shape == self.ours.shape]

    def of_samples(self, count: int) -> Case:
        """The samples of the batch that differ most, in every array that has a batch."""
        total = self.ours.shape[0] if self.ours.ndim > 1 else 0
        if total <= count:
            return self
        apart = np.abs(self.ours - self.expected).reshape(total, -1).max(axis=1)
        chosen = sorted(int(i) for i in np.argsort(-apart)[:count])

        def cut(held: Sequence[Leaf]) -> list[Leaf]:
            return [(n, a[chosen] if a.ndim and a.shape[0] == total else a) for n, a in held]

        return dataclasses.replace(
            self,
            x=cut(self.x),
            ours=self.ours[chosen],
            expected=self.expected[chosen],
            whole=cut(self.whole),
            samples=tuple(self.samples[i] if self.samples else i for i in chosen),
        )

    def floats(self) -> list[Leaf]:
        """All of them in float64."""
        return [(n, a.astype(np.float64)) for n, a in self.x]


def make_case(
    inputs: Sequence[Leaf],
    ours: np.ndarray,
    expected: np.ndarray,
    weights: Arrays,
    layer: Any,
    module: Any,
) -> Case:
    """A case in float64, its inputs sorted into numbers and masks."""
    floats = [(n, a) for n, a in inputs if a.dtype.kind == "f" and not is_mask(a)]
    whole = [(n, a) for n, a in inputs if a.dtype.kind in "iub" or is_mask(a)]
    arrays = ours.astype(np.float64), expected.astype(np.float64)
    precision = 1e-9 if expected.dtype == np.float64 else 1e-5
    return Case(floats, *arrays, weights, layer, module, whole, precision)


def positions(flags: np.ndarray, samples: Sequence[int] = ()) -> str:
    """Where a (rows, columns) table of flags is set: "3, 4 of row 1", for a few rows.

    Args:
        flags: the table.
        samples: number of each row in the batch, empty when they count from 0.
    """
    shown = []
    for row in np.flatnonzero(flags.any(axis=1))[:3]:
        held = np.flatnonzero(flags[row])
        more = f" and {len(held) - 6} more" if len(held) > 6 else ""
        number = samples[row] if len(samples) == len(flags) else row
        shown.append(f"{', '.join(str(i) for i in held[:6])}{more} of row {number}")
    rest = int(flags.any(axis=1).sum()) - len(shown)
    return "; ".join(shown) + (f"; {rest} more rows" if rest > 0 else "")
