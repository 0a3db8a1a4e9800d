"""Why two optimizers differ: what differs is exchanged in Paddle's, and the steps made again.

What no exchange explains is looked for in the update rule itself (`update_formulas`); what no
experiment explains is a guess, and begins with "perhaps".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from align.explain.experiment import Edit, fewest
from align.explain.settings import exchange, update_formulas
from align.explain.settings.optimizer_exchanges import Cause, Differences
from align.judge.update_judging import UpdateJudge
from align.judge.update_trace import SideTrace
from align.pair.update_sides import UpdateSides

TRIALS = 12


def explain(
    sides: UpdateSides, ours: SideTrace, judge: UpdateJudge, wrong: Sequence[str]
) -> list[Cause]:
    """What has to be exchanged before the optimizer's judge passes.

    Args:
        sides: makes Paddle's steps again under changes.
        ours: Paddle's steps as they are.
        judge: with PyTorch's.
        wrong: Paddle's names of the parameters that were out of tolerance, in the model's order.

    Returns:
        Causes; guesses when no experiment succeeds.
    """
    differences = Differences(sides, ours, judge.reference, tuple(wrong))
    found = list(differences.all())
    edits = [
        Edit(str(i), lambda changes, one=one: (*changes, one.change)) for i, one in enumerate(found)
    ]
    tried = fewest((), edits, lambda changes: sides.passes(changes, judge), TRIALS)
    if tried:
        causes = _told([found[int(edit.says)] for edit in tried])
        return [replace(c, text=f"{c.text}; with PyTorch's the step agrees") for c in causes]
    formula = update_formulas.explain(ours, judge.reference, wrong, *differences.rule())
    if formula:
        return [Cause(formula, tuple(wrong), tuple(wrong))]
    return [replace(c, text=f"perhaps {c.text}") for c in _told(found)]


def _told(causes: Sequence[Cause]) -> list[Cause]:
    """Causes with those that are options in one sentence."""
    options = [one for one in causes if one.option is not None]
    rest = [one for one in causes if one.option is None]
    if not options:
        return rest
    text = exchange.sentence([one.option for one in options])
    return [*rest, replace(options[0], text=text)]
