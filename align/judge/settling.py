"""A stage's failed comparisons, judged again by the noise band; its planted faults beside them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

from align.judge import bounds
from align.judge.comparator import within
from align.judge.distance import CEILING
from align.judge.noise_band import ILL_CONDITIONED, Find, NoiseBand
from align.record.results import Comparison, some


class Settling:
    """Judges what missed its floor by the runs that the band makes then.

    Args:
        band: of the stage's quantities.
        find: from a comparison's name to what picks its spread, None for what has none.
        scale: the largest value of the kind of a comparison, None where none is surely not zero.
        exact: the pair is in float64: nothing is left out, and a difference beyond what any band
            may allow needs no run.
        chosen: the inputs are the suite's own: a tensor whose band proves little fails, where a
            user's, who cannot choose better ones, is left out with a note.

    Attributes:
        unjudged: names of the comparisons that rounding alone decides about: they are left out.
    """

    def __init__(
        self,
        band: NoiseBand,
        find: Callable[[str], Find | None],
        scale: Callable[[str], float | None],
        *,
        exact: bool,
        chosen: bool = False,
    ) -> None:
        self.band, self._find, self._scale, self._exact = band, find, scale, exact
        self._widest = CEILING if chosen else bounds.UNCERTAIN
        self._leaves_out = not (exact or chosen)
        self.unjudged: set[str] = set()
        self._clean: dict[str, Comparison] = {}

    def settle(self, found: Iterable[Comparison]) -> list[Comparison]:
        """The comparisons of the clean run.

        In float32 a user's that rounding alone decides about is left out, unless another one fails.
        """
        again, further = [], True
        for one in found:
            further = further and not self._hopeless(one)
            again.append(self._settled(one) if further else one)
        wide = {c.name for c in again if c.reason.endswith(ILL_CONDITIONED)}
        if self._leaves_out and all(c.passed or c.name in wide for c in again):
            self.unjudged |= wide
            again = [c for c in again if c.name not in wide]
        self._clean.update((c.name, c) for c in again)
        return again

    def _settled(self, one: Comparison) -> Comparison:
        find = None if one.passed else self._find(one.name)
        if find is None:
            return one
        scale = self._scale(one.name)
        return self.band.settle(one, find, widest=self._widest, zero_scale=scale)

    def _hopeless(self, one: Comparison) -> bool:
        """Whether no band could explain a measured difference."""
        if not self._exact or not math.isfinite(one.worst) or one.worst <= self._widest:
            return False
        scale = self._scale(one.name)
        return scale is None or one.max_abs > CEILING * scale

    def planted(self, found: Iterable[Comparison]) -> Iterator[Comparison]:
        """Comparisons of a run with a fault, within the bounds that the clean run was judged by.

        No run is made for them. The clean tensor's own distance is a draw of its noise, and the
        fault is many times as large.
        """
        for one in found:
            if one.name not in self.unjudged:
                yield self._as_before(one)

    def _as_before(self, one: Comparison) -> Comparison:
        clean = self._clean.get(one.name)
        if one.passed or clean is None or not math.isfinite(one.worst):
            return one
        if not clean.passed or clean.bound <= one.bound:
            return one
        if one.unit != clean.unit:
            share = one.max_abs / clean.scale
            one = dataclasses.replace(one, worst=share, scale=clean.scale, unit=clean.unit)
        return within(one, clean.bound, clean.tolerance)

    @property
    def note(self) -> str:
        """What was left out, "" for nothing."""
        if not self.unjudged:
            return ""
        names = sorted(self.unjudged)
        return f"PyTorch's own runs scatter too far to judge {len(names)}: {some(names)}"
