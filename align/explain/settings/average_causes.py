"""Why two moving averages of the weights differ: options of Paddle's set to PyTorch's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from align.explain.experiment import fewest
from align.explain.settings.exchange import sentence
from align.frameworks import on_paddle, on_torch
from align.frameworks.factories import AVERAGE
from align.frameworks.object_options import differing, options
from align.pair.any_pair import AnyPair
from align.record.request import Request

TRIALS = 6


def explain(pair: AnyPair, passes: Callable[[Request], bool]) -> str:
    """The options of Paddle's moving average that have to be PyTorch's; "" when none explains it.

    Args:
        pair: a live one, with an optimizer.
        passes: whether Paddle's averages agree after a training run of a plan.
    """
    plan, given = pair.plan, pair.plan.optimizer
    if isinstance(given, Mapping):
        return ""
    held = []
    for side, model in (
        (on_paddle, pair.our_model(True)),
        (on_torch, pair.reference_model(pair.dtype, True)),
    ):
        with side.default_dtype(pair.dtype):
            made = getattr(side.make_optimizer(plan, model)[0], AVERAGE, None)
        held.append({} if made is None else options(made))
    mine, theirs = held

    def agree(names: Sequence[str]) -> bool:
        def factory(model: Any) -> Any:
            made = given[1](model)
            own = options(made[3])
            for name in names:
                own[name].put(theirs[name].value)
            return made

        return passes(dataclasses.replace(plan, optimizer=(given[0], factory)))

    needed = fewest(differing(mine, theirs), agree, TRIALS)
    values = [(name, mine[name].value, theirs[name].value) for name in needed]
    return f"moving average: {sentence(values)}; with PyTorch's it agrees" if values else ""
