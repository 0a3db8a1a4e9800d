"""One side of a pair: its model of each precision with the pair's weights, run and trained.

A live pair has two of them, a dump is made with one. No framework is imported here: its module,
`on_torch` or `on_paddle`, is an argument. A model of each precision is built once and used again:
building BERT-base takes longer than running it, and every copy weighs as much as its weights. A
model that is asked for again gets its weights, its mode and its trainable flags back; what it keeps
outside of its state dict is its own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from align.frameworks.live_models import AVERAGE, make_step, next_rate, without_dropout
from align.judge.drift import Samples
from align.judge.noise_band import Kinds
from align.record.arrays import (
    Arrays,
    Lazy,
    Store,
    cast,
    is_array,
    replace,
)
from align.record.recording import (
    MovedRun,
    Recorder,
    Recording,
    TrainingRun,
    loss_of,
    one_loss,
    run_model,
)
from align.record.request import Request

if TYPE_CHECKING:
    from align.frameworks.moved_roundings import MovedRoundings

Sampler = Callable[[Any], np.ndarray]
"""Picks some of a model's weights, before the first training step and after every one."""
Prepare = Callable[[Any, Any], None]
"""Called with the optimizer and the model before the first training step."""
_FLAGS = {"PyTorch": "requires_grad", "Paddle": "stop_gradient"}


class Side:
    """One framework's model of a pair.

    In every run ``dtype`` is its precision and ``pair_dtype`` that of the pair, to which weights
    and inputs are rounded first. ``asked`` says how PyTorch's roundings are moved, None: they stay.

    Args:
        plan: says how a model is built; every run is given the plan that it follows.

    Attributes:
        weights: the side's tensors by canonical name, which every model is loaded with.
        constants: names of frozen tensors that the other side lacks: no noise moves them.
    """

    def __init__(self, framework: Any, plan: Request) -> None:
        self.framework, self.plan = framework, plan
        self.weights: Mapping[str, np.ndarray] = {}
        self.constants: Collection[str] = ()
        self.is_torch = framework.NAME == "PyTorch"
        self._built: dict[str, tuple[Any, list[tuple[Any, bool]]]] = {}
        self._adapt: Callable[[Any], None] = lambda _: None
        self._flag = _FLAGS[framework.NAME]
        self._loaded: dict[str, str] = {}
        """Precision -> that of the pair whose weights its model holds; absent where they may have
        changed since."""

    def of_pair(self, both: tuple[Any, Any] | list[Any]) -> Any:
        """Return this side's part of an argument (PyTorch's, Paddle's)."""
        return both[0 if self.is_torch else 1]

    def adapt(self, change: Callable[[Any], None]) -> None:
        """Change every model once: those that are built already now, others when they are built."""
        self._adapt = change
        for model, _ in self._built.values():
            change(model)

    def build(self, dtype: str, train: bool) -> Any:
        """Return the model of a precision, in the given mode, with the weights of its last use."""
        if dtype not in self._built:
            model = self.framework.prepare(self.plan, dtype, train)
            self._adapt(model)
            flags = [(p, getattr(p, self._flag)) for p in model.parameters()]
            self._built[dtype] = model, flags
        model, flags = self._built[dtype]
        if model.training != train:
            self.framework.set_mode(model, train)
        for parameter, flag in flags:
            setattr(parameter, self._flag, flag)
        if dtype not in self._loaded:
            self.framework.clear(model)
        return model

    def leave(self, dtype: str) -> None:
        """Give up the model of a precision; it is built anew when it is asked for again."""
        self._loaded.pop(dtype, None)
        model, _ = self._built.pop(dtype, (None, None))
        if model is not None:
            large = is_large(self.framework, model)
            del model
            if large:
                gc.collect()

    def model(
        self,
        dtype: str,
        pair_dtype: str,
        train: bool,
        *,
        will_change: bool = True,
        moves: MovedRoundings | None = None,
    ) -> Any:
        """Return the one model of a precision with the pair's weights; a second call resets it.

        Args:
            will_change: False where the caller leaves the weights as they are.
            moves: moves the weights by what they were rounded to.
        """
        model = self.build(dtype, train)
        if self._loaded.pop(dtype, None) != pair_dtype or moves is not None:
            for group in self._groups():
                arrays = cast(group, dtype, pair_dtype)
                if moves is not None:
                    constants = {name: arrays[name] for name in arrays if name in self.constants}
                    arrays = {**moves.arrays(arrays), **constants}
                self.framework.load(model, arrays)
        if not will_change and moves is None:
            self._loaded[dtype] = pair_dtype
        return model

    def _groups(self) -> Iterator[Arrays]:
        """The weights, some at a time, so that a whole model is never held twice."""
        group: Arrays = {}
        for name in self.weights:
            group[name] = self.weights[name]
            if sum(array.size for array in group.values()) >= _GROUP:
                yield group
                group.clear()
        yield group

    @contextlib.contextmanager
    def open_pass(
        self,
        plan: Request,
        dtype: str,
        pair_dtype: str,
        *,
        asked: MovedRun | None = None,
        deep: bool = False,
        tripled: str = "",
        backward: bool = True,
        only: Collection[str] | None = None,
    ) -> Iterator[Recording]:
        """Run one forward and backward pass, to be looked at inside a ``with`` block.

        The parameters' gradients are read off the live model, so they cost no memory and are gone
        at the end of the block. Then the tensors that a pass moves (running statistics) are put
        back.

        Args:
            deep: record the inputs of every call as well.
            tripled: key of a call whose gradient is planted wrong.
            backward: False for the forward pass and the loss alone.
            only: the layers to record, None for all.
        """
        side, moves = self.framework, _moves(asked, dtype)
        model = self.model(dtype, pair_dtype, plan.train, will_change=False, moves=moves)
        inputs = _moved(plan.cast(dtype, pair_dtype), moves)
        side.clear(model)
        with kept(side, model, untrained(side, model)) as before:
            with contextlib.ExitStack() as stack:
                stack.enter_context(side.default_dtype(dtype))
                stack.enter_context(dropout_off(side, plan.train))
                recorder = Recorder(side, model, deep=deep, tripled=tripled, only=only)
                stack.enter_context(moves or contextlib.nullcontext())
                pools = stack.enter_context(side.average_pools())
                with recorder.hooked():
                    output, watched = run_model(side, model, inputs)
                    loss = one_loss(side, plan, output, dtype, pair_dtype)
                if backward:  # which may compute layers again (recompute)
                    side.backward(loss)
            del output
            recording = recorder.recording
            recording.loss, recording.stamp = side.numpy(loss), side.stamp(loss)
            recording.pooled = bool(pools)
            del loss
            recording.gradients = _gradients(side, model)
            recording.input_gradients = {
                path: side.numpy(value.grad)
                for path, value in watched.items()
                if value.grad is not None
            }
            after = side.named(model)
            recording.state = {name: side.numpy(after[name]) for name in before}
            yield recording

    def record_pass(self, plan: Request, dtype: str, pair_dtype: str, **options: Any) -> Recording:
        """Return one pass with everything kept; the options are those of `open_pass`."""
        with self.open_pass(plan, dtype, pair_dtype, **options) as recording:
            recording.gradients = recording.store.keep(recording.gradients)
        return recording

    @contextlib.contextmanager
    def open_training(
        self,
        plan: Request,
        dtype: str,
        pair_dtype: str,
        *,
        asked: MovedRun | None = None,
        sample: Sampler | None = None,
        prepare: Prepare = lambda *_: None,
    ) -> Iterator[TrainingRun]:
        """Train for the plan's steps on its batches; look at the run in a ``with`` block.

        Yields:
            TrainingRun: losses, rates, final tensors and moments, by canonical name; the tensors
            are read off the live model and gone at the end of the block.
        """
        side, moves = self.framework, _moves(asked, dtype)
        model = self.model(dtype, pair_dtype, True, moves=moves)
        result = TrainingRun(samples=Samples())
        with side.default_dtype(dtype):
            optimizer, scheduler = side.make_optimizer(plan, model)
            prepare(optimizer, model)
            if sample is not None:
                result.samples.add(sample(model))
            for step in range(plan.steps):
                with moves or contextlib.nullcontext():
                    loss, result.stamp = self._descend(model, plan, step, dtype, pair_dtype, moves)
                    result.losses.append(loss)
                    result.learning_rates.append(max(side.rates(optimizer, model)))
                    make_step(side.NAME, optimizer)
                    if scheduler is not None:
                        next_rate(scheduler)
                    side.clear(model)
                if sample is not None:
                    result.samples.add(sample(model))
            for name, kinds in side.live_moments(optimizer, model).items():
                for kind, tensor in kinds.items():
                    moments = result.moments.setdefault(kind, Lazy())
                    moments.hold(name, functools.partial(side.view, tensor))
            average = getattr(optimizer, AVERAGE, None)
            if average is not None:
                result.moments["average"] = _averages(side, model, average)
            del optimizer, scheduler, average
        named = side.named(model).items()
        result.state = Lazy({name: functools.partial(side.view, tensor) for name, tensor in named})
        try:
            yield result
        finally:
            result.state, result.moments = {}, {}
            if is_large(side, model):  # an optimizer in a cycle of references still holds moments
                gc.collect()

    def _descend(
        self,
        model: Any,
        plan: Request,
        step: int,
        dtype: str,
        pair_dtype: str,
        moves: MovedRoundings | None,
    ) -> tuple[float, Mapping[str, Any]]:
        """Compute the gradients of a step; return its mean loss and who computed it."""
        side, share, total = self.framework, plan.accumulate, 0.0
        for number in range(step * share, (step + 1) * share):
            batch = plan.batch(number)
            fed = _moved(batch.cast(dtype, pair_dtype), moves)
            with dropout_off(side, True):
                output, _ = run_model(side, model, fed)
                loss = loss_of(side, batch, output, dtype, pair_dtype)
                side.backward(loss / share if share > 1 else loss)
            total += float(side.numpy(loss))
        return total / share, side.stamp(loss)

    def train(
        self,
        plan: Request,
        dtype: str,
        pair_dtype: str,
        sample: Sampler | None = None,
        prepare: Prepare = lambda *_: None,
    ) -> TrainingRun:
        """Return one training run, kept; PyTorch's has to be the same again, see `repeated`."""

        def run() -> TrainingRun:
            store = Store()
            opened = self.open_training(plan, dtype, pair_dtype, sample=sample, prepare=prepare)
            with opened as live:
                state = store.keep(live.state)
                moments = {kind: store.keep(arrays) for kind, arrays in live.moments.items()}
            live.state, live.moments = state, moments
            return live

        return repeated(self.framework, run) if self.is_torch else run()


def measured_training(run: TrainingRun, steady: np.ndarray) -> Kinds:
    """Return what the noise band measures of a run of the reference, in PyTorch's names."""

    def judged_weights(step: int) -> np.ndarray:
        return run.samples[step][steady]

    steps = range(1, len(run.samples))
    return {
        "losses": {"losses": np.asarray(run.losses)},
        "state": run.state,
        "drift": Lazy({str(step): functools.partial(judged_weights, step) for step in steps}),
        **run.moments,
    }


_AGAIN = 2  # runs that have to agree: a rare draw, a layer that is skipped, may not show in one
_ROUNDINGS = 256  # by which two runs of the same numbers may differ, where kernels add in any order

Run = TypeVar("Run", Recording, TrainingRun)


def repeated(side: Any, run: Callable[[], Run]) -> Run:
    """Return a run of the reference; one in which a generator moved has to give the same again.

    Raises:
        ValueError: it does not, see `refuse_scatter`.
    """
    before = side.generators()
    first = run()
    for _ in range(_AGAIN if side.generators() != before else 0):
        refuse_scatter(side, first, run())
    return first


def refuse_scatter(side: Any, a: Run, b: Run) -> None:
    """Refuse two runs of one side that differ: the reference's scatter would pass for rounding.

    Raises:
        ValueError: they differ, and where first.
    """
    where = first_difference(a, b)
    if where is not None:
        raise ValueError(
            f"two runs of the {side.NAME} side differ at {where}: it draws by chance (noise, a "
            "dropout of its own) or goes on from its last run, and against that nothing can be "
            "judged; hand the numbers to both sides as an input"
        )


def first_difference(a: Any, b: Any) -> str | None:
    """Return the first place where two runs of one side differ, None without."""
    if isinstance(a, TrainingRun):
        for step, (x, y) in enumerate(zip(a.losses, b.losses, strict=True), 1):
            if _differ(np.float32(x), np.float32(y)):
                return f"the loss of step {step}"
        return None
    for key, call in a.calls.items():
        again = b.calls[key].outputs if key in b.calls else {}
        if len(again) != len(call.outputs) or any(
            _differ(x, y) for x, y in zip(call.outputs.values(), again.values(), strict=True)
        ):
            return key
    return "the loss" if _differ(a.loss, b.loss) else None


def _differ(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind != "f":
        return not np.array_equal(a, b)
    room = _ROUNDINGS * float(np.finfo(a.dtype).eps) * float(np.abs(b).max(initial=0.0))
    return not np.allclose(a, b, rtol=0.0, atol=room, equal_nan=True)


_GROUP = 2**22  # numbers of the weights written back to a model at a time
_LARGE = 2**24  # numbers of a model that is too large to wait for the next collection


def dropout_off(side: Any, train: bool) -> contextlib.AbstractContextManager[None]:
    """Return what switches dropout off in training mode; in eval mode nothing drops."""
    return without_dropout(side.FUNCTIONAL) if train else contextlib.nullcontext()


def tensors(side: Any, model: Any) -> Lazy:
    """Return every tensor of a live model by canonical name, each copied when it is read."""
    named = side.named(model).items()
    return Lazy({name: functools.partial(side.numpy, tensor) for name, tensor in named})


@contextlib.contextmanager
def kept(side: Any, model: Any, live: Mapping[str, Any] | None = None) -> Iterator[Arrays]:
    """Put tensors of a model back at the end of the block and clear its gradients.

    Args:
        live: the tensors by canonical name, None for all of the model.

    Yields:
        Arrays: what is put back.
    """
    live = side.named(model) if live is None else live
    before = {name: side.numpy(tensor) for name, tensor in live.items()}
    try:
        yield before
    finally:
        side.clear(model)
        side.load(model, before)


def untrained(side: Any, model: Any) -> dict[str, Any]:
    """Return the live tensors that a pass may move without an optimizer: all not trained."""
    trained = {id(p) for p in model.parameters() if side.needs_gradient(p)}
    return {name: tensor for name, tensor in side.named(model).items() if id(tensor) not in trained}


def is_large(side: Any, model: Any) -> bool:
    """Say whether a model is too large to wait for the next collection of garbage."""
    return sum(math.prod(tensor.shape) for tensor in side.named(model).values()) > _LARGE


def _moves(asked: MovedRun | None, dtype: str) -> MovedRoundings | None:
    """Return what moves the roundings of a run, None where nothing is asked."""
    if asked is None:
        return None
    from align.frameworks.moved_roundings import MovedRoundings  # PyTorch's side alone

    return MovedRoundings(asked, dtype)


def _moved(value: Any, moves: MovedRoundings | None) -> Any:
    """Return a structure with its floating arrays moved, as it is without moves."""
    return value if moves is None else replace(value, is_array, lambda _, a: moves.array(a))


def _averages(side: Any, model: Any, average: Any) -> dict[str, np.ndarray]:
    """What a moving average of the user's holds, by the model's own names.

    Raises:
        ValueError: it has other names.
    """
    arrays, names = dict(average.arrays()), [*side.named(model)]
    unknown = [name for name in arrays if name not in names]
    if unknown:
        raise ValueError(
            f"average: arrays() of the {side.NAME} side has the name {unknown[0]!r}, expected "
            f"names of the model's state dict, like {names[0]!r}"
        )
    return arrays


def _gradients(side: Any, model: Any) -> Lazy:
    """Return every gradient of a live model by canonical name, for a look."""

    def read(parameter: Any) -> np.ndarray:
        return side.view(parameter.grad)

    trained = {id(p) for p in model.parameters() if p.grad is not None}
    named = side.named(model).items()
    return Lazy({name: functools.partial(read, p) for name, p in named if id(p) in trained})
