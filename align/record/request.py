"""What a user asks of a comparison, in one record: names, defaults, meaning and every check.

`align.compare`, a spec file, a dump and a scene of the certificate all read this record. Of a
training run the batches are checked one by one: pairs (inputs, labels).
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import numpy as np

from align.record.arrays import cast, is_array, leaves, pick

LOSSES = ("cross_entropy", "mse")
DTYPES = ("float64", "float32")
DROPOUT = ("off", "compare")
EXACT_DECAY = 2.0**-7  # Paddle holds the coefficient in float32: a power of two loses nothing there
OPTIMIZERS: Mapping[str, Mapping[str, float]] = {
    "sgd": {"lr": 0.01, "momentum": 0.0, "weight_decay": 0.0},
    "adamw": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": EXACT_DECAY},
}
"""The optimizers that have a name, with their options and defaults."""
_ALIKE = 0.75  # of two names, as difflib counts it: one of them is probably misspelled
_PLAIN = {"bool": "True or False", "str": "text", "int": "a whole number >= 0"}
_Function = TypeVar("_Function", bound=Callable)


@dataclass(frozen=True, eq=False)
class Request:
    """What to compare and how, checked.

    Args:
        torch_module: torch.nn.Module, or a callable without arguments that builds one (then both
            sides are built in each precision, constants included).
        paddle_layer: paddle.nn.Layer, or a callable without arguments that builds one.
        inputs: NumPy arrays, a tuple by position or a dict by keyword; floating ones are cast.
        loss: None (outputs summed with fixed random weights), "cross_entropy", "mse", or a pair of
            callables (torch, paddle) that take the output, and the labels when there are some.
        labels: NumPy array for the loss.
        batches: training only: (inputs, labels) of the batch of each step, each in the form of
            `inputs` and `labels`, in a sequence, or a callable without arguments that returns one.
            The first `steps` of them (times `accumulate`) are read; when there are fewer, they are
            used again from the first. Their sizes may differ. Without it every step trains on
            `inputs` and `labels`.
        optimizer: "sgd", "adamw", {"name": ..., options}, or a pair of factories that take the
            model and return the optimizer, (optimizer, scheduler), (optimizer, scheduler,
            before_step) or (optimizer, scheduler, before_step, average).
        weights: names that do not match: a dict of PyTorch -> Paddle names (``{}`` for an index,
            ``*`` for any text; a name, or a pair of it and a function of the array, such as
            ``lambda w: w.reshape(...)``), the path of a table, such as a confirmed draft, the
            `sot_paddle.convert.ConversionPlan` of a layout, in either direction, or "draft" for the
            first candidates of the draft.
        steps: training steps to compare.
        accumulate: batches for each step: the mean of their losses gives its gradient.
        dtype: "float64", "float32", or both.
        seed: of everything that is drawn.
        train: compare in training mode, with dropout off.
        shake: move fresh zeros and ones of biases and norms off their values on both sides.
        outputs: what of each side's output is compared: (torch, paddle), each None for all of it, a
            key, index or dotted path, or a callable of the output; a single one is for both.
        inject: also feed each layer the reference's inputs and list every wrong one; after a
            failed forward pass this is done anyway, to name the place.
        name: of the pair in the report.
        data: (torch_batches, paddle_batches): what each side's loader yields, as iterables or
            callables without arguments; a batch is a mapping or a sequence of arrays.
        metric: (torch_metric, paddle_metric): callables of (output, labels) that return a number or
            a mapping of numbers; both judge the reference's output.
        schedule: (torch_rates, paddle_rates): callables from a number of steps to the rate of each;
            without it the schedulers that the optimizer factories return are read.
        schedule_steps: how many learning rates are compared, 0 for none; with optimizer factories
            at least the training steps.
        converted: the Paddle layer holds weights that you converted: compare every one of them.
        dropout: "off", or "compare": the dropout calls of both sides in training mode, by place, p,
            mode and axes; values are compared without dropout.

    Raises:
        ValueError: an argument that means nothing, alone or beside the others.
    """

    torch_module: Any
    paddle_layer: Any
    inputs: Any
    _: KW_ONLY
    loss: Any = None
    labels: Any = None
    batches: Any = None
    optimizer: Any = None
    weights: Any = None
    steps: int = 0
    accumulate: int = 1
    dtype: Any = DTYPES
    seed: int = 0
    train: bool = False
    shake: bool = True
    inject: bool = False
    name: str = "pair"
    data: Any = None
    metric: Any = None
    schedule: Any = None
    schedule_steps: int = 0
    converted: bool = False
    dropout: str = "off"
    outputs: Any = None

    def __post_init__(self) -> None:
        self._check_plain_values()
        self._hold("inputs", given_inputs("inputs", self.inputs))
        self._hold("outputs", self._checked_outputs())
        self._check_loss()
        self._hold("optimizer", self._checked_optimizer())
        if is_pair(self.optimizer) and not self.schedule_steps:
            self._hold("schedule_steps", self.steps)
        self._check_stages()
        if self.batches is not None:
            count = self.steps * self.accumulate
            batches = read_batches(self.batches, count, self.inputs, self.labels)
            self._hold("batches", tuple(batches))

    def _checked_outputs(self) -> tuple[Any, Any]:
        both = self.outputs if isinstance(self.outputs, (tuple, list)) else (self.outputs,) * 2
        plain = (str, int, type(None))
        if len(both) != 2 or not all(callable(side) or isinstance(side, plain) for side in both):
            raise ValueError(
                f"outputs {self.outputs!r}: expected a key, an index, or a pair (torch, paddle) of "
                "keys, indices or callables"
            )
        return tuple(both)

    def picks(self, side: int) -> Callable[[Any], Any] | None:
        """What turns the output of side 0 (PyTorch) or 1 (Paddle) into what is compared."""
        key = self.outputs[side]
        return key if key is None or callable(key) else lambda output: pick(output, str(key))

    def _hold(self, name: str, value: Any) -> None:
        """Put what was given in another form into its one form."""
        object.__setattr__(self, name, value)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The precisions to run, in this order."""
        return (self.dtype,) if isinstance(self.dtype, str) else tuple(self.dtype)

    @property
    def notes(self) -> list[str]:
        """What the reader of the report has to know about the request."""
        count, notes = len(self.batches or ()), []
        for path, value in leaves(self.inputs, is_array):
            array = np.asarray(value)  # a mask that masks nothing
            if array.size > 1 and array.dtype.kind in "iub" and array.min() == array.max():
                only = f"input {path} is {array.flat[0]} everywhere"
                notes.append(f"{only}: what another value does is not compared")
        if 0 < count < self.steps * self.accumulate:
            again = "they are used again from the first"
            notes.append(f"{count} batches for {self.steps} steps: {again}")
        if self.dropout == "off" and (self.train or self.steps):
            notes.append("dropout is off in training mode; dropout='compare' compares what drops")
        return notes

    def batch(self, number: int) -> Request:
        """The request with the inputs and labels of a training batch, counted from 0."""
        if not self.batches:
            return self
        inputs, labels = self.batches[number % len(self.batches)]
        return dataclasses.replace(self, inputs=inputs, labels=labels, batches=None)

    def arrays(self) -> Iterator[np.ndarray]:
        """Everything that is fed: inputs, labels and batches."""
        return (a for _, a in leaves((self.inputs, self.labels, self.batches), is_array))

    def cast(self, dtype: str, rounded: str) -> Any:
        """The inputs with floating arrays rounded to ``rounded`` and held as ``dtype``."""
        return cast(self.inputs, dtype, rounded)

    def _check_plain_values(self) -> None:
        """Flags, whole numbers, names and precisions."""
        for field in dataclasses.fields(self):
            value, kind = getattr(self, field.name), str(field.type)
            is_other = kind in _PLAIN and type(value).__name__ != kind
            if is_other or (kind == "int" and value < 0):
                raise ValueError(f"{field.name} {value!r}: expected {_PLAIN[kind]}")
        several = isinstance(self.dtype, (str, tuple, list))
        if not several or not self.dtypes or not all(dtype in DTYPES for dtype in self.dtypes):
            raise ValueError(f"dtype {self.dtype!r}: expected some of {', '.join(DTYPES)}")

    def _check_loss(self) -> None:
        if isinstance(self.labels, (str, Mapping)) or _is_ragged(self.labels):
            raise ValueError(f"labels: got {type(self.labels).__name__}, expected one NumPy array")
        if is_pair(self.loss) and all(callable(function) for function in self.loss):
            return
        if self.loss is not None and not (isinstance(self.loss, str) and self.loss in LOSSES):
            raise ValueError(
                f"loss {self.loss!r}: expected None, {', '.join(LOSSES)}, or a pair of callables "
                "(torch, paddle)"
            )
        if self.loss is not None and self.labels is None:
            raise ValueError(f"loss {self.loss!r} needs labels=")
        if self.loss is None and self.labels is not None and self.metric is None:
            raise ValueError("labels= without loss= or metric=: say what they are for")

    def _checked_optimizer(self) -> Any:
        if self.steps and self.optimizer is None:
            raise ValueError("steps= needs optimizer=: sgd, adamw, or a pair of factories")
        if self.accumulate < 1 or (self.accumulate > 1 and not self.steps):
            raise ValueError(
                f"accumulate {self.accumulate!r}: expected 1 or more batches for each of steps="
            )
        if self.optimizer is not None and not (self.steps or self.schedule_steps):
            raise ValueError("optimizer= without steps=: say how many steps to train")
        optimizer = self.optimizer
        if optimizer is None or is_pair(optimizer):
            return optimizer
        if not isinstance(optimizer, (str, Mapping)):
            kind = type(optimizer).__name__
            raise ValueError(f"optimizer: got {kind}, expected a name or a dict")
        options = {"name": optimizer} if isinstance(optimizer, str) else dict(optimizer)
        name = options.pop("name", None)
        if name not in OPTIMIZERS:
            raise ValueError(
                f"optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}, or a pair of "
                "factories (torch, paddle)"
            )
        unknown = sorted(set(options) - set(OPTIMIZERS[name]))
        if unknown:
            raise ValueError(
                f"optimizer {name}: unknown option {unknown[0]!r}; known: "
                f"{', '.join(OPTIMIZERS[name])}"
            )
        return {"name": name, **OPTIMIZERS[name], **options}

    def _check_stages(self) -> None:
        for name in ("data", "metric", "schedule"):
            pair = getattr(self, name)
            if pair is not None and not is_pair(pair):
                raise ValueError(
                    f"{name}: got {type(pair).__name__}, expected a pair (torch, paddle)"
                )
            if name != "data" and not all(callable(side) for side in pair or ()):
                raise ValueError(f"{name}: expected a pair of callables (torch, paddle)")
        if self.metric is not None and self.labels is None:
            raise ValueError("metric= needs labels=")
        if self.schedule is not None and not self.schedule_steps:
            raise ValueError("schedule= needs schedule_steps=: how many rates to compare")
        if self.schedule_steps and self.schedule is None and self.optimizer is None:
            raise ValueError("schedule_steps= needs schedule=, or optimizer= with a scheduler")
        if self.dropout not in DROPOUT:
            raise ValueError(f"dropout {self.dropout!r}: expected one of {', '.join(DROPOUT)}")
        if self.dropout == "compare" and not (self.train or self.steps):
            raise ValueError("dropout='compare' needs train=True or steps= (eval drops nothing)")


FIELDS = tuple(field.name for field in dataclasses.fields(Request))
NEEDED, OPTIONS = FIELDS[:3], FIELDS[3:]
"""What a request must and may say."""


def nearest(name: str) -> str:
    """The field that a name is probably meant for, "" when it is like none of them."""
    return next(iter(difflib.get_close_matches(name.lower(), FIELDS, 1, _ALIKE)), "")


def request_of(*needed: Any, **options: Any) -> Request:
    """A request from arguments by name.

    Raises:
        TypeError: a name that does not exist; says which one is meant.
        ValueError: see `Request`.
    """
    unknown = next((name for name in options if name not in FIELDS), None)
    if unknown is not None:
        meant = nearest(unknown)
        advice = f"did you mean {meant!r}?" if meant else f"known: {', '.join(OPTIONS)}"
        raise TypeError(f"unknown argument {unknown!r}: {advice}")
    return Request(*needed, **options)


def documented(function: _Function) -> _Function:
    """Show help() of a function with ``**options`` the fields of a request and their meanings."""
    signature = inspect.signature(function)
    fields = inspect.signature(Request).parameters.values()
    others = [p for p in signature.parameters.values() if p.name not in (*FIELDS, "options")]
    function.__signature__ = signature.replace(parameters=[*fields, *others])
    meanings = str(Request.__doc__).partition("Args:\n")[2].partition("\n\n")[0]
    function.__doc__ = str(function.__doc__).replace("    Args:\n", f"    Args:\n{meanings}\n", 1)
    return function


def is_pair(value: Any) -> bool:
    """A tuple or a list of two."""
    return isinstance(value, (tuple, list)) and len(value) == 2


def _is_ragged(value: Any) -> bool:
    """Whether a list holds arrays, or lists, that are no rows of one array."""
    try:
        return isinstance(value, (tuple, list)) and np.asarray(value).dtype == object
    except ValueError:
        return True


def given_inputs(title: str, inputs: Any) -> Any:
    """Inputs as a tuple (by position) or a mapping (by keyword).

    Raises:
        ValueError: anything else, nothing in it, or a framework's tensor.
    """
    if isinstance(inputs, np.ndarray):
        return (inputs,)
    if not isinstance(inputs, (tuple, list, Mapping)) or not inputs:
        raise ValueError(
            f"{title}: got {type(inputs).__name__}, expected NumPy arrays in a tuple (by "
            "position) or a dict (by keyword)"
        )
    for path, value in leaves(inputs, lambda v: hasattr(v, "__dlpack__") and not is_array(v)):
        raise ValueError(
            f"{title}: {path!r} is a {type(value).__module__}.{type(value).__name__}, expected a "
            "NumPy array, which both sides can be given: .numpy() makes one"
        )
    return inputs


def read_batches(batches: Any, steps: int, inputs: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    """The batches of the first steps, each as (inputs, labels).

    Raises:
        ValueError: no steps, no batch, or one of another form.
    """
    if not steps:
        raise ValueError("batches= needs optimizer= and steps=: they are for training")
    batches = batches() if callable(batches) else batches
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise ValueError(
            f"batches: got {type(batches).__name__}, expected a sequence of (inputs, labels)"
        )
    read = list(itertools.islice(batches, steps))
    if not read:
        raise ValueError("batches: there is none; leave batches= out to train on inputs=")
    expected = ", ".join(path for path, _ in leaves(inputs, is_array))
    for number, batch in enumerate(read):
        title = f"batches[{number}]"
        if not is_pair(batch):
            raise ValueError(
                f"{title} is a {type(batch).__name__}, expected a pair (inputs, labels); labels "
                "are None without a loss that takes some"
            )
        if (batch[1] is None) != (labels is None):
            words = ("has labels", "has none") if labels is None else ("has none", "has some")
            raise ValueError(f"{title} {words[0]}, labels= {words[1]}")
        fed = given_inputs(title, batch[0])
        names = ", ".join(path for path, _ in leaves(fed, is_array))
        if names != expected:
            raise ValueError(
                f"{title} has the inputs {names or 'none'}, inputs= has {expected or 'none'}"
            )
        yield fed, batch[1]


def exchanged(batches: Sequence[Any], step: int = 1) -> tuple[int, list[Any]]:
    """Exchange the first batch and the next one with other numbers; ``step``: batches of a step.

    Returns:
        Number of that other one, and the batches in the new order; (0, []) when all are alike.
    """
    for number, batch in enumerate(batches[step:], step):
        pairs = zip(leaves(batch, is_array), leaves(batches[0], is_array), strict=True)
        if not all(np.array_equal(a, b) for (_, a), (_, b) in pairs):
            return number, [batch, *batches[1:number], batches[0], *batches[number + 1 :]]
    return 0, []
