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
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from align.judge.drift import Track
from align.judge.noise_band import Kinds, kinds_of
from align.pair import runs
from align.record.arrays import Arrays, Lazy, MovedRun, TrainingRun, cast, leaves, rounded_state
from align.record.recording import ROOT, Recording
from align.record.request import Request

if TYPE_CHECKING:
    from align.frameworks.moved_roundings import MovedRoundings

METRIC = "metric"
Watch = Callable[[Any], None]
"""Called with the model before the first training step and after every one."""
Follow = Callable[[Any, Any], None]
"""Called with the optimizer and the model before the first training step."""
_FLAGS = {"PyTorch": "requires_grad", "Paddle": "stop_gradient"}


class Side:
    """One framework's model of a pair.

    Args:
        framework: `on_torch` or `on_paddle`.
        plan: how to build. What a run does is the plan that it is given, often the same.

    Attributes:
        weights: the side's tensors by canonical name, which every model is loaded with.
        constants: those that no training moves and the other side has not.
    """

    def __init__(self, framework: Any, plan: Request) -> None:
        self.framework, self.plan = framework, plan
        self.weights: Mapping[str, np.ndarray] = {}
        self.constants: Collection[str] = ()
        self.is_torch = framework.NAME == "PyTorch"
        self._built: dict[str, tuple[Any, list[tuple[Any, bool]]]] = {}
        self._adapt: Callable[[Any], None] = lambda _: None
        self._flag = _FLAGS[framework.NAME]
        self._rounded: dict[str, str] = {}
        """Precision -> to which one the weights that its model holds now were rounded; absent
        where they may have changed since."""

    def _of_pair(self, both: tuple[Any, Any] | list[Any]) -> Any:
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
        if dtype not in self._rounded:
            self.framework.clear(model)
        return model

    def leave(self, dtype: str) -> None:
        """Give up the model of a precision; it is built anew when it is asked for again."""
        self._rounded.pop(dtype, None)
        model, _ = self._built.pop(dtype, (None, None))
        if model is not None:
            large = runs.is_large(self.framework, model)
            del model
            if large:
                gc.collect()

    def model(self, dtype: str, rounded: str, train: bool, *, will_change: bool = True) -> Any:
        """Return the one model of a precision with the pair's weights; a second call resets it.

        Args:
            dtype: precision of the run.
            rounded: precision of the pair, to which the weights are rounded first.
            train: in training mode.
            will_change: False where the caller leaves the weights as they are.
        """
        model = self.build(dtype, train)
        if self._rounded.pop(dtype, None) != rounded:
            runs.load(
                self.framework,
                model,
                self.weights,
                lambda part: rounded_state(part, dtype, rounded),
            )
        if not will_change:
            self._rounded[dtype] = rounded
        return model

    def open_pass(
        self, plan: Request, dtype: str, rounded: str, **options: Any
    ) -> contextlib.AbstractContextManager[Recording]:
        """Return one pass to be looked at in a ``with`` block; the options are `runs.passed`'s."""
        model = self.model(dtype, rounded, plan.train, will_change=False)
        return runs.passed(self.framework, model, plan, dtype, rounded, **options)

    def record_pass(self, plan: Request, dtype: str, rounded: str, **options: Any) -> Recording:
        """Return one pass, kept; the options are those of `runs.passed`."""
        model = self.model(dtype, rounded, plan.train, will_change=False)
        return runs.run(self.framework, model, plan, dtype, rounded, **options)

    @contextlib.contextmanager
    def open_moved_pass(
        self, plan: Request, dtype: str, asked: MovedRun, **options: Any
    ) -> Iterator[Kinds]:
        """Yield a pass of PyTorch's with moved roundings, as the noise band measures it."""
        moves, model = self._moved(dtype, asked, plan.train)
        with runs.passed(
            self.framework, model, plan, dtype, dtype, moves=moves, **options
        ) as recording:
            yield kinds_of(recording)

    def _moved(self, dtype: str, asked: MovedRun, train: bool) -> tuple[MovedRoundings, Any]:
        """Return moved roundings, and the model with moved weights."""
        from align.frameworks.moved_roundings import MovedRoundings  # PyTorch's side alone

        moves = MovedRoundings(asked, dtype)
        model = self.build(dtype, train)
        self._rounded.pop(dtype, None)

        def moved(part: Mapping[str, np.ndarray]) -> Arrays:
            arrays = rounded_state(part, dtype, dtype)
            constants = {name: arrays[name] for name in arrays if name in self.constants}
            return {**moves.arrays(arrays), **constants}  # moved by what they were rounded to

        runs.load(self.framework, model, self.weights, moved)
        return moves, model

    def train(
        self,
        plan: Request,
        dtype: str,
        rounded: str,
        watch: Watch | None = None,
        follow: Follow | None = None,
    ) -> TrainingRun:
        """Return one training run, kept; PyTorch's has to be the same again, see `repeated`."""

        def run(first: bool) -> TrainingRun:
            return runs.train(
                self.framework,
                self.model(dtype, rounded, True),
                plan,
                dtype,
                rounded,
                watch=watch if first else None,
                follow=follow,
            )

        return repeated(self.framework, run) if self.is_torch else run(True)

    def open_training(
        self, plan: Request, dtype: str, **options: Any
    ) -> contextlib.AbstractContextManager[TrainingRun]:
        """Return a training for a ``with`` block that judges it; see `runs.trained`."""
        model = self.model(dtype, dtype, True)
        return runs.trained(self.framework, model, plan, dtype, dtype, **options)

    @contextlib.contextmanager
    def open_moved_training(
        self,
        plan: Request,
        dtype: str,
        asked: MovedRun,
        sample: Callable[[Any], np.ndarray],
        steady: np.ndarray,
        follow: Follow | None = None,
    ) -> Iterator[Kinds]:
        """Yield a training of PyTorch's with moved roundings, as the noise band measures it.

        Args:
            plan: what to run.
            dtype: precision of run and pair.
            asked: how the roundings are moved.
            sample: takes the elements of a model whose drift is followed.
            steady: places of those that are judged.
            follow: see `Follow`.
        """
        moves, model = self._moved(dtype, asked, True)
        track = Track(sample)
        with runs.trained(
            self.framework, model, plan, dtype, dtype, moves=moves, watch=track.watch, follow=follow
        ) as run:
            yield measured_training(run, track, steady)

    def build_as_given(self, plan: Request) -> Any:
        """Return the user's model as it came.

        Instances are read as they are; callables build their models in float32, the precision of
        stored weights.
        """
        model = self._of_pair((plan.torch_module, plan.paddle_layer))
        dtype = "float64" if hasattr(model, "state_dict") else "float32"
        return self.framework.prepare(plan, dtype, plan.train)

    def compute_scores(
        self, plan: Request, output: np.ndarray, dtype: str
    ) -> tuple[dict[str, float], Mapping[str, Any]]:
        """Return the scores of this side's metric by their names in the report, and a stamp.

        Args:
            plan: its metric and labels.
            output: of the reference.
            dtype: precision of the pair.

        Raises:
            ValueError: the metric returns something else than a number or a mapping of numbers.
        """
        framework = self.framework
        labels = cast(np.asarray(plan.labels), dtype, dtype)
        tensor = framework.tensor(output)
        with framework.default_dtype(dtype):
            score = self._of_pair(plan.metric)(tensor, framework.tensor(labels))
        if not isinstance(score, Mapping):
            return {METRIC: self._number(score, METRIC)}, framework.stamp(tensor)
        scores = {
            f"{METRIC} {name}": self._number(value, name)
            for name, value in leaves(score, lambda value: not isinstance(value, Mapping))
        }
        if not scores:
            raise ValueError(f"metric: the {framework.NAME} function returned an empty mapping")
        return scores, framework.stamp(tensor)

    def _number(self, value: Any, name: str) -> float:
        framework = self.framework
        value = framework.numpy(value) if framework.is_tensor(value) else value
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise ValueError(
                f"metric: {name!r} of the {framework.NAME} side is a {type(value).__name__} of "
                f"shape {array.shape}, expected one number (or a mapping of numbers)"
            )
        return float(array.reshape(()))

    def compute_rates(self, plan: Request) -> np.ndarray:
        """Return the rates (steps,) of this side's callable in the plan's schedule.

        Raises:
            ValueError: something else than so many finite numbers.
        """
        steps, whose = plan.schedule_steps, f"schedule: {self.framework.NAME}'s callable"
        returned = self._of_pair(plan.schedule)(steps)
        try:
            rates = np.asarray([float(rate) for rate in returned])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{whose} returned {type(returned).__name__}, expected {steps} numbers ({error})"
            ) from error
        if rates.shape != (steps,):
            raise ValueError(
                f"{whose} returned {len(rates)} rates, expected {steps} (schedule_steps)"
            )
        if not np.isfinite(rates).all():
            raise ValueError(f"{whose} returned a rate that is not finite")
        return rates


def scored_output(recording: Recording) -> np.ndarray:
    """Return the output that the metric of both sides is given.

    Raises:
        ValueError: the model returns no floating tensor.
    """
    outputs = [a for _, a in recording.calls[ROOT].outputs if a.dtype.kind == "f" and a.size]
    if not outputs:
        raise ValueError("metric: the model returns no floating tensor")
    return outputs[0]


def measured_training(run: TrainingRun, track: Track | None, steady: np.ndarray) -> Kinds:
    """Return what the noise band measures of a run of the reference, in PyTorch's names."""
    steps = range(1, len(track) if track is not None else 0)
    drift = {str(step): functools.partial(_chosen, track, step, steady) for step in steps}
    return {
        "losses": {"losses": np.asarray(run.losses)},
        "state": run.state,
        "drift": Lazy(drift),
        **run.moments,
    }


def _chosen(track: Track, step: int, steady: np.ndarray) -> np.ndarray:
    return track[step][steady]


_AGAIN = 2  # runs that have to agree: a rare draw, a layer that is skipped, may not show in one
_ROUNDINGS = 256  # by which two runs of the same numbers may differ, where kernels add in any order

Run = TypeVar("Run", Recording, TrainingRun)


def repeated(side: Any, run: Callable[[bool], Run]) -> Run:
    """Return a run of the reference; one in which a generator moved has to give the same again.

    Args:
        side: `on_torch`.
        run: makes it, told whether it is the first time.

    Raises:
        ValueError: it does not, see `no_scatter`.
    """
    before = side.generators()
    first = run(True)
    for _ in range(_AGAIN if side.generators() != before else 0):
        no_scatter(side, first, run(False))
    return first


def no_scatter(side: Any, a: Run, b: Run) -> None:
    """Refuse two runs of one side that differ: the reference's scatter would pass for rounding.

    Raises:
        ValueError: they are not; the first place that differs.
    """
    where = differs(a, b)
    if where is not None:
        raise ValueError(
            f"two runs of the {side.NAME} side differ at {where}: it draws by chance (noise, a "
            "dropout of its own) or goes on from its last run, and against that nothing can be "
            "judged; hand the numbers to both sides as an input"
        )


def differs(a: Any, b: Any) -> str | None:
    """Return the first place where two runs of one side differ, None without."""
    if isinstance(a, TrainingRun):
        pairs = zip(a.losses, b.losses, strict=True)
        apart = (_apart(np.float32(x), np.float32(y)) for x, y in pairs)
        return next((f"the loss of step {i}" for i, differ in enumerate(apart, 1) if differ), None)
    for key, call in a.calls.items():
        again = b.calls[key].outputs if key in b.calls else ()
        if len(again) != len(call.outputs) or any(
            _apart(x, y) for (_, x), (_, y) in zip(call.outputs, again, strict=True)
        ):
            return key
    return "the loss" if _apart(a.loss, b.loss) else None


def _apart(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind != "f":
        return not np.array_equal(a, b)
    room = _ROUNDINGS * float(np.finfo(a.dtype).eps) * float(np.abs(b).max(initial=0.0))
    return not np.allclose(a, b, rtol=0.0, atol=room, equal_nan=True)
