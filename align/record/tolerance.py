"""Tolerance: how far two arrays may be apart, by which rule and why; nonsense is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

KINDS = ("scaled", "relative", "absolute", "exact", "oracle", "band")
JUDGED_BY_ORACLE = ("oracle", "band")
"""Kinds whose judge is the float64 run of the reference."""


@dataclass(frozen=True)
class Tolerance:
    """How far two arrays may be apart, and why that far.

    scaled:   max|a-b| <= value * max|b|                (norm "l2": ||a-b|| <= value * ||b||)
    relative: |a-b| <= value * max(|b|, floor * max|b|) for every element
    absolute: max|a-b| <= value
    exact:    a == b everywhere (value 0)
    oracle:   dist(a, o) <= max(factor * dist(b, o), floor) with o the float64 run of the reference
              and dist relative to o, in the max or the l2 norm; without a floor, `value` is it
    band:     dist(a, o) <= bias + max(value, factor * dist(b, o), noise), noise and factor: see
              `align.judge.noise_band`

    Args:
        kind: one of KINDS.
        value: the number above, finite and >= 0; below 1 unless absolute or exact.
        why: the reason for this number, one sentence; never empty.
        norm: "max" or "l2" (scaled, oracle and band only).
        factor: oracle and band only, > 0: how many times PyTorch's own distance is allowed.
        floor: oracle and relative only, in [0, 1).
        infinities: exact only: equal infinities are data (a mask value) and count as equal.
        bias: band only, in [0, 1): a derived difference of the sides beside rounding.

    Raises:
        ValueError: a combination that means nothing or admits anything.

    Source: issue "The rails", section 5; specs.md D.5.
    """

    kind: str
    value: float
    why: str
    norm: str = "max"
    factor: float | None = None
    floor: float | None = None
    infinities: bool = False
    bias: float = 0.0

    def __post_init__(self) -> None:
        kind, value, floor = self.kind, self.value, self.floor
        oracle = kind == "oracle"
        is_size = floor is None or (kind in ("oracle", "relative") and 0 <= floor < 1)
        has_factor = self.factor is not None and 0 < self.factor < math.inf
        has_norm = self.norm == "max" or (
            self.norm == "l2" and kind in ("scaled", *JUDGED_BY_ORACLE)
        )
        rules = (
            (kind in KINDS, f"kind {kind!r}, expected one of {', '.join(KINDS)}"),
            (0 <= value < math.inf, f"value {value!r}, expected a finite number >= 0"),
            (kind != "exact" or value == 0, f"value {value!r}, expected 0 for kind exact"),
            (
                value < 1 or kind in ("absolute", "exact"),
                f"value {value!r} for kind {kind}, which admits a tensor of zeros: expected < 1",
            ),
            (bool(self.why.strip()), "an empty why: say where the number comes from"),
            (has_norm, f"norm {self.norm!r} for kind {kind}: max, or l2 with scaled, oracle, band"),
            (
                has_factor if oracle else self.factor is None or (kind == "band" and has_factor),
                f"factor {self.factor!r} for kind {kind}: oracle needs one > 0, band may have one",
            ),
            (is_size, f"floor {floor!r} for kind {kind}: in [0, 1), only for oracle and relative"),
            (
                self.bias == 0 or (kind == "band" and 0 < self.bias < 1),
                f"bias {self.bias!r} for kind {kind}: in [0, 1), only for band",
            ),
            (not self.infinities or kind == "exact", f"infinities for kind {kind}: exact only"),
        )
        wrong = [text for holds, text in rules if not holds]
        if wrong:
            raise ValueError(f"Tolerance: got {'; '.join(wrong)}")

    @property
    def lowest_bound(self) -> float:
        """What is allowed at least: `value` and its bias; of an oracle the floor, if any."""
        if self.kind == "oracle" and self.floor is not None:
            return self.floor
        return self.value + self.bias

    def describe(self) -> str:
        """The rule in words: "largest difference <= 1e-10 x the tensor's largest value"."""
        distance = "L2 distance" if self.norm == "l2" else "largest difference"
        size = "L2 norm" if self.norm == "l2" else "largest value"
        return {
            "scaled": f"{distance} <= {self.value:g} x the tensor's {size}",
            "relative": f"every element within {self.value:g} of its own size",
            "absolute": f"largest difference <= {self.value:g}",
            "exact": "equal in every element",
            "oracle": f"{distance} from float64 <= max({self.factor or 0:g} x PyTorch's own, "
            f"{self.lowest_bound:g} x the tensor's {size})",
            "band": f"{distance} from float64 <= what moved roundings of PyTorch explain, at least "
            f"{self.lowest_bound:.2g} x the tensor's {size}",
        }[self.kind]
