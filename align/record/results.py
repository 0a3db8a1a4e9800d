"""Records of an alignment run: tolerance, comparison, control, step and report.

Plain data without a framework. Two rules live here because every writer of a report depends on
them: a result passes only when it compared something, caught every control and can prove who
computed each side; and its JSON is strict.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from align.record.tolerance import Tolerance
from sot_paddle.strict_json import dumps, json_ready

STEPS = (
    "weights",
    "built",
    "data",
    "forward",
    "metric",
    "loss",
    "learning_rate",
    "backward",
    "optimizer",
    "training",
    "distributed",
    "coverage",
)
REPAIR_ORDER = (
    "weights",
    "data",
    "forward",
    "loss",
    "metric",
    "learning_rate",
    "backward",
    "optimizer",
    "training",
    "distributed",
)
"""Steps in the order in which one fault makes the next: the first finding is the one to fix."""
LOW_PRECISION = ("bfloat16", "float16")
DTYPES = ("float64", "float32", *LOW_PRECISION, None)


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
        position: index of the worst element, None when no element can be named.
        ours: Paddle's value there.
        reference: the value it was judged against there (PyTorch's; kind oracle: the float64 one).
        tolerance: the rule applied.
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
    position: tuple[int, ...] | None
    ours: float | None
    reference: float | None
    tolerance: Tolerance
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
        held = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tolerance"}
        return json_ready({**held, "kind": self.tolerance.kind, "norm": self.tolerance.norm})


@dataclass(frozen=True)
class ControlResult:
    """A planted fault: did the step's own comparison fail (`caught`), and where (`located`)."""

    name: str
    caught: bool
    detail: str
    located: str = ""


@dataclass
class StepResult:
    """One step of one case in one dtype.

    Args:
        case: name of the case.
        step: one of STEPS.
        dtype: one of DTYPES; None where the dtype does not matter.
        comparisons: in execution order of the reference; gradients from the loss back.
        controls: the faults planted in this run.
        seconds: wall time.
        note: one line for the reader.
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
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype {self.dtype!r}: expected one of {DTYPES}")

    @property
    def problems(self) -> list[str]:
        """What beside failed comparisons keeps this result from passing, in plain words."""
        found = []
        if not self.comparisons:
            found.append("nothing was compared")
        if not self.controls:
            found.append("no negative control ran")
        missed = [c for c in self.controls if not c.caught]
        found += [f"control not caught: {c.name} ({c.detail})" for c in missed]
        if not self.framework_free:
            found += _stamp_problems(self.stamps)
        return found

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
        found = self.worst_comparison
        return math.nan if found is None else found.worst

    @property
    def position(self) -> dict[str, Any] | None:
        """Where the worst element is: {"name": tensor, "index": [..] or None}."""
        found = self.worst_comparison
        if found is None:
            return None
        index = None if found.position is None else list(found.position)
        return {"name": found.name, "index": index}

    @property
    def tolerance(self) -> float:
        """What `worst` may be at most, in the same units; NaN when nothing was compared."""
        found = self.worst_comparison
        return math.nan if found is None else found.bound

    def to_json(self) -> dict[str, Any]:
        """The machine-readable form; `worst` <= `tolerance` says whether the comparisons passed."""
        first = self.first_failure
        rules = dict.fromkeys(c.tolerance for c in self.comparisons)
        return json_ready(
            {
                "case": self.case,
                "step": self.step,
                "dtype": self.dtype,
                "passed": self.passed,
                "worst": self.worst,
                "position": self.position,
                "tolerance": self.tolerance,
                "why": "; ".join(f"{rule.describe()}: {rule.why}" for rule in rules),
                "controls": [vars(c) for c in self.controls],
                "first_divergence": None if first is None else first.name,
                "problems": self.problems,
                "comparisons": [c.to_json() for c in self.comparisons],
                "seconds": self.seconds,
                "note": self.note,
                "stamps": self.stamps,
                "framework_free": self.framework_free,
            }
        )


@dataclass(frozen=True)
class Divergence:
    """A place where Paddle departs from PyTorch.

    Attributes:
        name: the first tensor out of tolerance (a tap in Paddle's names, or a gradient).
        place: what to fix, in Paddle's names: a layer, a tensor ("weights", "optimizer"), a key of
            the batch ("data"), "schedule", "optimizer", or "loss" when only the loss differs.
        step: one of `align.record.results.STEPS`.
        dtype: precision in which it was seen.
        reason: the measured difference.
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

    def after(self, step: str, place: str = "") -> Divergence:
        """The same as a consequence of another step's difference, at that one's place if given."""
        cause = f"follows from the difference in the step {step!r}: fix that first"
        place = place or self.place
        return dataclasses.replace(self, place=place, cause=cause, source="", follows=step)

    @property
    def heading(self) -> str:
        """Place, step and precision: "encoder.norm (forward, float64)"."""
        step = ", ".join(filter(None, [self.step.replace("_", " "), self.dtype]))
        return f"{self.place} ({step})"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What a reader sees below the heading: names and texts."""
        reason = self.reason.removeprefix("differs ")
        rows = [("cause", self.cause), ("differs at", f"{self.name}: {reason}")]
        return [(name, text) for name, text in (*rows, ("code", self.source)) if text]

    def __str__(self) -> str:
        return "\n".join([self.heading, *(f"  {name}: {text}" for name, text in self.rows)])

    def to_json(self) -> dict[str, Any]:
        """All attributes."""
        return json_ready(vars(self))


@dataclass
class Report:
    """Everything a run produced; an empty one is a failure, because nothing was proved.

    Attributes:
        environment: versions and machine.
        results: one for each case, step and dtype.
        findings: what differs, where and why; the one to fix first comes first.
        guilty: layers that are wrong on the reference's own inputs (inject mode).
        notes: what was not compared and why.
        layers: class of every compared Paddle layer by its name, empty for the project's own cases.
        certificate: summary of a sensitivity certificate that belongs to the run, or None.
        about: the pair, date, command and commits, see `align.record.provenance.rows`.
    """

    environment: dict[str, Any]
    results: list[StepResult] = field(default_factory=list)
    findings: list[Divergence] = field(default_factory=list)
    guilty: list[Divergence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)
    certificate: dict[str, Any] | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def repairs(self) -> list[Divergence]:
        """Every place to fix, once, in the order of repair: findings, and what inject mode adds."""
        found = [one for one in self.findings if not one.follows]
        places = {one.place for one in found}
        found += [one for one in self.guilty if one.place not in places]
        return sorted(found, key=lambda one: REPAIR_ORDER.index(one.step))

    @property
    def consequences(self) -> list[Divergence]:
        """Findings that another one makes."""
        return [one for one in self.findings if one.follows]

    @property
    def cases(self) -> dict[str, list[StepResult]]:
        """The results by case, in the order in which they were run."""
        found: dict[str, list[StepResult]] = {}
        for result in self.results:
            found.setdefault(result.case, []).append(result)
        return found

    @property
    def verdict(self) -> str:
        """ "pass" when there is a result and all pass, else "fail"."""
        return "pass" if self.results and all(r.passed for r in self.results) else "fail"

    @property
    def exit_code(self) -> int:
        """0 for pass, 1 for fail."""
        return 0 if self.verdict == "pass" else 1

    def to_json(self) -> dict[str, Any]:
        """The keys are those of docs/alignment.md, section "Output"."""
        return {
            "verdict": self.verdict,
            "about": json_ready(self.about),
            "environment": json_ready(self.environment),
            "findings": [one.to_json() for one in self.findings],
            "guilty": [one.to_json() for one in self.guilty],
            "notes": list(self.notes),
            "certificate": json_ready(self.certificate),
            "results": [r.to_json() for r in self.results],
        }

    def dumps(self) -> str:
        """`to_json` as text."""
        return dumps(self.to_json())


def _stamp_problems(stamps: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Why these stamps do not prove two different frameworks; empty when they do."""
    names = {side: stamps.get(side, {}).get("framework") for side in ("ours", "reference")}
    missing = [side for side, name in names.items() if not isinstance(name, str) or not name]
    if missing:
        return [f"no framework stamp on side: {', '.join(missing)}"]
    if names["ours"].casefold() == names["reference"].casefold():
        return [f"both sides were computed by {names['ours']}: nothing is proved"]
    return []


SHOWN_NAMES = 8


def some(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more
