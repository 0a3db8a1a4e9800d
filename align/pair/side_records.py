"""What a pair records once: the weights that it came with, scores, learning rates.

The sides are arguments, so that one framework is enough to record one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from align.judge.rate_curves import Curve
from align.record.arrays import BothScores, BothWeights, cast, leaves
from align.record.recording import ROOT, Recording
from align.record.request import Request
from align.record.stored_arrays import Lazy

METRIC = "metric"


def widened(arrays: Mapping[str, np.ndarray]) -> Lazy:
    """Whole numbers as int64, others as float64, which changes no value; each on access."""

    def read(name: str) -> np.ndarray:
        array = arrays[name]
        return array.astype("int64" if array.dtype.kind in "biu" else "float64")

    return Lazy({name: partial(read, name) for name in arrays})


def both_weights(pair: Any, theirs: Any, own: Any) -> BothWeights:
    """The weights that the user converted, and the reference's own.

    Args:
        pair: an `AnyPair`. Instances are read as they are; callables build their models in
            float32, the precision of stored weights.
        theirs: `on_torch`.
        own: `on_paddle`.
    """
    plan, models = pair.plan, []
    for side, given in ((theirs, plan.torch_module), (own, plan.paddle_layer)):
        dtype = "float64" if hasattr(given, "state_dict") else "float32"
        models.append(side.prepare(plan, dtype, plan.train))
    expected = pair.setup.weights.to_paddle(theirs.state(models[0]))
    ours = {name: array for name, array in own.state(models[1]).items() if name in expected}
    stamps = {
        title: side.stamp(next(iter(model.state_dict().values())))
        for title, side, model in zip(("reference", "ours"), (theirs, own), models, strict=True)
        if expected
    }
    note = "as the user converted them; the later steps run with PyTorch's own weights"
    return BothWeights(dict(widened(ours)), dict(widened(expected)), note, stamps)


def scored_output(recording: Recording) -> np.ndarray:
    """The output that the metric of both sides is given.

    Raises:
        ValueError: the model returns no floating tensor.
    """
    outputs = [a for _, a in recording.calls[ROOT].outputs if a.dtype.kind == "f" and a.size]
    if not outputs:
        raise ValueError("metric: the model returns no floating tensor")
    return outputs[0]


def both_scores(pair: Any, theirs: Any, own: Any) -> BothScores:
    """Both metrics of the plan on the reference's output and the user's labels.

    Args:
        pair: an `AnyPair`.
        theirs: `on_torch`.
        own: `on_paddle`.
    """
    output, dtype = scored_output(pair.reference), pair.dtype
    labels = cast(np.asarray(pair.plan.labels), dtype, dtype)
    given = (output, labels, dtype)
    ours, stamp = scores(own, pair.plan.metric[1], *given)
    reference, their_stamp = scores(theirs, pair.plan.metric[0], *given)
    stamps = {"ours": stamp, "reference": their_stamp}
    return BothScores(ours, reference, output, stamps)


def scores(
    side: Any, function: Callable, output: np.ndarray, labels: np.ndarray, dtype: str
) -> tuple[dict[str, float], Mapping[str, Any]]:
    """One side's scores by their names in the report, and who held the output.

    Args:
        side: `on_torch` or `on_paddle`.
        function: of (output, labels); returns a number or a mapping of numbers.
        output: of the reference.
        labels: of the user.
        dtype: precision of the pair.

    Raises:
        ValueError: the function returns something else.
    """
    given = side.tensor(output)
    with side.default_dtype(dtype):
        made = function(given, side.tensor(labels))
    if not isinstance(made, Mapping):
        return {METRIC: _number(side, made, METRIC)}, side.stamp(given)
    found = {
        f"{METRIC} {name}": _number(side, value, name)
        for name, value in leaves(made, lambda one: not isinstance(one, Mapping))
    }
    if not found:
        raise ValueError(f"metric: the {side.NAME} function returned an empty mapping")
    return found, side.stamp(given)


def _number(side: Any, value: Any, name: str) -> float:
    value = side.numpy(value) if side.is_tensor(value) else value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"metric: {name!r} of the {side.NAME} side is a {type(value).__name__} of shape "
            f"{array.shape}, expected one number (or a mapping of numbers)"
        )
    return float(array.reshape(()))


def rates(name: str, function: Callable, steps: int) -> np.ndarray:
    """(steps,) The rates that one side's callable returns.

    Args:
        name: of the side, for messages.
        function: from a number of steps to their rates.
        steps: how many.

    Raises:
        ValueError: something else than so many finite numbers.
    """
    given = function(steps)
    try:
        found = np.asarray([float(rate) for rate in given])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"schedule: {name}'s callable returned {type(given).__name__}, expected "
            f"{steps} numbers ({error})"
        ) from error
    if found.shape != (steps,):
        raise ValueError(
            f"schedule: {name}'s callable returned {len(found)} rates, expected "
            f"{steps} (schedule_steps)"
        )
    if not np.isfinite(found).all():
        raise ValueError(f"schedule: {name}'s callable returned a rate that is not finite")
    return found


def logged_rates(plan: Request) -> Curve | None:
    """What both callables of the plan return, None without any."""
    if plan.schedule is None:
        return None
    named = zip(("PyTorch", "Paddle"), plan.schedule, strict=True)
    theirs, ours = (rates(name, function, plan.schedule_steps) for name, function in named)
    return Curve(None, (), ours, theirs, only=True)
