"""Why two optimizers differ: what differs is exchanged in Paddle's, and the steps made again.

Options are compared by name; members, rates and decays by parameter; what hooks do to gradients by
what is left of them after a step. What no exchange explains is a guess, and begins with "perhaps".

Legend: g = gradient of the backward pass, e = gradient after the hooks of the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from align.explain.experiment import both, fewest, number, options_in_words, scale
from align.frameworks import on_paddle, on_torch
from align.frameworks import optimizer_edits_paddle as paddles
from align.frameworks.object_options import differing, options
from align.judge.update_judging import SMALL_STEP, SideTrace, UpdateJudge
from align.pair.update_sides import Change, UpdateSides
from sot_paddle.config import some

TRIALS = 12
ALIKE = 1e-3  # factors this close are equal
FAMILY = {"AdamW": "Adam"}
"""Paddle's class -> the one with the same rule but for the decay."""
ROOTS: Mapping[str, str] = {
    "RMSProp": (
        "perhaps no fault of the port: epsilon's place in the square root: Paddle inside, PyTorch "
        "outside; compare with an epsilon of 1e-30 on both sides"
    ),
    "Adamax": (
        "perhaps no fault of the port: epsilon's place: Paddle adds it to the decayed norm, "
        "PyTorch to the size of the gradient; compare with an epsilon of 1e-30 on both sides"
    ),
}
"""PADDLE: rules that differ from PyTorch's with equal options."""
FORMS = ("decoupled", "L2")
"""A decay straight from the weight (AdamW), and one added to the gradient (Adam)."""


@dataclass(frozen=True)
class Cause:
    """One thing that differs.

    Attributes:
        text: a sentence with both values.
        names: Paddle's parameters that it is about.
        among: those that it could be about; where it is about them all, no single one is wrong.
        change: makes Paddle's optimizer like PyTorch's; None where that is not tried.
        option: (name, Paddle's value, PyTorch's) of an option.
    """

    text: str
    names: tuple[str, ...]
    among: tuple[str, ...] = ()
    change: Change | None = None
    option: tuple[str, Any, Any] | None = None

    @property
    def place(self) -> str:
        """The first parameter, where others that it could be about are right; else "optimizer"."""
        return self.names[0] if set(self.among) - set(self.names) else "optimizer"


def explain(
    sides: UpdateSides, ours: SideTrace, judge: UpdateJudge, wrong: Sequence[str]
) -> list[Cause]:
    """Find what has to be exchanged before the optimizer's judge passes, or guess.

    Args:
        sides: makes Paddle's steps again under changes.
        ours: Paddle's steps as they are.
        judge: with PyTorch's.
        wrong: Paddle's names of the parameters that were out of tolerance, in the model's order.
    """
    differences = _Differences(sides, ours, judge.reference, tuple(wrong))
    causes = list(differences.all())
    if not causes and differences.kind in ROOTS:
        return [Cause(ROOTS[differences.kind], tuple(wrong), tuple(wrong))]
    needed = fewest(
        [cause for cause in causes if cause.change],
        lambda chosen: sides.passes(tuple(cause.change for cause in chosen), judge),
        TRIALS,
    )
    title, ending = ("", "; with PyTorch's the step agrees") if needed else ("perhaps ", "")
    shown = _in_one_sentence(needed or causes)
    return [replace(cause, text=f"{title}{cause.text}{ending}") for cause in shown]


def _in_one_sentence(causes: Sequence[Cause]) -> list[Cause]:
    """Causes with those that are options in one sentence."""
    with_options = [c for c in causes if c.option is not None]
    rest = [c for c in causes if c.option is None]
    if not with_options:
        return rest
    text = options_in_words([c.option for c in with_options])
    return [*rest, replace(with_options[0], text=text)]


class _Differences:
    """Reads both optimizers and their steps; the arguments are those of `explain`."""

    def __init__(
        self, sides: UpdateSides, ours: SideTrace, reference: SideTrace, wrong: tuple[str, ...]
    ) -> None:
        self._ours, self._reference, self._wrong = ours, reference, wrong
        torch_optimizer, self._paddle = sides.optimizers()
        self._model, self._options = sides.model, options(*torch_optimizer.param_groups)
        decays = on_torch.decays_of(torch_optimizer, sides.module)
        self._decays = {}
        for torch_name, decay in decays.items():
            self._decays |= dict.fromkeys(sides.paddle_names(torch_name), decay)
        name = on_torch.stock_port(torch_optimizer)
        self.kind, paddle_kind = FAMILY.get(name, name), on_paddle.kind_of(self._paddle)
        is_same = FAMILY.get(paddle_kind, paddle_kind) == self.kind
        self._other_kind = "" if is_same or "" in (name, paddle_kind) else paddle_kind

    def all(self) -> Iterator[Cause]:
        """Every difference; that of gradients drops hooks, so that of decay, a hook, comes last."""
        yield from self._members()
        if self._other_kind:
            yield self._of_all(f"another optimizer: {both(self._other_kind, self.kind)}", None)
            return
        yield from self._named_options()
        yield from self._rates()
        yield from self._gradients()
        yield from self._decay()

    def _of_all(self, text: str, change: Change | None, option: Any = None) -> Cause:
        """About all parameters that are wrong."""
        return Cause(text, self._wrong, (), change, option)

    def _members(self) -> Iterator[Cause]:
        traces = self._ours.main, self._reference.main
        in_paddle, in_torch = (
            {n for n, trace_of_n in trace.items() if trace_of_n.is_member} for trace in traces
        )
        for odd, without, other in (
            (in_torch - in_paddle, "Paddle's", "PyTorch's"),
            (in_paddle - in_torch, "PyTorch's", "Paddle's"),
        ):
            names = tuple(n for n in self._ours.main if n in odd)
            text = f"not in {without} optimizer: {some(names)}; {other} updates them"
            if names:
                change = partial(paddles.put_members, names=in_torch)
                yield Cause(text, names, tuple(self._ours.main), change)

    def _named_options(self) -> Iterator[Cause]:
        ours = paddles.options_of(self._paddle)
        for name in differing(ours, self._options):
            if name != "weight_decay":  # compared by parameter
                option = name, ours[name].value, self._options[name].value
                change = partial(_put_option, name, option[2])
                yield self._of_all(options_in_words([option]), change, option)

    def _rates(self) -> Iterator[Cause]:
        by_numbers: dict[str, dict[str, float]] = {}
        for name, trace in self._ours.main.items():
            a, b = np.asarray(trace.rates), np.asarray(self._reference.main[name].rates)
            if not (np.isnan([*a, *b]).any() or np.allclose(a, b, 1e-9, 0)):
                at = int(np.argmax(np.abs(a - b)))
                ratio = f"{a[at] / b[at]:.6g} x" if b[at] else "not 0, as"
                text = f"{both(a[at], b[at])} ({ratio} PyTorch's)"
                by_numbers.setdefault(text, {})[name] = b[at] / a[at] if a[at] else 1.0
        everyone = tuple(n for n, trace in self._ours.main.items() if trace.is_member)
        for numbers, factors in by_numbers.items():
            who = "" if len(factors) == len(everyone) else f" of {some(tuple(factors))}"
            text = f"the learning rate applied to the update{who}: {numbers}"
            change = partial(paddles.put_factors, factors=factors)
            yield Cause(text, tuple(factors), everyone, change)

    def _gradients(self) -> Iterator[Cause]:
        clipping = paddles.clipping_of(self._paddle)
        a = Treatment(*clipping) if clipping else treatment_of(self._ours)
        b = treatment_of(self._reference)
        if a is None or b is None or str(a) == str(b):
            return
        text = treatments_in_words(a, b)
        if {a.kind, b.kind} <= {"none", "scaled"}:
            scaled = Treatment("scaled", b.limit / a.limit).apply
            yield self._of_all(text, partial(paddles.put_gradients, treat=scaled, alone=False))
        yield self._of_all(text, partial(paddles.put_gradients, treat=b.apply, alone=True))

    def _decay(self) -> Iterator[Cause]:
        paddle_decays, torch_decays = paddles.decays_of(self._paddle, self._model), self._decays
        pairs = {n: (paddle_decays[n], torch_decays[n]) for n in paddle_decays if n in torch_decays}
        odd = {n: (a, b) for n, (a, b) in pairs.items() if not np.allclose(a, b, 1e-6, 0)}
        if odd:
            among = tuple(self._ours.main)
            if all(any(a) == any(b) for a, b in odd.values()):  # on both sides the same ones decay
                among = tuple(n for n, (_, b) in pairs.items() if any(b))
            change = partial(paddles.put_decays, decays=torch_decays)
            yield Cause(_decays_in_words(odd), tuple(odd), among, change)


def _put_option(name: str, value: Any, optimizer: Any, model: Any) -> None:
    paddles.options_of(optimizer)[name].put(value)


def _decays_in_words(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """How decays of parameters differ, name -> (Paddle's, PyTorch's): set, form, coefficient."""
    parts = []
    for who, at in (("Paddle", 0), ("PyTorch", 1)):
        names = [n for n, pair in pairs.items() if any(pair[at]) and not any(pair[1 - at])]
        if names:
            coefficient = number(max(pairs[names[0]][at]))
            parts.append(f"decays in {who} only: {some(names)} (coefficient {coefficient})")
    if parts:
        return f"decay set: {'; '.join(parts)}"
    a, b = next(iter(pairs.values()))
    forms = [" and ".join(f for f, c in zip(FORMS, side, strict=True) if c) for side in (a, b)]
    parts = [] if forms[0] == forms[1] else [f"{forms[0]} instead of {forms[1]} decay"]
    if not (parts and np.isclose(sum(a), sum(b), 1e-6, 0)):
        parts.append(f"weight decay coefficient: {both(sum(a), sum(b))}")
    return "; ".join(parts)


@dataclass(frozen=True)
class Treatment:
    """One thing done to gradients between the backward pass and the update.

    Attributes:
        kind: "none", "scaled", "value", "global norm", "norm of each tensor"; of Paddle's optimizer
            with groups also "norm of each group", which is not applied here.
        limit: the largest value or norm; of "scaled" the factor.
    """

    kind: str = "none"
    limit: float = 1.0

    def apply(self, gradients: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Treat whole gradients."""
        norms = {n: float(np.linalg.norm(g.astype(np.float64))) for n, g in gradients.items()}
        if self.kind == "global norm":
            norms = dict.fromkeys(norms, math.hypot(*norms.values()))
        return {n: self.treat(g, norms[n]) for n, g in gradients.items()}

    def treat(self, gradient: np.ndarray, norm: float) -> np.ndarray:
        """Treat one gradient, of which the norm is known that it may be clipped by."""
        if self.kind == "value":
            return np.clip(gradient, -self.limit, self.limit)
        clipped = self.kind not in ("none", "scaled")
        return gradient * (self.limit / max(self.limit, norm) if clipped else self.limit)

    def __str__(self) -> str:
        if self.kind == "none":
            return "leaves gradients as they are"
        if self.kind == "scaled":
            return f"scales gradients by {number(self.limit)}"
        return f"clips the {self.kind} at {_rounded(self.limit)}"


def _rounded(value: float) -> str:
    """A measured number without the digits that measuring leaves: five are good."""
    return number(float(f"{value:.5g}"))


def treatments_in_words(a: Treatment, b: Treatment) -> str:
    """Say what differs between Paddle's and PyTorch's treatment of gradients."""
    if a.kind == b.kind and a.limit != b.limit and a.kind != "scaled":
        return f"clipping limit ({a.kind}): Paddle {_rounded(a.limit)}, PyTorch {_rounded(b.limit)}"
    title = "before the update"
    if "none" in (a.kind, b.kind) and "scaled" not in (a.kind, b.kind):
        title = "clipping missing" if a.kind == "none" else "clipping in Paddle only"
    return f"{title}: Paddle {a}, PyTorch {b}"


class _Hooked(NamedTuple):
    """One gradient of a step: as it was given (g), after the hooks (e)."""

    name: str
    step: int
    g: np.ndarray
    e: np.ndarray


def treatment_of(side: SideTrace) -> Treatment | None:
    """Read what hooks did to the gradients of one side; None when no treatment fits."""
    hooked = _hooked_gradients(side)
    if not hooked:
        return Treatment()
    least = min(hooked, key=lambda used: scale(used.e, used.g))  # clipped, if any is
    factor = scale(least.e, least.g)
    if factor <= 0:
        return None  # cleared after the step: nothing is left to read
    largest = max(float(np.abs(gradient.e).max()) for gradient in hooked)
    limits = {
        "none": 1.0,
        "scaled": factor,
        "value": largest,
        "global norm": factor * side.norms[least.step],
        "norm of each tensor": factor * side.main[least.name].norms[least.step],
    }
    for kind, limit in limits.items():
        treatment, left = Treatment(kind, limit), []
        for x in hooked:
            is_global = kind == "global norm"
            norm = side.norms[x.step] if is_global else side.main[x.name].norms[x.step]
            left.append(np.abs(treatment.treat(x.g, norm) - x.e).max() / np.abs(x.e).max())
        if max(left) <= ALIKE:
            return treatment
    return None


def _hooked_gradients(side: SideTrace) -> list[_Hooked]:
    """Gradients that say something: the small step is below every limit."""
    hooked = []
    for name, trace in side.main.items():
        for step, (g, e) in enumerate(zip(trace.gradients, trace.used, strict=False)):
            if g is not None and e is not None and g.any() and step != SMALL_STEP:
                hooked.append(_Hooked(name, step, g, e))
    return hooked
