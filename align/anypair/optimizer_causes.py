"""Why two optimizers differ: what differs is exchanged in Paddle's, and the steps made again.

Options are compared by name; members, rates and decays by parameter; what hooks do to gradients by
what is left of them after a step. What no exchange explains is a guess, and begins with "perhaps".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from align.anypair import gradient_treatments as gradients
from align.anypair import optimizer_edits_paddle as paddles
from align.anypair import settings, stepping_paddle, stepping_torch, update_formulas
from align.anypair.experiment import Edit
from align.anypair.gradient_treatments import Treatment
from align.anypair.object_options import differing, options
from align.anypair.outcome import some
from align.anypair.update_judging import Judge
from align.anypair.update_sides import Change, Sides
from align.anypair.update_trace import SideTrace

TRIALS = 12
AGREES = "; with PyTorch's the step agrees"
FAMILY = {"AdamW": "Adam", "RMSprop": "RMSProp"}
"""PyTorch's or Paddle's class -> the class of Paddle with the same rule but for the decay."""


@dataclass(frozen=True)
class Cause:
    """One thing that differs.

    Attributes:
        text: a sentence with both values.
        names: Paddle's parameters that it is about.
        among: those that could have been hit; all of them hit means that no single one is wrong.
    """

    text: str
    names: tuple[str, ...]
    among: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The first parameter that is wrong in a way that others are not, else "optimizer"."""
        return self.names[0] if set(self.among) - set(self.names) else "optimizer"


@dataclass(frozen=True)
class Exchange:
    """Something of Paddle's optimizer that may be set to PyTorch's.

    Attributes:
        cause: what is said when the step then agrees.
        change: of a fresh optimizer and its model; may return another optimizer.
        option: (name, Paddle's value, PyTorch's) of an option.
    """

    cause: Cause
    change: Change
    option: tuple[str, Any, Any] | None = None


def explain(sides: Sides, ours: SideTrace, judge: Judge, wrong: Sequence[str]) -> list[Cause]:
    """What has to be exchanged before the optimizer's judge passes.

    Args:
        sides: makes Paddle's steps again under changes.
        ours: Paddle's steps as they are.
        judge: with PyTorch's.
        wrong: Paddle's names of the parameters that were out of tolerance, in the model's order.

    Returns:
        Causes, those that explain others first; guesses when no experiment succeeds.
    """
    differences = _Differences(sides, ours, judge.reference, tuple(wrong))
    found = list(differences.exchanges())
    edits = {str(i): one for i, one in enumerate(found)}
    tried = settings.fewest(
        (),
        [Edit(key, partial(_added, one.change)) for key, one in edits.items()],
        lambda changes: sides.passes(changes, judge),
        TRIALS,
    )
    if tried:
        return _said([edits[edit.says] for edit in tried], AGREES)
    formula = update_formulas.explain(ours, judge.reference, wrong, *differences.rule())
    if formula:
        return [Cause(formula, tuple(wrong), tuple(wrong))]
    return [Cause(f"perhaps {one.text}", one.names, one.among) for one in _said(found, "")]


def _added(change: Change, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    return (*changes, change)


def _said(exchanges: Sequence[Exchange], proof: str) -> list[Cause]:
    """The causes of some exchanges; options are told in one sentence."""
    named = [one for one in exchanges if one.option is not None]
    found = [
        Cause(one.cause.text + proof, one.cause.names, one.cause.among)
        for one in exchanges
        if one.option is None
    ]
    if named:
        text = settings.sentence([one.option for one in named]) + proof
        found.append(Cause(text, named[0].cause.names, named[0].cause.among))
    return found


class _Differences:
    """Reads both optimizers and yields what differs between them."""

    def __init__(
        self, sides: Sides, ours: SideTrace, reference: SideTrace, wrong: tuple[str, ...]
    ) -> None:
        self._ours, self._reference, self._wrong = ours, reference, wrong
        self._theirs, self._mine = sides.optimizers()
        self._model, self._names = sides.model, sides.paddle_names
        self._factors = {
            target: rate
            for members, rate in zip(
                stepping_torch.groups(self._theirs, sides.module),
                stepping_torch.rates(self._theirs, sides.module),
                strict=True,
            )
            for name in members
            for target in self._names(name)
        }
        self._decays = {
            target: decay
            for name, decay in stepping_torch.decays_of(self._theirs, sides.module).items()
            for target in self._names(name)
        }

    def exchanges(self) -> Iterator[Exchange]:
        """From what explains other differences to what explains only itself.

        Changes are applied in this order: another class takes no earlier change over.
        """
        for read in (
            self._members,
            self._classes,
            self._options,
            self._rates,
            self._gradients,
            self._decay,
        ):
            yield from read()

    def rule(self) -> tuple[update_formulas.Rule | None, dict[str, tuple[float, float]]]:
        """PyTorch's update rule, None for a class that is not known, and the decays."""
        kind, held = self._their_class(), options(*self._theirs.param_groups)
        if kind not in ("SGD", "Momentum", "Adam", "RMSProp"):
            return None, self._decays
        known = {f.name for f in fields(update_formulas.Rule)}
        return update_formulas.Rule(
            kind, **{n: o.value for n, o in held.items() if n in known and o.value is not None}
        ), self._decays

    def _cause(self, text: str, names: Sequence[str] = (), every: bool = True) -> Cause:
        """About some parameters, or about all that are wrong."""
        if names:
            return Cause(text, tuple(names), tuple(self._ours.main) if every else ())
        return Cause(text, self._wrong)

    def _members(self) -> Iterator[Exchange]:
        ours, theirs = (
            {n for n, one in side.main.items() if one.held}
            for side in (self._ours, self._reference)
        )
        sides = ((theirs - ours, "Paddle's", "PyTorch's"), (ours - theirs, "PyTorch's", "Paddle's"))
        for odd, without, other in sides:
            names = [n for n in self._ours.main if n in odd]
            if names:
                text = (
                    f"not in {without} optimizer: {some(names)} (frozen, or missing in its "
                    f"parameters); {other} updates them"
                )
                change = partial(_put, paddles.put_members, theirs)
                yield Exchange(self._cause(text, names), change)

    def _options(self) -> Iterator[Exchange]:
        if not self._same_class():
            return
        mine, theirs = paddles.options_of(self._mine), options(*self._theirs.param_groups)
        for name in differing(mine, theirs):
            if name != "weight_decay":
                value = theirs[name].value
                both = name, mine[name].value, value
                cause = self._cause(settings.sentence([both]))
                yield Exchange(cause, partial(_put_option, name, value), both)

    def _decay(self) -> Iterator[Exchange]:
        mine = paddles.decays_of(self._mine, self._model)
        differ = [n for n in mine if n in self._decays and not _near(mine[n], self._decays[n])]
        if differ:
            text = decay_sentence({n: (mine[n], self._decays[n]) for n in differ})
            decayed = [n for n, held in self._decays.items() if any(held)]
            whole = set(decayed) <= set(differ) and all(any(mine[n]) for n in decayed)
            cause = Cause(text, tuple(differ), tuple(differ if whole else self._ours.main))
            yield Exchange(cause, partial(_put, paddles.put_decays, self._decays))

    def _rates(self) -> Iterator[Exchange]:
        base = stepping_paddle.base_rate(self._mine)
        factors = {n: rate / base for n, rate in self._factors.items()} if base else {}
        by_numbers: dict[str, list[str]] = {}
        for name, one in self._ours.main.items():
            a, b = np.asarray(one.rates), np.asarray(self._reference.main[name].rates)
            if one.held and self._reference.main[name].held and not np.allclose(a, b, 1e-9, 0):
                at = int(np.argmax(np.abs(a - b)))
                ratio = f"{a[at] / b[at]:.6g} x" if b[at] else "not 0, as"
                both = f"{settings.both(a[at], b[at])} ({ratio} PyTorch's)"
                by_numbers.setdefault(both, []).append(name)
        held = [n for n, one in self._ours.main.items() if one.held]
        for numbers, names in by_numbers.items():
            who = "" if len(names) == len(held) else f" of {some(names)}"
            text = f"the learning rate applied to the update{who}: {numbers}"
            own = {n: factors[n] for n in names if n in factors}
            change = partial(_put, paddles.put_factors, own)
            yield Exchange(Cause(text, tuple(names), tuple(held)), change)

    def _gradients(self) -> Iterator[Exchange]:
        read, b = (gradients.treatment_of(s) for s in (self._ours, self._reference))
        told = paddles.clipping_of(self._mine)
        a = Treatment(*told) if told else read
        unused = self._unused()
        if unused:
            keep = partial(_put_gradients, Treatment(), False)
            yield Exchange(unused, keep)
            if b is not None:
                yield Exchange(unused, partial(_put_gradients, b, True))
        if a is None or b is None:
            return
        if gradients.differ(a, b):
            cause = self._cause(gradients.sentence(a, b))
            if a.kind in ("none", "scaled") and b.kind in ("none", "scaled") and not a.weight:
                scaled = Treatment("scaled", b.limit / a.limit)
                yield Exchange(cause, partial(_put_gradients, scaled, False))
            yield Exchange(cause, partial(_put_gradients, b, True))
        elif "step" in vars(self._mine):
            cause = self._cause(self._hook())
            yield Exchange(cause, partial(_put_gradients, b, True))

    def _unused(self) -> Cause | None:
        """Parameters that move in a step in which they have no gradient, on one side only."""
        names = [
            name
            for name, one in self._ours.main.items()
            if one.held
            if any(
                g is None and one.update(i).any() and not self._reference.main[name].update(i).any()
                for i, g in enumerate(one.gradients)
            )
        ]
        text = (
            f"moves without a gradient in Paddle: {some(names)} had none in a step: clear_grad() "
            "leaves zeros, which still move a parameter; use clear_grad(set_to_zero=False)"
        )
        return self._cause(text, names) if names else None

    def _hook(self) -> str:
        """What before_step does to the weights, from the step with zero gradients."""
        shares = []
        for side in (self._ours, self._reference):
            moved = [
                gradients.slope(one.update(0), one.weights[0]) / one.rates[0]
                for name, one in side.still.items()
                if name in self._wrong and one.rates[0] > 0
            ]
            shares.append(f"{max(moved, key=abs, default=0.0):.4g}")
        return (
            f"double decay: a step with zero gradients moves the weights by {shares[0]} x rate in "
            f"Paddle, {shares[1]} in PyTorch; Paddle's before_step decays as well"
        )

    def _same_class(self) -> bool:
        mine, theirs = paddles.kind_of(self._mine), self._their_class()
        return "" in (mine, theirs) or FAMILY.get(mine, mine) == theirs

    def _their_class(self) -> str:
        """Paddle's name of PyTorch's class."""
        name = stepping_torch.kind_of(self._theirs)
        if name == "SGD":
            return "Momentum" if self._theirs.param_groups[0]["momentum"] else "SGD"
        return FAMILY.get(name, name)

    def _classes(self) -> Iterator[Exchange]:
        if self._same_class():
            return
        kinds = paddles.kind_of(self._mine), self._their_class()
        text = f"another optimizer: Paddle computes {kinds[0]}, PyTorch {kinds[1]}"
        held = {n: option.value for n, option in options(*self._theirs.param_groups).items()}

        def change(optimizer: Any, model: Any) -> Any:
            made = paddles.another(optimizer, kinds[1])
            if made is None:
                return None
            for name, option in paddles.options_of(made).items():
                if name in held and name != "weight_decay":
                    option.put(held[name])
            paddles.put_decays(made, model, self._decays)
            return made

        yield Exchange(self._cause(text), change)


def _near(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return bool(np.allclose(a, b, rtol=1e-6, atol=0))


def _put(how: Callable, what: Any, optimizer: Any, model: Any) -> None:
    how(optimizer, model, what)


def _put_option(name: str, value: Any, optimizer: Any, model: Any) -> None:
    paddles.options_of(optimizer)[name].put(value)


def _put_gradients(treatment: Treatment, alone: bool, optimizer: Any, model: Any) -> None:
    paddles.put_gradients(optimizer, model, treatment.apply, alone)


def decay_sentence(pairs: Mapping[str, tuple[tuple[float, float], tuple[float, float]]]) -> str:
    """How the decays of parameters differ: the set, the form, or the coefficient.

    Args:
        pairs: name -> Paddle's and PyTorch's (straight from the weight, added to the gradient).
    """
    parts = []
    for who, at in (("Paddle", 0), ("PyTorch", 1)):
        names = [n for n, both in pairs.items() if any(both[at]) and not any(both[1 - at])]
        if names:
            number = settings.number(max(pairs[names[0]][at]))
            parts.append(f"decays in {who} only: {some(names)} (coefficient {number})")
    if parts:
        return f"decay set: {'; '.join(parts)}"
    a, b = next(iter(pairs.values()))
    numbers = settings.both(sum(a), sum(b))
    forms = [" and ".join(f for f, c in zip(_FORMS, side, strict=True) if c) for side in (a, b)]
    if forms[0] != forms[1]:
        return f"{forms[0]} instead of {forms[1]} decay; weight decay coefficient: {numbers}"
    return f"weight decay coefficient: {numbers}"


_FORMS = ("decoupled", "L2")
"""Straight from the weight (AdamW), added to the gradient (Adam)."""
