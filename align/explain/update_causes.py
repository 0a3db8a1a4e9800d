"""From two followed optimizers to the settings in which they differ, with the fitted numbers.

Both sides are described by themselves (`update_fits`); a setting is named when the descriptions
differ in it and explain what was observed: at most 1 % of the difference may remain. NumPy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from align.explain.update_clipping import Clip, slope
from align.explain.update_fits import Decay, Rule, describe
from align.judge.update_trace import ParameterTrace, SideTrace
from align.record.results import some

LEFT = 0.01  # part of a difference that may remain
FITTED = {"float64": 1e-5, "float32": 2e-3}  # fitted numbers this close are equal
LEAST = 1e-16  # an epsilon below this shows nowhere
CLEARLY = 0.1  # of what the other side's epsilon and form leave may be left by one's own
NEARLY = 1e-3  # betas this close are those of the other side
CLIPPED = 2e-3  # PyTorch's limit + 1e-6, Paddle's own rule


@dataclass(frozen=True)
class Cause:
    """One setting that differs.

    Attributes:
        text: a sentence with its evidence.
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


def explain(
    ours: SideTrace, reference: SideTrace, wrong: Sequence[str], dtype: str = "float64"
) -> list[Cause]:
    """Every setting in which two optimizers differ.

    Args:
        ours: Paddle's optimizer.
        reference: PyTorch's.
        wrong: Paddle's names of the parameters that were out of tolerance, in the model's order.
        dtype: precision of the run.

    Returns:
        Causes, those that explain others first; empty when nothing fits.
    """
    found = _members(ours, reference, wrong) + _unused(ours, reference, wrong)
    spoken = {name for cause in found for name in cause.names}
    found += _rates(ours, reference, [n for n in wrong if n not in spoken])
    names = [n for n in wrong if n not in spoken and ours.main[n].held and reference.main[n].held]
    if not names:
        return found
    (mine, our_decays), (theirs, their_decays) = (describe(s, names) for s in (ours, reference))
    if mine.kind != theirs.kind:
        text = (
            f"another optimizer: Paddle's keeps {_KINDS[mine.kind]}, PyTorch's "
            f"{_KINDS[theirs.kind]}"
        )
        return [*found, Cause(text, tuple(names), _among(ours, reference, names))]
    near = FITTED[dtype]
    found += _decays(ours, reference, our_decays, their_decays, near)
    hit = tuple(names), _among(ours, reference, names)
    found += [Cause(text, *hit) for text in _clips(mine.clip, theirs.clip)]
    found += [Cause(text, *hit) for text in _rules(mine, theirs, near)]
    return found or _gain(ours, reference, names)


def _among(ours: SideTrace, reference: SideTrace, names: Sequence[str]) -> tuple[str, ...]:
    """The wrong parameters when every group of either optimizer has some, else all parameters.

    Not every parameter shows every fault: a single number may be too large for an epsilon.
    """
    for side in (ours, reference):
        if {side.groups.get(n) for n in names} != set(side.groups.values()):
            return tuple(ours.main)
    return tuple(names)


_KINDS = {
    "Adam": "two moments (Adam)",
    "momentum": "a velocity (momentum)",
    "RMSProp": "a mean square (RMSProp)",
    "plain": "no moments (plain gradient descent)",
}


def _number(value: float) -> str:
    """Four digits are what a fit is good for; whole and short numbers come out as written."""
    return f"{value:.4g}"


def _both(a: float, b: float) -> str:
    return f"Paddle {_number(a)}, PyTorch {_number(b)}"


def _members(ours: SideTrace, reference: SideTrace, wrong: Sequence[str]) -> list[Cause]:
    found = []
    for one, other, texts in (
        (ours, reference, ("Paddle's", "PyTorch's")),
        (reference, ours, ("PyTorch's", "Paddle's")),
    ):
        names = tuple(n for n in wrong if not one.main[n].held and other.main[n].held)
        if names:
            text = (
                f"not in {texts[0]} optimizer: {some(names)} (frozen, or missing in its "
                f"parameters); {texts[1]} updates them"
            )
            found.append(Cause(text, names, tuple(ours.main)))
    return found


def _unused(ours: SideTrace, reference: SideTrace, wrong: Sequence[str]) -> list[Cause]:
    """Parameters that move in a step in which they have no gradient, on one side only."""
    names = tuple(
        name
        for name in wrong
        if ours.main[name].held
        for step, g in enumerate(ours.main[name].gradients)
        if g is None
        if ours.main[name].update(step).any() and not reference.main[name].update(step).any()
    )
    if not names:
        return []
    text = (
        f"moves without a gradient in Paddle: {some(tuple(dict.fromkeys(names)))} had none in a "
        "step: clear_grad() leaves zeros, which still move a parameter; use "
        "clear_grad(set_to_zero=False)"
    )
    return [Cause(text, tuple(dict.fromkeys(names)), tuple(ours.main))]


def _rates(ours: SideTrace, reference: SideTrace, wrong: Sequence[str]) -> list[Cause]:
    """Rates that were applied, one cause for each factor."""
    by_factor: dict[str, list[str]] = {}
    for name in wrong:
        a, b = np.asarray(ours.main[name].rates), np.asarray(reference.main[name].rates)
        if np.isnan(a).any() or np.isnan(b).any():
            continue
        at = int(np.argmax(np.abs(a - b)))
        if abs(a[at] - b[at]) > 1e-9 * max(abs(a[at]), abs(b[at])):
            factor = f"{a[at] / b[at]:.6g} x" if b[at] else "not 0, as"
            by_factor.setdefault(f"{_both(a[at], b[at])} ({factor} PyTorch's)", []).append(name)
    everyone = [n for n in ours.main if ours.main[n].held]
    found = []
    for numbers, names in by_factor.items():
        who = "" if len(names) == len(everyone) else f" of {some(names)}"
        text = f"the learning rate applied to the update{who}: {numbers}"
        found.append(Cause(text, tuple(names), tuple(everyone)))
    return found


def _decays(
    ours: SideTrace,
    reference: SideTrace,
    our_decays: Mapping[str, Decay | None],
    their_decays: Mapping[str, Decay | None],
    near: float,
) -> list[Cause]:
    both = {n: (our_decays[n], their_decays[n]) for n in our_decays if n in their_decays}
    pairs = {n: (a, b) for n, (a, b) in both.items() if a is not None and b is not None}
    size = max((abs(d.total) for both in pairs.values() for d in both), default=0.0)

    rate = min((reference.still[n].rates[0] for n in pairs), default=1.0)
    room = 8 * reference.eps / rate  # an update is rounded as the weight it is subtracted from

    def decays(decay: Decay) -> bool:
        return abs(decay.total) > max(1e-3 * size, room)

    mine = tuple(n for n, (a, b) in pairs.items() if decays(a) and not decays(b))
    theirs = tuple(n for n, (a, b) in pairs.items() if decays(b) and not decays(a))
    found = []
    if mine or theirs:
        parts = []
        if mine:
            parts.append(f"decays in Paddle only: {some(mine)}")
        if theirs:
            parts.append(f"decays in PyTorch only: {some(theirs)}")
        held = next(d for n in (*mine, *theirs) for d in pairs[n] if decays(d))
        text = f"decay set: {'; '.join(parts)} (coefficient {_number(held.total)})"
        found.append(Cause(text, (*mine, *theirs), tuple(ours.main)))
    other: dict[tuple, list[str]] = {}
    for name, (a, b) in pairs.items():
        if decays(a) and decays(b):
            key = _form(a), _form(b), f"{a.total:.2g}", f"{b.total:.2g}"
            other.setdefault(key, []).append(name)
    decayed = tuple(n for n, one in reference.still.items() if one.update(0).any())
    for held in other.values():
        largest = max(held, key=lambda n: ours.still[n].weights[0].size)
        text = _decay(*pairs[largest], max(near, room / pairs[largest][1].total))
        if text:
            found.append(Cause(text, tuple(held), decayed))
    return found


def _form(decay: Decay) -> str:
    if decay.l2:
        return "both" if decay.decoupled else "L2"
    return "decoupled"


_FORMS = {
    "L2": "adds the decay to the gradient (L2, as Adam)",
    "decoupled": "decays the weight itself (decoupled, as AdamW)",
    "both": "decays twice",
}


def _decay(a: Decay, b: Decay, near: float) -> str:
    """What differs between two decays that are not zero."""
    forms, numbers = (_form(a), _form(b)), _both(a.total, b.total)
    if forms[0] != forms[1] and forms[0] == "both":
        return (
            f"double decay: Paddle decays the weight itself ({_number(a.decoupled)}) and adds the "
            f"decay to the gradient as well (L2, {_number(a.l2)}); PyTorch's coefficient is "
            f"{_number(b.total)}"
        )
    if forms[0] != forms[1]:
        title = f"{forms[0]} instead of {forms[1]} decay"
        words = f"Paddle {_FORMS[forms[0]]}, PyTorch {_FORMS[forms[1]]}"
        return f"{title}: {words}; coefficient: {numbers}"
    if abs(a.total - b.total) <= max(near, 1e-6) * max(abs(a.total), abs(b.total)):
        return ""
    twice = abs(a.total / b.total - 2) < 0.02
    why = "; double decay: it is applied twice, or the coefficient is doubled" if twice else ""
    return f"weight decay coefficient: {numbers} (from a step with zero gradients){why}"


def _clips(a: Clip, b: Clip) -> list[str]:
    if "" in (a.kind, b.kind):
        return []
    if a.kind == b.kind:
        if a.kind == "none" or abs(a.limit - b.limit) <= CLIPPED * max(a.limit, b.limit):
            return []
        if a.kind == "scaled":
            return [f"gradients are scaled: by {_number(a.limit)} in Paddle, {_number(b.limit)}"]
        return [f"clipping limit ({a.kind}): {_both(a.limit, b.limit)}"]
    if a.kind == "scaled":
        return [
            f"gradients are scaled by {_number(a.limit)} in Paddle (an accumulation that is not "
            "divided, or a mean taken twice)"
        ]
    if b.kind == "scaled":
        return [f"gradients are scaled by {_number(b.limit)} in PyTorch only"]
    if a.kind == "none":
        return [f"clipping missing: PyTorch clips the {_clip(b)}, Paddle does not"]
    if b.kind == "none":
        return [f"clipping in Paddle only: it clips the {_clip(a)}"]
    return [f"clipping: Paddle clips the {_clip(a)}, PyTorch the {_clip(b)}"]


def _clip(clip: Clip) -> str:
    return f"{clip.kind} at {_number(clip.limit)}"


def _rules(a: Rule, b: Rule, near: float) -> list[str]:
    """Settings in which two rules of one kind differ."""

    def differ(name: str) -> bool:
        x, y = getattr(a, name), getattr(b, name)
        return abs(x - y) > near * max(abs(x), abs(y), near)

    found = []
    exchanged = max(abs(a.beta1 - b.beta2), abs(a.beta2 - b.beta1)) < NEARLY
    if a.kind == "Adam" and differ("beta1") and exchanged:
        pairs = [f"{_number(r.beta1)} and {_number(r.beta2)}" for r in (a, b)]
        return [f"betas exchanged: Paddle {pairs[0]}, PyTorch {pairs[1]}"]
    if a.kind == "Adam":
        names = {"beta1": "beta1", "beta2": "beta2"}
    else:
        names = {"momentum": "momentum"} if a.kind == "momentum" else {"beta2": "rho (alpha)"}
    for name, title in names.items():
        if differ(name):
            text = f"{title}: {_both(getattr(a, name), getattr(b, name))} (from the moments)"
            found.append(text)
    if max(a.left, b.left) < LEFT:
        found += _forms(a, b)
    return found + _velocities(a, b, near)


def _forms(a: Rule, b: Rule) -> list[str]:
    """Forms and epsilons, where the other side's would explain the updates clearly worse."""

    def differ(*names: str) -> bool:
        if a.pool is None or all(getattr(a, name) == getattr(b, name) for name in names):
            return False
        exchanged = (
            (one, replace(one, **{name: getattr(other, name) for name in names}))
            for one, other in ((a, b), (b, a))
        )
        return all(one.left < CLEARLY * one.left_by(changed) for one, changed in exchanged)

    found = []
    if differ("corrected"):
        who = "PyTorch corrects it" if b.corrected else "Paddle corrects it, PyTorch does not"
        found.append(f"bias correction {'missing: ' if b.corrected else 'added: '}{who}")
    if differ("amsgrad"):
        who = "Paddle" if a.amsgrad else "PyTorch"
        found.append(f"amsgrad: only {who} uses the largest second moment so far")
    numbers = ["about 0" if rule.eps < LEAST else _number(rule.eps) for rule in (a, b)]
    if a.eps_at != b.eps_at and a.corrected == b.corrected and differ("eps_at", "eps"):
        places = [_EPSILONS[rule.eps_at] for rule in (a, b)]
        found.append(
            f"epsilon stands elsewhere: {places[0]} in Paddle ({numbers[0]}), {places[1]} in "
            f"PyTorch ({numbers[1]})"
        )
    elif numbers[0] != numbers[1] and differ("eps"):
        found.append(
            f"epsilon: Paddle {numbers[0]}, PyTorch {numbers[1]} (fitted from the updates)"
        )
    return found


_EPSILONS = {
    "outside": "outside the square root",
    "inside": "inside the square root",
    "before": "added before the bias correction",
    "": "nowhere",
}


def _velocities(a: Rule, b: Rule, near: float) -> list[str]:
    found = []
    if a.rated != b.rated:
        who = "Paddle" if a.rated else "PyTorch"
        found.append(f"momentum convention: only {who}'s velocity holds the learning rate")
    if abs(a.dampening - b.dampening) > max(near, 1e-4):
        shares = [1 - r.dampening for r in (a, b)]
        found.append(
            f"momentum convention (dampening): gradients enter the velocity times {_both(*shares)}"
        )
    if a.nesterov != b.nesterov:
        who = "Paddle" if a.nesterov else "PyTorch"
        found.append(f"nesterov: only {who} uses Nesterov momentum")
    return found


def _gain(ours: SideTrace, reference: SideTrace, names: Sequence[str]) -> list[Cause]:
    """Updates that are the other side's times a number."""
    by_factor: dict[str, list[str]] = {}
    for name in names:
        factor = _ratio(ours.main[name], reference.main[name])
        if factor is not None and abs(factor - 1) > 1e-6:
            by_factor.setdefault(_number(factor), []).append(name)
    return [
        Cause(
            f"updates of {some(held)} are {factor} x PyTorch's: a hidden factor of the learning "
            "rate",
            tuple(held),
            tuple(ours.main),
        )
        for factor, held in by_factor.items()
    ]


def _ratio(ours: ParameterTrace, reference: ParameterTrace) -> float | None:
    a = np.concatenate([ours.update(i).ravel() for i in range(ours.steps)])
    b = np.concatenate([reference.update(i).ravel() for i in range(reference.steps)])
    factor = slope(a, b)
    apart = float(np.abs(a - b).max())
    return factor if apart and np.abs(a - factor * b).max() <= LEFT * apart else None
