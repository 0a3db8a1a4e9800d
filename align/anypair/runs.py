"""Running one side: a recorded pass, and a training run. The side's module is the argument."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from align.anypair.plan import Plan, cast, perturbed
from align.anypair.recording import Recorder, Recording
from align.sides import Arrays, TrainingRun


@contextlib.contextmanager
def _mode(side: Any, dtype: str, train: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(side.default_dtype(dtype))
        if train:
            stack.enter_context(side.dropout_off())
        yield


def run(
    side: Any,
    model: Any,
    plan: Plan,
    dtype: str,
    rounded: str,
    *,
    deep: bool = False,
    tripled: str = "",
    noise: np.random.Generator | None = None,
) -> Recording:
    """One forward and backward pass; the model's tensors are put back afterwards.

    Args:
        side: `on_torch` or `on_paddle`.
        model: from the side's ``prepare``, with its weights loaded.
        plan: inputs and loss.
        dtype: precision of the run.
        rounded: precision of the pair, to which floating inputs are rounded first.
        deep: record the inputs of every call as well.
        tripled: key of a call whose gradient is planted wrong.
        noise: draws the perturbation by one unit in the last place of inputs and weights.

    Returns:
        Recording.
    """
    before = side.state(model)
    inputs = plan.cast(dtype, rounded)
    if noise is not None:
        inputs = perturbed(inputs, noise)
        side.load(model, perturbed(before, noise))
    side.clear(model)
    with _mode(side, dtype, plan.train), Recorder(side, model, deep=deep, tripled=tripled) as held:
        output, watched = side.call(model, inputs)
        loss = side.loss_of(plan, output, dtype, rounded)
        side.backward(loss)
    found = held.recording
    found.loss, found.stamp = side.numpy(loss), side.stamp(loss)
    found.gradients = side.gradients(model)
    found.input_gradients = {
        path: side.numpy(value.grad) for path, value in watched.items() if value.grad is not None
    }
    found.state = side.state(model)
    side.clear(model)
    side.load(model, before)
    return found


def train(
    side: Any,
    model: Any,
    plan: Plan,
    dtype: str,
    rounded: str,
    noise: np.random.Generator | None = None,
) -> TrainingRun:
    """Train for the plan's steps on its inputs, in training mode with dropout off.

    Args:
        side: `on_torch` or `on_paddle`.
        model: with its weights loaded; it is changed.
        plan: inputs, loss, optimizer and number of steps.
        dtype: precision of the run.
        rounded: precision of the pair.
        noise: moves inputs and weights by one unit in the last place before every step.

    Returns:
        TrainingRun: losses, rates, final tensors and moments, by canonical name.
    """
    result = TrainingRun()
    inputs = plan.cast(dtype, rounded)
    with _mode(side, dtype, True):
        optimizer, scheduler = side.make_optimizer(plan, model)
        for _ in range(plan.steps):
            fed = inputs
            if noise is not None:
                fed = perturbed(inputs, noise)
                side.load(model, perturbed(side.state(model), noise))
            output, _ = side.call(model, fed)
            loss = side.loss_of(plan, output, dtype, rounded)
            side.backward(loss)
            result.losses.append(float(side.numpy(loss)))
            result.learning_rates.append(side.rate(optimizer))
            side.advance(optimizer, scheduler, model)
        result.stamp = side.stamp(loss)
        result.moments = side.moments(optimizer, model)
    result.state = side.state(model)
    return result


def shaken(state: Arrays, trainable: set[str], seed: int) -> tuple[Arrays, list[str]]:
    """Move constant vectors off their value, so that a forgotten or swapped one shows.

    A fresh bias is 0 and a fresh scale 1 in both models, whatever the port does with it.

    Args:
        state: the reference's tensors.
        trainable: names of its parameters.
        seed: of the draws.

    Returns:
        The new state and the names that were moved.
    """
    rng = np.random.default_rng(seed)
    found, moved = dict(state), []
    for name, value in state.items():
        constant = value.size > 1 and value.dtype.kind == "f" and np.ptp(value) == 0
        if constant and name.endswith("running_var"):
            found[name] = rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
        elif constant and (name in trainable or name.endswith("running_mean")):
            found[name] = (value + 0.1 * rng.normal(size=value.shape)).astype(value.dtype)
        else:
            continue
        moved.append(name)
    return found, moved


def rounded_state(state: Arrays, dtype: str, rounded: str) -> Arrays:
    """Floating tensors rounded to ``rounded`` and held as ``dtype``."""
    return cast(state, dtype, rounded)
