"""A followed Paddle optimizer against the reference's: members, rates, updates, moments by name.

The room is measured on the reference where Paddle's kernels compute with other numbers: it is
followed a second time with their coefficients in float32 and their rule of clipping.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from align.frameworks.stepping_torch import CLIP_EPS
from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.judge.update_trace import ParameterTrace, SideTrace
from align.record.results import Comparison, Tolerance

FLOOR = {
    "float64": bounds.TOLERANCES["optimizer", "float64"].lowest_bound,
    "float32": bounds.TOLERANCES["training of a pair", "float32"].lowest_bound,
}
ROOM = 8.0  # units in the last place of a weight that its update may be off
FOLLOWED = 2.0  # times what the numbers of Paddle's kernels do to the reference
LARGEST = 0.05
MEMBERS, RATES = "parameters in both optimizers", "rates applied (parameter, step)"
_WHY = {
    "float64": "one update is a few float64 operations on equal numbers; its own rounding is that "
    "of the weight it is subtracted from",
    "float32": "PyTorch's own distance from its float64 run, 4 times; Paddle's kernels hold 1 - "
    "beta2 with 1.3e-5, and an update is rounded as the weight it is subtracted from",
}
_FOLLOWED = (
    "; Paddle's kernels hold coefficients (weight decay, momentum, epsilon) in float32 and clip by "
    "the plain norm: 2 x what this does to PyTorch's own result"
)
_CLIPPED = "; PyTorch clips by norm + 1e-6, Paddle by the norm: 1e-6 / norm"


@dataclasses.dataclass
class UpdateJudge:
    """Compares a Paddle trace with the reference's.

    Attributes:
        reference: PyTorch's trace.
        oracle: its float64 run, for a pair in float32.
        near: its run with the numbers of Paddle's kernels: coefficients in float32, clipping by the
            plain norm; None when that changes nothing.
        dtype: precision of the pair.
    """

    reference: SideTrace
    oracle: SideTrace | None
    near: SideTrace | None
    dtype: str

    def compare(self, ours: SideTrace) -> Iterator[Comparison]:
        """Members, rates, the step without gradients, then updates and moments by parameter."""
        names = [n for n in self.reference.main if n in ours.main]
        both = [n for n in names if self.reference.main[n].held and ours.main[n].held]
        yield self._members(ours, names)
        if both:
            yield self._rates(ours, both)
        for part, title in (("still", "step without gradients"), ("main", "update")):
            for name in both:
                yield self._worst(ours, part, name, title, "")
        kinds = dict.fromkeys(k for n in both for k in self.reference.main[n].moments)
        for kind in kinds:
            for name in both:
                if all(kind in side.main[name].moments for side in (ours, self.reference)):
                    yield self._worst(ours, "main", name, kind, kind)

    def _members(self, ours: SideTrace, names: list[str]) -> Comparison:
        flags = [
            np.array([int(side.main[n].held) for n in names]) for side in (ours, self.reference)
        ]
        found = compare_arrays(MEMBERS, *flags, bounds.EXACT)
        if found.passed or not names:
            return found
        odd = [n for n, a, b in zip(names, *flags, strict=True) if a != b]
        return dataclasses.replace(found, reason=f"in one only: {', '.join(odd[:8])}")

    def _rates(self, ours: SideTrace, names: list[str]) -> Comparison:
        sides = (np.array([side.main[n].rates for n in names]) for side in (ours, self.reference))
        found = compare_arrays(RATES, *sides, bounds.SCHEDULE)
        if found.passed or found.position is None:
            return found
        return dataclasses.replace(found, reason=f"{names[found.position[0]]}: {found.reason}")

    def _worst(self, ours: SideTrace, part: str, name: str, title: str, kind: str) -> Comparison:
        """The comparison of the step that is worst, of updates or of one moment."""
        traces = [
            None if side is None else getattr(side, part)[name]
            for side in (ours, self.reference, self.oracle, self.near)
        ]
        found = []
        for step in range(traces[1].steps):
            arrays = [None if t is None else _quantity(t, kind, step) for t in traces]
            if arrays[0] is None and arrays[1] is None:
                continue
            rule, scale = self._rule(arrays, traces[1], part, kind, step)
            label = f"{title}/{name}"
            one = compare_arrays(
                label, arrays[0], arrays[1], rule, oracle=arrays[2], zero_scale=scale
            )
            if not one.passed and part == "main":
                one = dataclasses.replace(one, reason=f"step {step + 1}: {one.reason}")
            found.append(one)
        if not found:
            nothing = np.empty(0)
            return compare_arrays(f"{title}/{name}", nothing, nothing, bounds.EXACT)
        return max(found, key=lambda c: c.severity)

    def _rule(
        self,
        arrays: list[np.ndarray | None],
        trace: ParameterTrace,
        part: str,
        kind: str,
        step: int,
    ) -> tuple[Tolerance, float | None]:
        """The tolerance of one quantity, and the size that a zero one is judged against."""
        _, b, oracle, near = arrays
        weights = float(np.abs(trace.weights[step]).max())
        rate = trace.rates[step]
        scale = rate * weights if not kind and rate > 0 and weights > 0 else None
        size = float(np.abs(b).max()) if b is not None else 0.0
        why, rounding = _WHY[self.dtype], ROOM * float(np.finfo(self.dtype).eps) * weights
        if oracle is not None and not kind and b is not None:
            room = 4.0 * float(np.abs(b - oracle).max()) + FLOOR[self.dtype] * size + rounding
            return Tolerance("absolute", float(f"{room:.1g}"), why), None
        room = FLOOR[self.dtype]
        if size and not kind:
            room = max(room, rounding / size)
        if size and near is not None:
            apart = FOLLOWED * float(np.abs(near - b).max()) / size
            why, room = (why + _FOLLOWED, room + apart) if apart > room / 10 else (why, room)
        apart = self._clipping(step) if part == "main" else 0.0
        why, room = (why + _CLIPPED, room + apart) if apart > room / 10 else (why, room)
        room = float(f"{min(room, LARGEST):.1g}")
        if self.dtype == "float64":
            return Tolerance("scaled", room, why), scale
        return Tolerance("oracle", room, why, norm="l2", factor=4.0, floor=room), scale

    def _clipping(self, step: int) -> float:
        """What PyTorch's norm + 1e-6 makes, in this step or carried on by the moments."""
        clipped = zip(self.reference.clipped[: step + 1], self.reference.norms, strict=False)
        return max(
            (4 * CLIP_EPS / norm for share, norm in clipped if share < 1 - 1e-12), default=0.0
        )


def _quantity(trace: ParameterTrace, kind: str, step: int) -> np.ndarray | None:
    return trace.moment(kind, step) if kind else trace.update(step)
