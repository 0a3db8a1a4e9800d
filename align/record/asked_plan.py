"""What the user asked for, in one record, checked; and the ready-made losses and optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from align.record.nested import replace
from align.record.precision import held_dtype
from align.record.results import LOW_PRECISION

LOSSES = ("cross_entropy", "mse")
OPTIMIZERS = ("sgd", "adamw")
DTYPES = ("float64", "float32")
DROPOUT = ("off", "exchange")
EXACT_DECAY = 2.0**-7  # Paddle holds the coefficient in float32: a power of two loses nothing there
_DEFAULTS = {
    "sgd": {"lr": 0.01, "momentum": 0.0, "weight_decay": 0.0},
    "adamw": {
        "lr": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": EXACT_DECAY,
    },
}


@dataclass
class Plan:
    """A checked request.

    Attributes:
        torch_module, paddle_layer: instances, or callables without arguments that build them.
        inputs: positional tuple or keyword dict of NumPy arrays and plain values.
        loss: None, one of LOSSES, or (torch_fn, paddle_fn).
        labels: array for the loss, None without.
        optimizer: None, {"name", options}, or (torch_factory, paddle_factory).
        steps: training steps.
        dtypes: precisions to run, in this order.
        train: run both sides in training mode (dropout off) in the forward and backward steps.
        seed: of everything that is drawn.
        shake: move constant vectors (fresh zeros and ones) off their value on both sides.
        name: of the pair in the report.
        data: None, or (torch_batches, paddle_batches): iterables of batches, or callables without
            arguments that return one; a batch is a mapping or a sequence of arrays.
        metric: None, or (torch_metric, paddle_metric): callables of (output, labels).
        schedule: None, or (torch_rates, paddle_rates): callables from a number of steps to the
            learning rate of each.
        schedule_steps: length of the schedule that is compared; with optimizer factories at least
            the training steps.
        converted: the Paddle layer comes with weights that the user converted: compare them.
        dropout: "off", or "exchange" for masks drawn once and used by both sides.
        travel: move the optimizer's state both ways and continue there.
    """

    torch_module: Any
    paddle_layer: Any
    inputs: Any
    loss: Any = None
    labels: Any = None
    optimizer: Any = None
    steps: int = 0
    dtypes: tuple[str, ...] = DTYPES
    train: bool = False
    seed: int = 0
    shake: bool = True
    name: str = "pair"
    data: Any = None
    metric: Any = None
    schedule: Any = None
    schedule_steps: int = 0
    converted: bool = False
    dropout: str = "off"
    travel: bool = False

    def __post_init__(self) -> None:
        self.dtypes = (self.dtypes,) if isinstance(self.dtypes, str) else tuple(self.dtypes)
        known = (*DTYPES, *LOW_PRECISION)
        if not self.dtypes or set(self.dtypes) - set(known):
            raise ValueError(f"dtype {self.dtypes!r}: expected some of {', '.join(known)}")
        if isinstance(self.inputs, np.ndarray):
            self.inputs = (self.inputs,)
        if not isinstance(self.inputs, (tuple, list, Mapping)) or not self.inputs:
            raise ValueError(
                f"inputs: got {type(self.inputs).__name__}, expected NumPy arrays in a tuple (by "
                "position) or a dict (by keyword)"
            )
        self._check_loss()
        self._check_optimizer()
        self._check_stages()

    def _check_loss(self) -> None:
        pair = isinstance(self.loss, (tuple, list)) and len(self.loss) == 2
        if pair and all(callable(function) for function in self.loss):
            return
        if self.loss is not None and self.loss not in LOSSES:
            raise ValueError(
                f"loss {self.loss!r}: expected None, {', '.join(LOSSES)}, or a pair of callables "
                "(torch, paddle)"
            )
        if self.loss is not None and self.labels is None:
            raise ValueError(f"loss {self.loss!r} needs labels=")
        if self.loss is None and self.labels is not None and self.metric is None:
            raise ValueError("labels= without loss= or metric=: say what they are for")

    def _check_optimizer(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 0:
            raise ValueError(f"steps {self.steps!r}: expected a whole number >= 0")
        if self.steps and self.optimizer is None:
            raise ValueError("steps= needs optimizer=: sgd, adamw, or a pair of factories")
        if self.optimizer is not None and not (self.steps or self.schedule_steps):
            raise ValueError("optimizer= without steps=: say how many steps to train")
        given = self.optimizer
        if given is None or (isinstance(given, (tuple, list)) and len(given) == 2):
            return
        given = {"name": given} if isinstance(given, str) else dict(given)
        name = given.pop("name", None)
        if name not in OPTIMIZERS:
            raise ValueError(
                f"optimizer {name!r}: expected one of {', '.join(OPTIMIZERS)}, or a pair of "
                "factories (torch, paddle)"
            )
        unknown = sorted(set(given) - set(_DEFAULTS[name]))
        if unknown:
            raise ValueError(
                f"optimizer {name}: unknown option {unknown[0]!r}; known: "
                f"{', '.join(_DEFAULTS[name])}"
            )
        self.optimizer = {"name": name, **_DEFAULTS[name], **given}

    def _check_stages(self) -> None:
        for name in ("data", "metric", "schedule"):
            given = getattr(self, name)
            if given is not None and not (isinstance(given, (tuple, list)) and len(given) == 2):
                raise ValueError(
                    f"{name}: got {type(given).__name__}, expected a pair (torch, paddle)"
                )
        for name in ("metric", "schedule"):
            if not all(callable(side) for side in getattr(self, name) or ()):
                raise ValueError(f"{name}: expected a pair of callables (torch, paddle)")
        if self.metric is not None and self.labels is None:
            raise ValueError("metric= needs labels=")
        if not isinstance(self.schedule_steps, int) or self.schedule_steps < 0:
            raise ValueError(f"schedule_steps {self.schedule_steps!r}: expected a number >= 0")
        if isinstance(self.optimizer, (tuple, list)) and not self.schedule_steps:
            self.schedule_steps = self.steps
        if self.schedule is not None and not self.schedule_steps:
            raise ValueError("schedule= needs schedule_steps=: how many rates to compare")
        if self.schedule_steps and self.schedule is None and self.optimizer is None:
            raise ValueError("schedule_steps= needs schedule=, or optimizer= with a scheduler")
        if self.travel and not self.steps:
            raise ValueError("travel= needs optimizer= and steps=: how long a run trains before")
        if self.dropout not in DROPOUT:
            raise ValueError(f"dropout {self.dropout!r}: expected one of {', '.join(DROPOUT)}")
        if self.dropout == "exchange" and not (self.train or self.steps):
            raise ValueError("dropout='exchange' needs train=True or steps= (eval drops nothing)")

    def cast(self, dtype: str, rounded: str) -> Any:
        """The inputs with floating arrays rounded to ``rounded`` and held as ``dtype``."""
        return cast(self.inputs, dtype, rounded)


def is_array(value: Any) -> bool:
    """NumPy arrays, and NumPy's own scalars."""
    return isinstance(value, (np.ndarray, np.generic))


def cast(value: Any, dtype: str, rounded: str) -> Any:
    """Floating arrays of a structure rounded and cast; whole numbers and flags as they are.

    A low precision casts while the model runs: its inputs and weights are float32.
    """
    dtype, rounded = held_dtype(dtype), held_dtype(rounded)

    def one(_: str, array: Any) -> np.ndarray:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return array
        return array.astype(rounded).astype(dtype)

    return replace(value, is_array, one)


def output_weights(shape: Sequence[int], index: int, seed: int) -> np.ndarray:
    """Fixed random weights for output number ``index``: their weighted sum is the default loss.

    A plain sum has the gradient one everywhere, under which a wrong axis or a wrong order goes
    unseen (the gradient of a softmax's sum is even zero).
    """
    return np.random.default_rng((seed, index)).normal(size=tuple(shape))
