"""Records of an alignment run: tolerance, comparison, control, step and divergence.

Plain data without a framework. Three rules live here because every writer of a report depends on
them: a tolerance that means nothing is refused; a result passes only when it compared something,
caught every control and can prove who computed each side; and its JSON is strict.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from align.record.request import DTYPES
from sot_paddle.reading import json_ready


@dataclass(frozen=True)
class Step:
    """A step of a comparison, declared once: run, report, docs and tests go by `STEPS`.

    Attributes:
        name: in the report.
        argument: of `align.compare` that asks for it, "" where it is always compared.
        code: "module:function" in `align.stages`: takes a pair, returns its `StepResult` and its
            divergences. It is loaded when it is due: two dumps are compared without a framework.
        once: it does not depend on the precision, and comes before the steps that do.
        live: it needs two models that can run; dumps do not hold it.
        makers: steps whose difference makes this one's.
    """

    name: str
    argument: str
    code: str = ""
    once: bool = False
    live: bool = False
    makers: tuple[str, ...] = ()


_REPEATED = ("forward", "loss", "backward", "optimizer", "training", "learning_rate")
"""Steps that a training run repeats: where one of them differs, so does the run."""
STEPS: Mapping[str, Step] = {
    step.name: step
    for step in (
        Step("weights", "converted", "numbers:weights", once=True, live=True),
        Step("data", "data", "batch_data:data", once=True, live=True),
        Step("forward", ""),
        Step("loss", "loss", "loss_stage:loss", live=True),
        Step("metric", "metric", "numbers:metric", once=True),
        Step("learning_rate", "schedule_steps", "numbers:learning_rate", once=True),
        Step("backward", ""),
        Step("optimizer", "optimizer", "training:optimizer", live=True, makers=("learning_rate",)),
        Step("training", "steps", "training:training", makers=_REPEATED),
    )
}
"""In the order in which one fault makes the next: of the report, and of what is to be fixed."""
_STAMPED = ("ours", "reference")

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
    oracle:   dist(a, o) <= max(factor * dist(b, o), value) with o the float64 run of the reference
              and dist relative to o, in the max or the l2 norm
    band:     dist(a, o) <= bias + max(value, factor * dist(b, o), noise), noise and factor: see
              `align.judge.noise_band`

    Args:
        kind: one of KINDS.
        value: the number above, finite and >= 0; below 1 unless absolute or exact.
        why: the reason for this number, one sentence; never empty.
        norm: "max" or "l2" (scaled, oracle and band only).
        factor: oracle and band only, > 0: how many times PyTorch's own distance is allowed.
        floor: relative only, in [0, 1).
        bias: band only, in [0, 1): a derived difference of the sides beside rounding.

    Raises:
        ValueError: a combination that means nothing or admits anything.

    Source: specs.md D.5.
    """

    kind: str
    value: float
    why: str
    norm: str = "max"
    factor: float | None = None
    floor: float | None = None
    bias: float = 0.0

    def __post_init__(self) -> None:
        wrong = "; ".join(self._faults())
        if wrong:
            raise ValueError(f"Tolerance: got {wrong}")

    def _faults(self) -> Iterator[str]:
        kind, value, norm, factor, floor = self.kind, self.value, self.norm, self.factor, self.floor
        by_oracle = kind in JUDGED_BY_ORACLE
        if kind not in KINDS:
            yield f"kind {kind!r}, expected one of {', '.join(KINDS)}"
        if not 0 <= value < math.inf:
            yield f"value {value!r}, expected a finite number >= 0"
        if kind == "exact" and value != 0:
            yield f"value {value!r}, expected 0 for kind exact"
        if kind not in ("absolute", "exact") and not value < 1:  # NaN is not
            yield f"value {value!r} for kind {kind}, which admits a tensor of zeros: expected < 1"
        if not self.why.strip():
            yield "an empty why: say where the number comes from"
        if norm != "max" and not (norm == "l2" and (kind == "scaled" or by_oracle)):
            yield f"norm {norm!r} for kind {kind}: max, or l2 with scaled, oracle, band"
        left_out = factor is None and kind != "oracle"
        if not left_out and not (by_oracle and factor is not None and 0 < factor < math.inf):
            yield f"factor {factor!r} for kind {kind}: oracle needs one > 0, band may have one"
        if floor is not None and not (kind == "relative" and 0 <= floor < 1):
            yield f"floor {floor!r} for kind {kind}: in [0, 1), only for relative"
        if self.bias != 0 and not (kind == "band" and 0 < self.bias < 1):
            yield f"bias {self.bias!r} for kind {kind}: in [0, 1), only for band"

    @property
    def lowest_bound(self) -> float:
        """What is allowed at least: `value` and its bias."""
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


@dataclass(frozen=True)
class Comparison:
    """One array against another, judged.

    Args:
        name: tap, parameter or quantity.
        passed: within the tolerance; never true with worst > bound, NaN, or a reason.
        worst: the judged distance, in units of `scale` (NaN or infinite when not measurable).
        bound: what `worst` may be at most, in the same units.
        scale: what the absolute difference was divided by (1 for absolute and exact).
        max_abs: the largest absolute difference.
        tolerance: the rule applied.
        position: index of the worst element, None when no element can be named.
        ours: Paddle's value there.
        reference: the value it was judged against there (PyTorch's; kind oracle: the float64 one).
        reason: why it failed, in plain words; empty when passed.
        peer: PyTorch float32's own distance from the float64 oracle, in units of `scale`.
        hint: what the difference looks like, empty when nothing was recognised.
        unit: what `worst` is a share of: "scale" (largest value), "L2 norm", "zero_scale",
            "element", or "" for an absolute difference.
    """

    name: str
    passed: bool
    worst: float
    bound: float
    scale: float
    max_abs: float
    tolerance: Tolerance
    position: tuple[int, ...] | None = None
    ours: float | None = None
    reference: float | None = None
    reason: str = ""
    peer: float | None = None
    hint: str = ""
    unit: str = "scale"

    def __post_init__(self) -> None:
        if self.passed and (self.reason or not self.worst <= self.bound):
            raise ValueError(
                f"comparison {self.name!r} claims to pass with worst {self.worst}, bound "
                f"{self.bound} and reason {self.reason!r}: expected worst <= bound and no reason"
            )
        if not self.passed and not self.reason:
            raise ValueError(f"comparison {self.name!r} fails without a reason: say what is wrong")

    @classmethod
    def stated(
        cls, name: str, tolerance: Tolerance, reason: str, worst: float = math.inf, **more: Any
    ) -> Comparison:
        """One that fails for a reason that was stated, not measured."""
        return cls(
            name=name,
            passed=False,
            worst=worst,
            bound=tolerance.lowest_bound,
            scale=1.0,
            max_abs=worst,
            tolerance=tolerance,
            reason=reason,
            **more,
        )

    @property
    def severity(self) -> float:
        """worst / bound: above 1 when out of tolerance, infinite when nothing could be measured."""
        if math.isnan(self.worst) or (not self.passed and self.worst <= self.bound):
            return math.inf
        if self.bound == 0:
            return 0.0 if self.worst == 0 else math.inf
        return self.worst / self.bound

    def to_json(self) -> dict[str, Any]:
        """The keys name, worst, bound, passed, position, ours, reference, reason, and the rest."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tolerance"}
        return json_ready({**values, "kind": self.tolerance.kind, "norm": self.tolerance.norm})


@dataclass(frozen=True)
class ControlResult:
    """A planted fault: did the step's own comparison fail (`caught`), and where (`located`).

    One that is `hidden` is less than float32 rounds there; it does not fail the step.
    """

    name: str
    caught: bool
    detail: str
    located: str = ""
    hidden: bool = False


@dataclass
class StepResult:
    """One step of one case in one dtype.

    Args:
        step: one of STEPS.
        dtype: one of `DTYPES`; None where the dtype does not matter.
        comparisons: in execution order of the reference; gradients from the loss back.
        controls: the faults planted in this run.
        series: curves to plot, quantity -> {"paddle": [...], "pytorch": [...]}.
        stamps: {"ours": {"framework": "paddle", ...}, "reference": {"framework": "torch", ...}},
            written by the code that ran each side.
        framework_free: the step compares no framework (tokenizers): stamps are not asked for.

    Raises:
        ValueError: unknown step or dtype.
    """

    case: str
    step: str
    dtype: str | None
    comparisons: list[Comparison] = field(default_factory=list)
    controls: list[ControlResult] = field(default_factory=list)
    seconds: float = 0.0
    note: str = ""
    series: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    stamps: dict[str, dict[str, Any]] = field(default_factory=dict)
    framework_free: bool = False

    def __post_init__(self) -> None:
        if self.step not in STEPS:
            raise ValueError(f"step {self.step!r}: expected one of {', '.join(STEPS)}")
        if self.dtype not in (*DTYPES, None):
            raise ValueError(f"dtype {self.dtype!r}: expected one of {(*DTYPES, None)}")

    @property
    def problems(self) -> list[str]:
        """What beside failed comparisons keeps this result from passing, in plain words."""
        problems = []
        if not self.comparisons:
            problems.append("nothing was compared")
        if not self.controls:
            problems.append("no negative control ran")
        missed = [c for c in self.controls if not (c.caught or c.hidden)]
        problems += [f"control not caught: {c.name} ({c.detail})" for c in missed]
        if self.framework_free:
            return problems
        names = {side: self.stamps.get(side, {}).get("framework") for side in _STAMPED}
        missing = [side for side, name in names.items() if not name]
        if missing:
            problems.append(f"no framework stamp on side: {', '.join(missing)}")
        elif names["ours"].casefold() == names["reference"].casefold():
            problems.append(f"both sides were computed by {names['ours']}: nothing is proved")
        return problems

    @property
    def failures(self) -> list[Comparison]:
        """The failed comparisons, in execution order."""
        return [c for c in self.comparisons if not c.passed]

    @property
    def passed(self) -> bool:
        """At least one comparison and control, all passed and caught, two frameworks proved."""
        return not self.failures and not self.problems

    @property
    def first_failure(self) -> Comparison | None:
        """The first divergence in the order of `comparisons`."""
        return next(iter(self.failures), None)

    @property
    def worst_comparison(self) -> Comparison | None:
        """The comparison nearest to its bound or farthest beyond it; the first of equals."""
        return max(self.comparisons, key=lambda c: c.severity, default=None)

    @property
    def worst(self) -> float:
        """The judged distance of `worst_comparison`; NaN when nothing was compared."""
        return math.nan if self.worst_comparison is None else self.worst_comparison.worst

    @property
    def tolerance(self) -> float:
        """What `worst` may be at most, in the same units; NaN when nothing was compared."""
        return math.nan if self.worst_comparison is None else self.worst_comparison.bound

    @property
    def position(self) -> dict[str, Any] | None:
        """Where the worst element is: {"name": tensor, "index": [..] or None}."""
        worst = self.worst_comparison
        if worst is None:
            return None
        index = None if worst.position is None else list(worst.position)
        return {"name": worst.name, "index": index}

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form; `worst` <= `tolerance` says whether the comparisons passed."""
        first = self.first_failure
        rules = dict.fromkeys(c.tolerance for c in self.comparisons)
        names = ("case", "step", "dtype", "passed", "worst", "position", "tolerance", "problems")
        names += ("seconds", "note", "stamps", "framework_free")
        return json_ready(
            {
                **{name: getattr(self, name) for name in names},
                "why": "; ".join(f"{rule.describe()}: {rule.why}" for rule in rules),
                "controls": [vars(c) for c in self.controls],
                "first_divergence": None if first is None else first.name,
                "comparisons": [c.to_json() for c in self.comparisons],
            }
        )


@dataclass(frozen=True)
class Divergence:
    """A place where Paddle departs from PyTorch.

    Attributes:
        name: the first tensor out of tolerance (a tap in Paddle's names, or a gradient).
        place: what to fix, in Paddle's names: a layer, a tensor ("weights", "optimizer"), a key of
            the batch ("data"), "schedule", "optimizer", or "loss" when only the loss differs.
        cause: the likely cause, "" when no formula fits.
        source: class, file and line of the layer's forward.
        follows: the step whose difference makes this one; "" when this place is to be fixed.
    """

    name: str
    place: str
    step: str
    dtype: str
    reason: str
    cause: str = ""
    source: str = ""
    follows: str = ""

    @property
    def order(self) -> tuple[bool, bool, int]:
        """What sorts findings: causes, then what may be no fault of the port, then what follows."""
        place = list(STEPS).index(self.step)
        return bool(self.follows), "no fault of the port" in self.cause, place

    def after(self, step: str, place: str = "") -> Divergence:
        """Return this as a consequence of another step's difference, at its place if given."""
        cause = f"follows from the difference in the step {step!r}: fix that first"
        place = place or self.place
        return dataclasses.replace(self, place=place, cause=cause, source="", follows=step)

    @property
    def heading(self) -> str:
        """Place, step and precision: "encoder.norm (forward, float64)"."""
        step = ", ".join(filter(None, [self.step.replace("_", " "), self.dtype]))
        return f"{self.place} ({step})"

    @property
    def shown_cause(self) -> str:
        """The cause for a reader: a count of wrong elements is none."""
        is_count = re.match(r"[\d,]+ of [\d,]+ elements are out of tolerance", self.cause)
        return f"no cause found; {self.cause}" if is_count else self.cause

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What a reader sees below the heading: names and texts."""
        reason = self.reason.removeprefix("differs ")
        rows = [("cause", self.shown_cause), ("differs at", f"{self.name}: {reason}")]
        return [(name, text) for name, text in (*rows, ("code", self.source)) if text]

    def __str__(self) -> str:
        return "\n".join([self.heading, *(f"  {name}: {text}" for name, text in self.rows)])

    def to_json(self) -> dict[str, Any]:
        """All attributes."""
        return json_ready(vars(self))
