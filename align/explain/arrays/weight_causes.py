"""From one wrongly converted tensor to the cause: the edit of PyTorch's that makes Paddle's.

Tensors are in Paddle's layout, PyTorch's (b) converted. Sources are searched over all the tensors
of the model.
"""

from __future__ import annotations

import hashlib
import itertools
import os.path

import numpy as np

from align.explain.arrays import array_edits
from align.explain.experiment import EXPLAINED, close_to, first_cause
from align.judge.distance import diagnose_shape
from align.record.arrays import Arrays

ROUNDING = 3e-7  # of the largest value: what one computation in float32 leaves
FRESH = 16  # elements from which a correlation says something
BUDGET = 120  # trials
LARGEST = 1_000_000  # elements; above, edits are tried one by one only


class Explainer:
    """Finds causes for the tensors of one model.

    Args:
        ours: Paddle's tensors by name.
        expected: what they should be, by the same names.
    """

    def __init__(self, ours: Arrays, expected: Arrays) -> None:
        self.ours, self.expected = ours, expected
        self._names: dict[tuple, list[str]] = {}
        for name, array in expected.items():
            self._names.setdefault(_digest(array), []).append(name)

    def __call__(self, name: str) -> str:
        """The cause for one tensor, "" when no edit explains it."""
        if name not in self.ours:
            return ""
        a, b = self.ours[name], self.expected[name]
        if a.shape != b.shape:
            return diagnose_shape(a, b)
        if a.dtype != b.dtype or not a.size:
            return ""
        if not np.isfinite(a).all():
            return f"{int((~np.isfinite(a)).sum())} values are not finite"
        sources = self._sources(name, a)
        a, b = a.astype(np.float64), b.astype(np.float64)
        near = min(EXPLAINED * np.abs(a - b).max(), ROUNDING * np.abs(a).max())
        pairs = array_edits.pairs(a, b) if a.size <= LARGEST else ()
        tried = itertools.chain(array_edits.single(a, b), pairs)
        edits = itertools.chain(sources, tried if a.size == 1 or np.ptp(a) else ())
        return first_cause(edits, close_to(a, near), BUDGET) or _guess(a, b)

    def _sources(self, name: str, a: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Other tensors that hold Paddle's values, those that share most of the path first."""
        own, found = _digest(self.expected[name]), []
        for turned, word in ((a, ""), (a.T, ", transposed")) if a.ndim == 2 else ((a, ""),):
            names = [one for one in self._names.get(_digest(turned), ()) if one != name]
            for other in sorted(names, key=lambda n: -len(os.path.commonprefix([n, name]))):
                swapped = other in self.ours and _digest(self.ours[other]) == own
                says = f"holds the values of {other!r}{word}"
                if swapped:
                    says = f"swapped with {other!r}: each holds the other's values"
                if swapped or a.size == 1 or np.ptp(a):
                    found.append((says, a))
        return sorted(found, key=lambda one: not one[0].startswith("swapped"))


def _digest(array: np.ndarray) -> tuple:
    data = np.ascontiguousarray(array.astype(np.float64) + 0.0)  # -0 and 0 are one
    return array.shape, hashlib.blake2b(data.tobytes(), digest_size=16).digest()


def _guess(a: np.ndarray, b: np.ndarray) -> str:
    """What the values look like where no edit of PyTorch's makes them."""
    if a.size > 1 and not np.ptp(a):
        return (
            f"perhaps never loaded: every value is {a.flat[0]:g}, an initial one, where PyTorch's "
            f"lie between {b.min():.3g} and {b.max():.3g}"
        )
    if a.size < FRESH or not a.std():
        return ""
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) if b.std() else 0.0
    if abs(correlation) > 4 / np.sqrt(a.size):
        return ""
    return (
        f"perhaps never loaded: nothing in common with PyTorch's values (standard deviation "
        f"{a.std():.3g} against {b.std():.3g}, correlation {correlation:.2f})"
    )
