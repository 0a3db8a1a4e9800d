"""Running one side: a recorded pass, and a training run. The side's module is the argument."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from align.frameworks.factories import AVERAGE
from align.frameworks.masks import Masks
from align.pair import models
from align.record.arrays import Arrays, TrainingRun
from align.record.casting import cast, is_array
from align.record.nested import replace
from align.record.recording import Recorder, Recording
from align.record.request import Request
from align.record.stored_arrays import Lazy, Store, settle


def dropout_mode(
    side: Any, model: Any, train: bool, masks: Masks | None, step: int = 0
) -> contextlib.AbstractContextManager[None]:
    """Dropout off, or with the shared masks; nothing to do in eval mode.

    Args:
        side: `on_torch` or `on_paddle`.
        model: that is going to run.
        train: whether it is in training mode.
        masks: None for dropout off.
        step: training step, 0 for a single pass.
    """
    if not train:
        return contextlib.nullcontext()
    return side.dropout_off() if masks is None else side.dropout_exchanged(side, masks, model, step)


def moved(value: Any, moves: Any) -> Any:
    """A structure with its floating arrays moved, as they are without `MovedRoundings`."""
    return value if moves is None else replace(value, is_array, lambda _, a: moves.array(a))


@contextlib.contextmanager
def passed(
    side: Any,
    model: Any,
    plan: Request,
    dtype: str,
    rounded: str,
    *,
    deep: bool = False,
    tripled: str = "",
    moves: Any = None,
    masks: Masks | None = None,
    backward: bool = True,
    only: Collection[str] | None = None,
) -> Iterator[Recording]:
    """One forward and backward pass, to be looked at inside a ``with`` block.

    The parameters' gradients are read off the live model, so they cost no memory and are gone at
    the end of the block. Then the tensors that a pass moves (running statistics) are put back.

    Args:
        side: `on_torch` or `on_paddle`.
        model: from the side's ``prepare``, with its weights loaded.
        plan: inputs and loss.
        dtype: precision of the run.
        rounded: precision of the pair, to which floating inputs are rounded first.
        deep: record the inputs of every call as well.
        tripled: key of a call whose gradient is planted wrong.
        moves: `MovedRoundings` of the reference, whose weights are moved already; None for none.
        masks: dropout masks that both sides share, None for dropout off.
        backward: False for the forward pass and the loss alone.
        only: the layers to record, None for all.

    Yields:
        Recording.
    """
    before = {name: side.numpy(tensor) for name, tensor in side.untrained(model).items()}
    inputs = moved(plan.cast(dtype, rounded), moves)
    side.clear(model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(side.default_dtype(dtype))
        stack.enter_context(dropout_mode(side, model, plan.train, masks))
        held = stack.enter_context(Recorder(side, model, deep=deep, tripled=tripled, only=only))
        stack.enter_context(moves or contextlib.nullcontext())
        output, watched = side.call(model, inputs)
        loss = side.loss_of(plan, output, dtype, rounded)
        if backward:
            side.backward(loss)
    del output
    found = held.recording
    found.loss, found.stamp = side.numpy(loss), side.stamp(loss)
    del loss
    found.gradients = models.gradients(side, model)
    found.input_gradients = {
        path: side.numpy(value.grad) for path, value in watched.items() if value.grad is not None
    }
    after = side.named(model)
    found.state = {name: side.numpy(after[name]) for name in before}
    try:
        yield found
    finally:
        settle()
        side.clear(model)
        side.load(model, before)


def run(
    side: Any, model: Any, plan: Request, dtype: str, rounded: str, **options: Any
) -> Recording:
    """`passed` with everything kept; the options are the same."""
    with passed(side, model, plan, dtype, rounded, **options) as found:
        found.gradients = found.store.keep(found.gradients)
    return found


def descend(
    side: Any,
    model: Any,
    plan: Request,
    dtype: str,
    rounded: str,
    optimizer: tuple[Any, Any],
    *,
    steps: Iterable[int],
    moves: Any = None,
    masks: Masks | None = None,
    caller: Any = None,
    between: Callable[[int], None] = lambda _: None,
) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Make training steps; yields each's (mean) loss, the rate it applied and the loss's stamp.

    Args:
        side: `on_torch` or `on_paddle`.
        model: in training mode; it is changed.
        plan: batches and loss.
        dtype: precision of the run.
        rounded: precision of the pair.
        optimizer: and its scheduler, as `make_optimizer` returns them.
        steps: which ones, counted from 0: they say with which batch.
        moves: `MovedRoundings` of the reference; None for none.
        masks: dropout masks that both sides share, None for dropout off.
        caller: what is called, by default the model.
        between: called with the step between the backward pass and the update.
    """
    share = plan.accumulate
    for step in steps:
        total = 0.0
        with moves or contextlib.nullcontext():
            for number in range(step * share, (step + 1) * share):
                batch = plan.batch(number)
                fed = moved(batch.cast(dtype, rounded), moves)
                with dropout_mode(side, model, True, masks, number):
                    output, _ = side.call(model if caller is None else caller, fed)
                    loss = side.loss_of(batch, output, dtype, rounded)
                    side.backward(loss / share if share > 1 else loss)
                total += float(side.numpy(loss))
            between(step)
            made = total / share, side.rate(optimizer[0]), side.stamp(loss)
            del output, loss
            side.advance(*optimizer, model)
        yield made


@contextlib.contextmanager
def trained(
    side: Any,
    model: Any,
    plan: Request,
    dtype: str,
    rounded: str,
    moves: Any = None,
    masks: Masks | None = None,
    watch: Callable[[Any], None] | None = None,
    follow: Callable[[Any, Any], None] | None = None,
    enough: Callable[[TrainingRun], bool] = lambda _: False,
) -> Iterator[TrainingRun]:
    """Train for the plan's steps on its batches, in training mode; look at it in a ``with`` block.

    Args:
        side: `on_torch` or `on_paddle`.
        model: with its weights loaded; it is changed.
        plan: batches, loss, optimizer and number of steps.
        dtype: precision of the run.
        rounded: precision of the pair.
        moves: `MovedRoundings` of the reference, whose weights are moved already; None for none.
        masks: dropout masks that both sides share, None for dropout off.
        watch: called with the model before the first step and after every step.
        follow: called with the optimizer and the model before the first step.
        enough: whether to stop, asked after every step with the losses and rates so far.

    Yields:
        TrainingRun: losses, rates, final tensors and moments, by canonical name; the tensors are
        read off the live model and gone at the end of the block.
    """
    result = TrainingRun()
    with side.default_dtype(dtype):
        optimizer, scheduler = side.make_optimizer(plan, model)
        if follow is not None:
            follow(optimizer, model)
        watch = watch or (lambda _: None)
        watch(model)
        given = (side, model, plan, dtype, rounded, (optimizer, scheduler))
        options = {"steps": range(plan.steps), "moves": moves, "masks": masks}
        for loss, rate, result.stamp in descend(*given, **options):
            result.losses.append(loss)
            result.learning_rates.append(rate)
            watch(model)
            if enough(result):
                break
        result.moments = side.moments(optimizer, model)
        average = getattr(optimizer, AVERAGE, None)
        if average is not None:
            arrays = average.arrays()
            read = {name: lambda array=array: array for name, array in arrays.items()}
            result.moments["average"] = Lazy(read)
        del optimizer, scheduler, given, average
    result.state = models.views(side, model)
    try:
        yield result
    finally:
        settle()
        result.state, result.moments = {}, {}
        models.release(side, model)


def train(
    side: Any, model: Any, plan: Request, dtype: str, rounded: str, *options: Any, **named: Any
) -> TrainingRun:
    """`trained` with everything kept; the options are the same."""
    store = Store()
    with trained(side, model, plan, dtype, rounded, *options, **named) as found:
        state = store.keep(found.state)
        moments = {kind: store.keep(arrays) for kind, arrays in found.moments.items()}
    found.state, found.moments = state, moments
    return found


def moved_vectors(state: Mapping[str, np.ndarray], trainable: set[str], seed: int) -> Arrays:
    """Constant vectors moved off their value, so that a forgotten or swapped one shows.

    A fresh bias is 0 and a fresh scale 1 in both models, whatever the port does with it.

    Args:
        state: the reference's tensors.
        trainable: names of its parameters.
        seed: of the draws.

    Returns:
        The tensors that moved.
    """
    rng = np.random.default_rng(seed)
    moved: Arrays = {}
    for name, value in state.items():
        constant = value.size > 1 and value.dtype.kind == "f" and value.min() == value.max()
        if constant and name.endswith("running_var"):
            moved[name] = rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
        elif constant and (name in trainable or name.endswith("running_mean")):
            moved[name] = (value + 0.1 * rng.normal(size=value.shape)).astype(value.dtype)
    return moved


def shaken(state: Arrays, trainable: set[str], seed: int) -> tuple[Arrays, list[str]]:
    """A state with its constant vectors moved, see `moved_vectors`, and their names."""
    moved = moved_vectors(state, trainable, seed)
    return {**state, **moved}, list(moved)


def rounded_state(
    state: Mapping[str, np.ndarray], dtype: str, rounded: str
) -> Mapping[str, np.ndarray]:
    """Floating tensors rounded to ``rounded`` and held as ``dtype``; not copied where they are."""
    if dtype == rounded and all(a.dtype.kind != "f" or a.dtype == dtype for a in state.values()):
        return state
    return cast(state, dtype, rounded)
