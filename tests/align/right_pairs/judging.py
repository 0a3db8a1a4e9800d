"""One drawn pair judged by `align.compare`: the right one, and the same with one wrong option."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import align
from tests.align.right_pairs import by_hand
from tests.align.right_pairs.planted import SEEN, planted
from tests.align.right_pairs.wiring import Pair, draw_pair
from tests.align.right_pairs.wrong_options import Edit, draw_edit

SHOWN = 1e-6
"""A wrong option counts where it changes a number by more than this, of its tensor's largest."""
EXCUSE = "no fault of the port"


@dataclass
class Judged:
    """What a comparison said of a pair.

    Attributes:
        seed: of the pair.
        kind: "right", "wrong" or "power".
        said: "pass", "fail", "excused" (a fault of the framework, as the suite names it),
            "refused" (one line, as a user sees it), "crash"; "not right" where the frameworks
            differ by hand and nothing was compared; "no effect" and "nothing to edit" of a wrong
            or planted one.
        recipe: the pair in one line.
        seconds: of `align.compare`.
        details: place, cause, figures; of a wrong one what was edited and what it changes.
    """

    seed: int
    kind: str
    said: str
    recipe: str
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As a record of a JSON file."""
        return asdict(self)


def compared(right: Pair, port: Pair, dtype: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Compare the reference of one pair with the port of another.

    Returns:
        "said" as in `Judged`, "seconds", and what the outcome holds.
    """
    options: dict[str, Any] = {"dtype": dtype or port.dtype, "train": port.train}
    if left_out := port.left_out():
        options["weights"] = left_out
    if port.loss:
        options |= {"loss": port.loss.asked(), "labels": port.loss.labels(port.seed)}
    if port.optimizer:
        options |= {"optimizer": port.optimizer.asked(), "steps": port.optimizer.steps}
    began = time.perf_counter()
    try:
        outcome = align.compare(right.torch_model, port.paddle_model, right.inputs(), **options)
    except ValueError as error:
        found = {"said": "refused", "reason": str(error)[:400]}
    except by_hand.CRASHES as error:  # a fault of the suite, and counted
        found = {"said": "crash", "reason": f"{type(error).__name__}: {error}"[:400]}
    else:
        found = _found(outcome)
    return found | {"seconds": round(time.perf_counter() - began, 2)}


def _found(outcome: align.commands.steps.Outcome) -> dict[str, Any]:
    if outcome.passed:
        return {"said": "pass"}
    root = outcome.root
    cause = (root.cause or "") if root else ""
    results = [result for result in outcome.report.results if not result.passed]
    failed = [
        {"dtype": result.dtype, "step": result.step, "name": one.name, "severity": one.severity,
         "worst": one.worst, "bound": one.bound, "unit": one.unit}
        for result in results for one in result.comparisons if not one.passed
    ]  # fmt: skip
    missed = [c.name for result in results for c in result.controls if not c.caught]
    return {
        "said": "excused" if EXCUSE in cause else "fail",
        "step": root.step if root else "",
        "place": root.place if root else "",
        "cause": cause,
        "reason": root.reason if root else outcome.verdict,
        "failed": failed[:6],
        "missed_controls": missed[:6],
    }


def judge_right(seed: int, most: float = 1.0) -> Judged:
    """Draw a right pair, see by hand that it is right, compare it."""
    pair = draw_pair(seed, most)
    apart = by_hand.agreement(pair)
    if not apart.is_right:
        return Judged(seed, "right", "not right", pair.recipe(), details=asdict(apart))
    found = compared(pair, pair)
    return _judged(seed, "right", pair, found, asdict(apart))


def judge_wrong(seed: int, most: float = 1.0) -> Judged:
    """The same pair with one wrong option of the port; always in float64 too."""
    pair = draw_pair(seed, most)
    drawn = draw_edit(pair)
    if drawn is None:
        return Judged(seed, "wrong", "nothing to edit", pair.recipe())
    edit, port = drawn
    if not by_hand.agreement(pair).is_right:
        return Judged(seed, "wrong", "not right", pair.recipe())
    changed = by_hand.effect(pair, port)
    facts: dict[str, Any] = {"edit": edit.told, "effect": changed}
    if changed <= SHOWN:
        return Judged(seed, "wrong", "no effect", port.recipe(), details=facts)
    found = compared(pair, port, ("float64", "float32"))
    facts |= {"placed": is_placed(edit, found), "explained": is_explained(edit, found)}
    return _judged(seed, "wrong", port, found, facts)


def judge_power(seed: int, most: float = 1.0) -> Judged:
    """A pair with a planted fault of about 1e-4, compared in float32 alone."""
    kind, right, port = planted(seed, most)
    if not by_hand.agreement(right).is_right_in_float32:
        return Judged(seed, "power", "not right", right.recipe())
    changed = by_hand.effect(right, port)
    facts: dict[str, Any] = {"edit": kind, "effect": changed}
    if changed <= SEEN and not kind.startswith(
        "output element"
    ):  # that one has a tensor of its own
        return Judged(seed, "power", "no effect", port.recipe(), details=facts)
    return _judged(seed, "power", port, compared(right, port), facts)


def is_placed(edit: Edit, found: Mapping[str, Any]) -> bool:
    """Whether the first finding stands at what was edited.

    For a layer: at it, below it, or at what holds it or takes its output next (an inline call has
    no name of its own: the model, or the next layer). For a loss or an optimizer: in its step.
    """
    if found["said"] not in ("fail", "excused"):
        return False
    if edit.steps:
        return found["step"] in edit.steps
    place = found["place"]
    return any(place == one or place.startswith((f"{one}.", f"{one}[")) for one in edit.places)


def is_explained(edit: Edit, found: Mapping[str, Any]) -> bool:
    """Whether the cause names the option, by a word of the edit, or its wrong and right number."""
    cause = found.get("cause", "").lower()
    named = any(word in cause for word in edit.words)
    return named or (len(edit.values) == 2 and all(value in cause for value in edit.values))


def _judged(seed: int, kind: str, pair: Pair, found: dict[str, Any], facts: dict) -> Judged:
    said, seconds = found.pop("said"), found.pop("seconds")
    return Judged(seed, kind, said, pair.recipe(), seconds, {**facts, **found})
