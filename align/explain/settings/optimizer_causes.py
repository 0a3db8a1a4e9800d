"""Why two optimizers differ: what differs is exchanged in Paddle's, and the steps made again.

What no exchange explains is a guess, and begins with "perhaps".

Options are compared by name; members, rates and decays by parameter; what hooks do to gradients by
what is left of them after a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from align.explain.experiment import fewest
from align.explain.settings import exchange
from align.explain.settings import gradient_treatments as gradients
from align.explain.settings.gradient_treatments import Treatment
from align.frameworks import on_torch
from align.frameworks import optimizer_edits_paddle as paddles
from align.frameworks.object_options import differing, options
from align.judge.update_judging import SideTrace, UpdateJudge
from align.pair.update_sides import Change, UpdateSides
from sot_paddle.config import some

TRIALS = 12


def explain(
    sides: UpdateSides, ours: SideTrace, judge: UpdateJudge, wrong: Sequence[str]
) -> list[Cause]:
    """What has to be exchanged before the optimizer's judge passes; guesses where nothing does.

    Args:
        sides: makes Paddle's steps again under changes.
        ours: Paddle's steps as they are.
        judge: with PyTorch's.
        wrong: Paddle's names of the parameters that were out of tolerance, in the model's order.
    """
    differences = Differences(sides, ours, judge.reference, tuple(wrong))
    found = list(differences.all())
    needed = fewest(
        found, lambda some: sides.passes(tuple(one.change for one in some), judge), TRIALS
    )
    if needed:
        told = _told(needed)
        return [replace(c, text=f"{c.text}; with PyTorch's the step agrees") for c in told]
    if not found and differences.kind in ROOTS:
        text, mine, theirs = ROOTS[differences.kind]
        if sides.agree_under(partial(_put_options, mine), partial(_put_groups, theirs)):
            shown = ", ".join(f"{name}={value:g}" for name, value in mine.items())
            text = f"{text}: no fault of the port; with {shown} on both sides the steps agree"
            return [Cause(text, tuple(wrong), tuple(wrong))]
        found = [Cause(text, tuple(wrong), tuple(wrong))]
    return [replace(c, text=f"perhaps {c.text}") for c in _told(found)]


def _told(causes: Sequence[Cause]) -> list[Cause]:
    """Causes with those that are options in one sentence."""
    options = [one for one in causes if one.option is not None]
    rest = [one for one in causes if one.option is None]
    if not options:
        return rest
    text = exchange.sentence([one.option for one in options])
    return [*rest, replace(options[0], text=text)]


FAMILY = {"AdamW": "Adam", "RMSprop": "RMSProp"}
"""PyTorch's or Paddle's class -> the class of Paddle with the same rule but for the decay."""
TINY = 1e-30  # an epsilon that changes nothing
ROOTS: Mapping[str, tuple[str, Mapping[str, float], Mapping[str, Any]]] = {
    "RMSProp": (
        "epsilon's place in the square root: Paddle inside, PyTorch outside",
        {"epsilon": TINY},
        {"eps": TINY},
    ),
    "Adamax": (
        "epsilon's place: Paddle adds it to the decayed norm, PyTorch to the size of the gradient "
        "(and Paddle holds the betas in float32)",
        {"epsilon": TINY, "beta1": 0.875, "beta2": 0.96875},
        {"eps": TINY, "betas": (0.875, 0.96875)},
    ),
}
"""PADDLE: a rule that differs from PyTorch's with equal options; options of Paddle and of PyTorch
with which it does not."""
FORMS = ("decoupled", "L2")
"""A decay straight from the weight (AdamW), and one added to the gradient (Adam)."""


@dataclass(frozen=True)
class Cause:
    """One thing that differs.

    Attributes:
        text: a sentence with both values.
        names: Paddle's parameters that it is about.
        among: those that could have been hit; all of them hit means that no single one is wrong.
        change: makes Paddle's optimizer like PyTorch's.
        option: (name, Paddle's value, PyTorch's) of an option.
    """

    text: str
    names: tuple[str, ...]
    among: tuple[str, ...] = ()
    change: Change | None = None
    option: tuple[str, Any, Any] | None = None

    @property
    def place(self) -> str:
        """The first parameter that is wrong in a way that others are not, else "optimizer"."""
        return self.names[0] if set(self.among) - set(self.names) else "optimizer"


class Differences:
    """Reads both optimizers.

    Args:
        sides: of the pair.
        ours: Paddle's steps.
        reference: PyTorch's.
        wrong: Paddle's names of the parameters that were out of tolerance.
    """

    def __init__(
        self, sides: UpdateSides, ours: SideTrace, reference: SideTrace, wrong: tuple[str, ...]
    ) -> None:
        self._ours, self._reference, self._wrong = ours, reference, wrong
        self._theirs, self._mine = sides.optimizers()
        self._model, self._options = sides.model, options(*self._theirs.param_groups)
        decays = on_torch.decays_of(self._theirs, sides.module)
        self._decays = {t: decay for n, decay in decays.items() for t in sides.paddle_names(n)}
        name = on_torch.kind_of(self._theirs)
        if name == "SGD" and self._theirs.param_groups[0]["momentum"]:
            name = "Momentum"
        self.kind, own = FAMILY.get(name, name), paddles.kind_of(self._mine)
        self._other_kind = "" if "" in (name, own) or FAMILY.get(own, own) == self.kind else own

    def all(self) -> Iterator[Cause]:
        """In the order in which the changes are applied: a change of gradients drops hooks."""
        yield from self._members()
        if self._other_kind:
            kinds = exchange.both(self._other_kind, self.kind)
            yield self._of_all(f"another optimizer: {kinds}", self._another)
        else:
            yield from self._named_options()
        yield from self._rates()
        yield from self._dampening()
        yield from self._gradients()
        yield from self._decay()

    def _of_all(self, text: str, change: Change, option: Any = None) -> Cause:
        """About all parameters that are wrong."""
        return Cause(text, self._wrong, (), change, option)

    def _members(self) -> Iterator[Cause]:
        traces = self._ours.main, self._reference.main
        ours, theirs = ({n for n, one in held.items() if one.held} for held in traces)
        for odd, without, other in (
            (theirs - ours, "Paddle's", "PyTorch's"),
            (ours - theirs, "PyTorch's", "Paddle's"),
        ):
            names = tuple(n for n in self._ours.main if n in odd)
            text = f"not in {without} optimizer: {some(names)}; {other} updates them"
            if names:
                change = partial(paddles.put_members, names=theirs)
                yield Cause(text, names, tuple(self._ours.main), change)

    def _named_options(self) -> Iterator[Cause]:
        mine = paddles.options_of(self._mine)
        for name in differing(mine, self._options):
            if name != "weight_decay":  # compared by parameter
                option = name, mine[name].value, self._options[name].value
                change = partial(_put_options, {name: option[2]})
                yield self._of_all(exchange.sentence([option]), change, option)

    def _another(self, optimizer: Any, model: Any) -> Any:
        """PyTorch's class in place of Paddle's."""
        made = paddles.another(optimizer, self.kind)
        if made is None:
            return None
        for name, option in paddles.options_of(made).items():
            if name in self._options and name != "weight_decay":
                option.put(self._options[name].value)
        paddles.put_decays(made, model, self._decays)
        return made

    def _rates(self) -> Iterator[Cause]:
        by_numbers: dict[str, dict[str, float]] = {}
        for name, one in self._ours.main.items():
            a, b = np.asarray(one.rates), np.asarray(self._reference.main[name].rates)
            if not (np.isnan([*a, *b]).any() or np.allclose(a, b, 1e-9, 0)):
                at = int(np.argmax(np.abs(a - b)))
                ratio = f"{a[at] / b[at]:.6g} x" if b[at] else "not 0, as"
                text = f"{exchange.both(a[at], b[at])} ({ratio} PyTorch's)"
                by_numbers.setdefault(text, {})[name] = b[at] / a[at] if a[at] else 1.0
        everyone = tuple(n for n, one in self._ours.main.items() if one.held)
        for numbers, factors in by_numbers.items():
            who = "" if len(factors) == len(everyone) else f" of {some(tuple(factors))}"
            text = f"the learning rate applied to the update{who}: {numbers}"
            change = partial(paddles.put_factors, factors=factors)
            yield Cause(text, tuple(factors), everyone, change)

    def _dampening(self) -> Iterator[Cause]:
        held = self._options.get("dampening")
        if held is not None and held.value and self._options["momentum"].value:
            text = f"dampening: PyTorch {exchange.number(held.value)}, none in Paddle"
            yield self._of_all(text, partial(paddles.put_dampening, dampening=held.value))

    def _gradients(self) -> Iterator[Cause]:
        read, b = (gradients.treatment_of(s) for s in (self._ours, self._reference))
        told = paddles.clipping_of(self._mine)
        a = Treatment(*told) if told else read
        alone = None if b is None else partial(paddles.put_gradients, treat=b.apply, alone=True)
        names = self._unused()
        if names:
            text = (
                f"moves without a gradient in Paddle: {some(names)} had none in a step: "
                "clear_grad() leaves zeros, which still move a parameter; use "
                "clear_grad(set_to_zero=False)"
            )
            kept = partial(paddles.put_gradients, treat=dict, alone=False)
            for change in filter(None, (kept, alone)):
                yield Cause(text, names, tuple(self._ours.main), change)
        if a is None or b is None:
            return
        if str(a) != str(b):
            text = gradients.sentence(a, b)
            if {a.kind, b.kind} <= {"none", "scaled"} and not a.weight:
                scale = Treatment("scaled", b.limit / a.limit).apply
                yield self._of_all(text, partial(paddles.put_gradients, treat=scale, alone=False))
            yield self._of_all(text, alone)
        elif "step" in vars(self._mine):
            text = "double decay: Paddle's before_step changes the weights themselves"
            yield self._of_all(text, alone)

    def _unused(self) -> tuple[str, ...]:
        """Parameters that move in a step in which they have no gradient, on one side only."""
        return tuple(
            name
            for name, one in self._ours.main.items()
            if one.held
            if any(
                g is None and one.update(i).any() and not self._reference.main[name].update(i).any()
                for i, g in enumerate(one.gradients)
            )
        )

    def _decay(self) -> Iterator[Cause]:
        mine, theirs = paddles.decays_of(self._mine, self._model), self._decays
        both = {n: (mine[n], theirs[n]) for n in mine if n in theirs}
        odd = {n: (a, b) for n, (a, b) in both.items() if not np.allclose(a, b, 1e-6, 0)}
        if odd:
            same_set = all(any(a) == any(b) for a, b in odd.values())
            hit = {n for n, (_, b) in both.items() if any(b)} if same_set else set(self._ours.main)
            change = partial(paddles.put_decays, decays=theirs)
            yield Cause(decay_sentence(odd), tuple(odd), tuple(hit), change)


def _put_options(values: Mapping[str, Any], optimizer: Any, model: Any) -> None:
    held = paddles.options_of(optimizer)
    for name, value in values.items():
        held[name].put(value)


def _put_groups(values: Mapping[str, Any], optimizer: Any) -> None:
    for group in optimizer.param_groups:
        group.update(values)


def decay_sentence(pairs: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """How decays of parameters differ, name -> (Paddle's, PyTorch's): set, form, coefficient."""
    parts = []
    for who, at in (("Paddle", 0), ("PyTorch", 1)):
        names = [n for n, pair in pairs.items() if any(pair[at]) and not any(pair[1 - at])]
        if names:
            number = exchange.number(max(pairs[names[0]][at]))
            parts.append(f"decays in {who} only: {some(names)} (coefficient {number})")
    if parts:
        return f"decay set: {'; '.join(parts)}"
    a, b = next(iter(pairs.values()))
    forms = [" and ".join(f for f, c in zip(FORMS, side, strict=True) if c) for side in (a, b)]
    parts = [] if forms[0] == forms[1] else [f"{forms[0]} instead of {forms[1]} decay"]
    if not (parts and np.isclose(sum(a), sum(b), 1e-6, 0)):
        parts.append(f"weight decay coefficient: {exchange.both(sum(a), sum(b))}")
    return "; ".join(parts)
