"""How far the two sides may be apart: the floor of each step and precision, with its reason.

What misses its floor is judged by how far rounding alone moves the reference, which is measured,
never assumed (`align.judge.noise_band`); `Settling` does that for a stage and its planted faults.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from align.judge.comparator import CEILING, within
from align.judge.noise_band import FALSE_ALARM, FLOOR, ILL_CONDITIONED, KERNELS, Find, NoiseBand
from align.record.results import Comparison, Tolerance
from sot_paddle.config import some

UNCERTAIN = 0.25
"""A pair's band as wide as this judges nothing: such a tensor is left out of float32."""
_BAND = Tolerance(
    "band",
    FLOOR,
    f"PyTorch's own distance from its float64 run, {KERNELS:g} times, or the scatter of its runs "
    "whose inputs, weights and roundings are moved by a unit in the last place: right code fails "
    f"with a probability of {FALSE_ALARM:g} at most",
    factor=KERNELS,
)
_BAND_L2 = dataclasses.replace(
    _BAND, norm="l2", why=f"{_BAND.why}; single numbers are noisy: the whole tensor is judged"
)
_UPDATE = 2.0**-25 / (1 - 0.999)  # 3.0e-5

TOLERANCES: Mapping[tuple[str, str], Tolerance] = {
    ("forward", "float64"): Tolerance(
        "scaled",
        1e-10,
        "float64 rounding through a deep network stays below 1e-12; a wrong epsilon, formula or "
        "axis is above 1e-9",
    ),
    ("backward", "float64"): Tolerance(
        "scaled", 1e-10, "float64 gradients of deep networks agree to about 1e-13"
    ),
    ("loss", "float64"): Tolerance("scaled", 1e-10, "a loss is a short sum: rounding is 1e-15"),
    ("optimizer", "float64"): Tolerance(
        "scaled", 1e-10, "the same formula on the same gradients: rounding is 1e-15 each step"
    ),
    ("training", "float64"): Tolerance(
        "scaled", 1e-9, "steps amplify the rounding of one; 20 measured below 1e-11"
    ),
    ("statistics", "float64"): Tolerance(
        "scaled", 1e-6, "Paddle's batch norm kernel holds the momentum in float32 (6e-8 a step)"
    ),
    **dict.fromkeys(
        [("forward", "float32"), ("loss", "float32"), ("statistics", "float32")], _BAND
    ),
    ("backward", "float32"): _BAND_L2,
    ("training", "float32"): dataclasses.replace(
        _BAND_L2,
        why=f"{_BAND_L2.why}; and Paddle's float32 kernels hold beta2 to the power of the step, "
        "whose rounding makes 2**-24 / (1 - beta2) of the bias correction, half of it in an update",
        bias=_UPDATE,
    ),
}
"""(step, dtype) -> what is allowed at least, and why; a failed one is judged by the noise band."""

POOLED = Tolerance(
    "scaled",
    1e-7,
    "Paddle's average pools, of which this model has one, hold 1/N in float32 in their backward "
    "pass (2e-8); a mean over the axes is exact",
)
ISOLATED = {
    "float64": Tolerance(
        "scaled", 1e-10, "one layer on the reference's own inputs: float64 rounding is 1e-15"
    ),
    "float32": Tolerance(
        "scaled", 2e-5, "one layer on the reference's own inputs: a long float32 sum gives 1e-6"
    ),
}
"""dtype -> the rule for one layer that was fed the reference's inputs."""
RATE = Tolerance("relative", 1e-12, "a learning rate is one or two multiplications")
SCHEDULE = Tolerance(
    "relative",
    1e-10,
    "closed forms agree to 1e-15; forms that chain each rate to the one before add up 1e-16 a "
    "step, and near a floor of zero that is rounding of the peak (hence the floor)",
    floor=1e-3,
)
EXACT = Tolerance("exact", 0.0, "names and whole numbers: equal or wrong")


def backward(dtype: str, pooled: bool) -> Tolerance:
    """The rule of gradients.

    Args:
        pooled: an average pool of Paddle's has a part in them.
    """
    return POOLED if pooled and dtype == "float64" else TOLERANCES["backward", dtype]


def training(dtype: str, pooled: bool, steps: int) -> Tolerance:
    """The rule after some training steps; what an average pool loses adds up."""
    if dtype == "float32" or not pooled:
        return TOLERANCES["training", dtype]
    why = f"{POOLED.why}; {steps} steps add up"
    return dataclasses.replace(POOLED, value=min(POOLED.value * steps, 1e-3), why=why)


class Settling:
    """Judges what missed its floor by the runs that the band makes then.

    Args:
        find: from a comparison's name to what picks its spread, None for what has none.
        scale: the largest value of the kind of a comparison, None where none is surely not zero.
        exact: the pair is in float64: nothing is left out, and a difference beyond what any band
            may allow needs no run.
        chosen: the inputs are the suite's own: a tensor whose band proves little fails, where a
            user's, who cannot choose better ones, is left out with a note.
        is_value: whether a quantity is a value of the forward pass: a kink bends it, no jump. In
            float64 rounding decides about CEILING of it at most: what moves it farther is a choice
            (an order, a step at a whole number) that the moved runs make.

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
        is_value: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self.band, self._find, self._scale, self._exact = band, find, scale, exact
        self._most, self._is_value = CEILING if chosen else UNCERTAIN, is_value
        self._leaves_out = not (exact or chosen)
        self.unjudged: set[str] = set()
        self._clean: dict[str, Comparison] = {}

    def settle(self, comparisons: Iterable[Comparison]) -> list[Comparison]:
        """The comparisons of the clean run.

        In float32 a user's that rounding alone decides about is left out, unless another one fails.
        """
        again, further = [], True
        for comparison in comparisons:
            name, settled = comparison.name, comparison
            # a wider band of a quantity judges nothing
            widest = CEILING if self._exact and self._is_value(name) else self._most
            further = further and not self._hopeless(comparison, widest)
            find = self._find(name) if further and not comparison.passed else None
            if find is not None:
                scale = self._scale(name)
                settled = self.band.settle(comparison, find, widest=widest, zero_scale=scale)
            again.append(settled)
        wide = {c.name for c in again if c.reason.endswith(ILL_CONDITIONED)}
        if self._leaves_out and all(c.passed or c.name in wide for c in again):
            self.unjudged |= wide
            again = [c for c in again if c.name not in wide]
        self._clean.update((c.name, c) for c in again)
        return again

    def _hopeless(self, comparison: Comparison, widest: float) -> bool:
        """Whether no band could explain a measured difference."""
        worst = comparison.worst
        if not self._exact or not math.isfinite(worst) or worst <= widest:
            return False
        scale = self._scale(comparison.name)
        return scale is None or comparison.max_abs > CEILING * scale

    def planted(self, comparisons: Iterable[Comparison]) -> Iterator[Comparison]:
        """Comparisons of a run with a fault, within the bounds that the clean run was judged by.

        No run is made for them. The clean tensor's own distance is a draw of its noise, and the
        fault is many times as large.
        """
        for comparison in comparisons:
            if comparison.name not in self.unjudged:
                yield self._as_before(comparison)

    def _as_before(self, planted: Comparison) -> Comparison:
        clean = self._clean.get(planted.name)
        if planted.passed or clean is None or not math.isfinite(planted.worst):
            return planted
        if not clean.passed or clean.bound <= planted.bound:
            return planted
        if planted.unit != clean.unit:
            share = planted.max_abs / clean.scale
            planted = dataclasses.replace(planted, worst=share, scale=clean.scale, unit=clean.unit)
        return within(planted, clean.bound, clean.tolerance)

    @property
    def note(self) -> str:
        """What was left out, "" for nothing."""
        if not self.unjudged:
            return ""
        names = sorted(self.unjudged)
        return f"PyTorch's own runs scatter too far to judge {len(names)}: {some(names)}"
