"""Running one model: a recorded pass, a training run. The side's module is an argument."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from align.frameworks.dropout_seen import without_dropout
from align.frameworks.factories import AVERAGE, make_step, next_rate
from align.record.arrays import Lazy, Store, TrainingRun, by_kind, is_array, replace
from align.record.recording import Recorder, Recording, loss_of, one_loss, run_model
from align.record.request import Request


def dropout_off(side: Any, train: bool) -> contextlib.AbstractContextManager[None]:
    """Return what switches dropout off in training mode; in eval mode nothing drops.

    Args:
        side: `on_torch` or `on_paddle`.
        train: whether the model is in training mode.
    """
    return without_dropout(side.FUNCTIONAL) if train else contextlib.nullcontext()


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
        stack.enter_context(dropout_off(side, plan.train))
        recorder = stack.enter_context(Recorder(side, model, deep=deep, tripled=tripled, only=only))
        stack.enter_context(moves or contextlib.nullcontext())
        pools = stack.enter_context(side.average_pools())
        output, watched = run_model(side, model, inputs)
        loss = one_loss(side, plan, output, dtype, rounded)
        if backward:
            side.backward(loss)
    del output
    recording = recorder.recording
    recording.loss, recording.stamp = side.numpy(loss), side.stamp(loss)
    recording.pooled = bool(pools)
    del loss
    recording.gradients = gradients(side, model)
    recording.input_gradients = {
        path: side.numpy(value.grad) for path, value in watched.items() if value.grad is not None
    }
    after = side.named(model)
    recording.state = {name: side.numpy(after[name]) for name in before}
    try:
        yield recording
    finally:
        side.clear(model)
        side.load(model, before)


def run(
    side: Any, model: Any, plan: Request, dtype: str, rounded: str, **options: Any
) -> Recording:
    """`passed` with everything kept; the options are the same."""
    with passed(side, model, plan, dtype, rounded, **options) as recording:
        recording.gradients = recording.store.keep(recording.gradients)
    return recording


def descend(
    side: Any,
    model: Any,
    plan: Request,
    dtype: str,
    rounded: str,
    optimizer: tuple[Any, Any],
    *,
    moves: Any = None,
) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Make training steps; yields each's (mean) loss, the rate it applied and the loss's stamp.

    Args:
        side: `on_torch` or `on_paddle`.
        model: in training mode; it is changed.
        plan: batches, loss and number of steps.
        dtype: precision of the run.
        rounded: precision of the pair.
        optimizer: and its scheduler, as `make_optimizer` returns them.
        moves: `MovedRoundings` of the reference; None for none.
    """
    share = plan.accumulate
    for step in range(plan.steps):
        total = 0.0
        with moves or contextlib.nullcontext():
            for number in range(step * share, (step + 1) * share):
                batch = plan.batch(number)
                fed = moved(batch.cast(dtype, rounded), moves)
                with dropout_off(side, True):
                    output, _ = run_model(side, model, fed)
                    loss = loss_of(side, batch, output, dtype, rounded)
                    side.backward(loss / share if share > 1 else loss)
                total += float(side.numpy(loss))
            step_result = total / share, side.rate(optimizer[0]), side.stamp(loss)
            del output, loss
            advance(side, *optimizer, model)
        yield step_result


def advance(side: Any, optimizer: Any, scheduler: Any, model: Any) -> None:
    """One optimizer step, the schedule after it, gradients forgotten."""
    make_step(side.NAME, optimizer)
    if scheduler is not None:
        next_rate(scheduler)
    side.clear(model)


@contextlib.contextmanager
def trained(
    side: Any,
    model: Any,
    plan: Request,
    dtype: str,
    rounded: str,
    moves: Any = None,
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
        steps = descend(side, model, plan, dtype, rounded, (optimizer, scheduler), moves=moves)
        for loss, rate, result.stamp in steps:
            result.losses.append(loss)
            result.learning_rates.append(rate)
            watch(model)
            if enough(result):
                break
        result.moments = by_kind(side.live_moments(optimizer, model), side.view)
        average = getattr(optimizer, AVERAGE, None)
        if average is not None:
            arrays = dict(average.arrays())
            result.moments["average"] = Lazy({n: partial(arrays.get, n) for n in arrays})
        del optimizer, scheduler, steps, average
    result.state = views(side, model)
    try:
        yield result
    finally:
        result.state, result.moments = {}, {}
        release(side, model)


def train(
    side: Any, model: Any, plan: Request, dtype: str, rounded: str, *options: Any, **named: Any
) -> TrainingRun:
    """`trained` with everything kept; the options are the same."""
    store = Store()
    with trained(side, model, plan, dtype, rounded, *options, **named) as training:
        state = store.keep(training.state)
        moments = {kind: store.keep(arrays) for kind, arrays in training.moments.items()}
    training.state, training.moments = state, moments
    return training


_GROUP = 2**22  # numbers of the weights written back to a model at a time
_LARGE = 2**24  # numbers of a model that is too large to wait for the next collection


def tensors(side: Any, model: Any) -> Lazy:
    """Every tensor of a live model by canonical name, each copied when it is read."""
    return Lazy({n: partial(side.numpy, tensor) for n, tensor in side.named(model).items()})


def views(side: Any, model: Any) -> Lazy:
    """Every tensor of a model that rests by canonical name, for a look: copied only if need be."""
    return Lazy({n: partial(side.view, tensor) for n, tensor in side.named(model).items()})


def gradients(side: Any, model: Any) -> Lazy:
    """Every gradient of a live model by canonical name, for a look."""
    with_gradient = {id(p) for p in model.parameters() if p.grad is not None}
    parameters = {n: p for n, p in side.named(model).items() if id(p) in with_gradient}

    def read(parameter: Any) -> np.ndarray:
        return side.view(parameter.grad)

    return Lazy({name: partial(read, parameter) for name, parameter in parameters.items()})


def release(side: Any, model: Any) -> None:
    """Free what an optimizer in a cycle of references still holds, where that is large."""
    if is_large(side, model):
        gc.collect()


def is_large(side: Any, model: Any) -> bool:
    """Whether a model is too large to wait for the next collection of garbage."""
    return sum(math.prod(tensor.shape) for tensor in side.named(model).values()) > _LARGE


def load(side: Any, model: Any, arrays: Mapping[str, np.ndarray], change: Callable | None) -> None:
    """Overwrite tensors group by group, each changed on its way."""
    for part in groups(arrays.items()):
        side.load(model, part if change is None else change(part))


def groups(tensors: Iterable[tuple[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Named arrays in groups of bounded size, so that a whole model is never held twice."""
    group: dict[str, np.ndarray] = {}
    for name, array in tensors:
        group[name] = array
        if sum(a.size for a in group.values()) >= _GROUP:
            yield group
            group = {}
    if group:
        yield group
