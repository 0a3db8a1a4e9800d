"""Losses and optimizers of a drawn pair, with options that are wrong on Paddle's side.

Dropped, because the frameworks themselves differ in float64: a label smoothing on both sides
(Paddle smooths in float32: 3e-8 of the loss).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import torch

from tests.align.right_pairs.pair_rows import Draws, Shape, Wrong

TF, PF = torch.nn.functional, paddle.nn.functional


@dataclass(frozen=True)
class LossRow:
    """A loss of both frameworks.

    Attributes:
        torch: (options) -> (output, labels) -> number.
        paddle: likewise.
        labels: (rng, shape of the output) -> labels.
        options: option -> the values that are drawn from.
        wrong: option -> another value.
        fits: (shape of the output) -> whether the loss takes it.
    """

    torch: Callable
    paddle: Callable
    labels: Callable
    options: Mapping[str, tuple] = ()
    wrong: Mapping[str, Wrong] = ()
    fits: Callable = lambda s: True


def _classes(rng, s):
    return rng.integers(0, s[-1], s[:-1])


def _values(rng, s):
    return rng.normal(size=s)


def _bits(rng, s):
    return rng.integers(0, 2, s).astype("float64")


def _has_classes(s):
    return len(s) == 2 and s[-1] > 1


_REDUCTION = {"reduction": Wrong("sum", ("reduction", "sum", "mean", "divide", "times"))}

_NO_ZERO = 0.3125
"""Taken off the scores of a binary cross entropy: at a score of exactly 0 (behind a ReLU or a pad)
the gradient of Paddle's is 1 too small, in both precisions (-0.5 for 0.5). It is a number of
float32: Paddle 2.6 rounds what is added to a float64 tensor."""

LOSSES: dict[str, LossRow] = {
    "cross_entropy": LossRow(
        lambda o: lambda z, y: TF.cross_entropy(z, y, label_smoothing=o.smoothing),
        lambda o: (
            lambda z, y: PF.cross_entropy(z, y, label_smoothing=o.smoothing, reduction=o.reduction)
        ),
        _classes,
        {"smoothing": (0.0,), "reduction": ("mean",)},
        {"smoothing": Wrong(lambda s, o: o.smoothing + 0.1, ("smooth",)), **_REDUCTION},
        _has_classes,
    ),
    "mse": LossRow(
        lambda o: lambda z, y: TF.mse_loss(z, y),
        lambda o: lambda z, y: PF.mse_loss(z, y, reduction=o.reduction),
        _values,
        {"reduction": ("mean",)},
        _REDUCTION,
    ),
    "binary cross entropy": LossRow(
        lambda o: lambda z, y: TF.binary_cross_entropy_with_logits(z - _NO_ZERO, y),
        lambda o: (
            lambda z, y: PF.binary_cross_entropy_with_logits(z - _NO_ZERO, y, reduction=o.reduction)
        ),
        _bits,
        {"reduction": ("mean",)},
        _REDUCTION,
    ),
    "mean of squares": LossRow(
        lambda o: lambda z, y: (z * z).mean() + (z * y).mean(),
        lambda o: lambda z, y: o.factor * (z * z).mean() + (z * y).mean(),
        _values,
        {"factor": (1.0,)},
        {"factor": Wrong(1.05, ("factor", "times", "scale", "term"))},
    ),
}


@dataclass(frozen=True)
class Loss:
    """A loss as it was drawn; `named` where it is asked for by name."""

    name: str
    shape: Shape
    options: dict[str, Any]
    paddle_options: dict[str, Any]
    named: bool

    def labels(self, seed: int) -> np.ndarray:
        """Labels of the batch."""
        return LOSSES[self.name].labels(np.random.default_rng([seed, 2]), self.shape)

    def torch_loss(self) -> Callable:
        """PyTorch's function of (output, labels)."""
        return LOSSES[self.name].torch(SimpleNamespace(**self.options))

    def paddle_loss(self) -> Callable:
        """Paddle's function of (output, labels)."""
        return LOSSES[self.name].paddle(SimpleNamespace(**self.paddle_options))

    def asked(self) -> Any:
        """The loss as `align.compare` takes it."""
        return self.name if self.named else (self.torch_loss(), self.paddle_loss())


def draw_loss(d: Draws, shape: Shape) -> Loss | None:
    """A loss that takes outputs of a shape."""
    name = d.of(*(name for name, row in LOSSES.items() if row.fits(shape)))
    options = {key: d.of(*values) for key, values in LOSSES[name].options.items()}
    plain = options in ({"reduction": "mean"}, {"smoothing": 0.0, "reduction": "mean"})
    named = plain and name in ("cross_entropy", "mse") and d.chance(0.5)
    return Loss(name, shape, options, options, named)


def _torch_sgd(parameters, o):
    return torch.optim.SGD(parameters, o.lr, o.momentum, weight_decay=o.decay, nesterov=o.nesterov)


def _paddle_sgd(parameters, o):
    kind, more = paddle.optimizer.SGD, {}
    if o.momentum:
        kind = paddle.optimizer.Momentum
        more = {"momentum": o.momentum, "use_nesterov": o.nesterov}
    return kind(o.lr, parameters=parameters, weight_decay=o.decay or None, **more)


def _torch_adam(parameters, o, kind="Adam"):
    kind = getattr(torch.optim, kind)
    return kind(parameters, o.lr, (o.beta1, 0.999), o.epsilon, weight_decay=o.decay)


def _paddle_adam(parameters, o, kind="Adam"):
    kind, decay = getattr(paddle.optimizer, kind), o.decay or (None if kind == "Adam" else 0.0)
    return kind(o.lr, o.beta1, 0.999, o.epsilon, parameters=parameters, weight_decay=decay)


_RATES = {"lr": (1e-2, 1e-3, 0.125), "decay": (0.0, 2.0**-7)}
_WRONG = {
    "lr": Wrong(lambda s, o: 1.1 * o.lr, ("rate", "lr")),
    "decay": Wrong(lambda s, o: o.decay + 2.0**-6, ("decay",)),
}
_ADAM = _RATES | {"beta1": (0.9, 0.875), "epsilon": (1e-8, 1e-6)}
_WRONG_ADAM = _WRONG | {
    "beta1": Wrong(lambda s, o: o.beta1 - 0.05, ("beta",)),
    "epsilon": Wrong(1e-3, ("eps",)),
}

OPTIMIZERS = {
    "sgd": (
        _torch_sgd,
        _paddle_sgd,
        _RATES | {"momentum": (0.0, 0.9, 0.875), "nesterov": (False,)},
        _WRONG
        | {"momentum": Wrong(lambda s, o: o.momentum - 0.1 if o.momentum else 0.5, ("momentum",))},
    ),
    "adam": (_torch_adam, _paddle_adam, _ADAM, _WRONG_ADAM),
    "adamw": (
        lambda p, o: _torch_adam(p, o, "AdamW"),
        lambda p, o: _paddle_adam(p, o, "AdamW"),
        _ADAM,
        _WRONG_ADAM,
    ),
}


@dataclass(frozen=True)
class Optimizer:
    """An optimizer as it was drawn; `named` where it is asked for by name, with defaults."""

    name: str
    options: dict[str, Any]
    paddle_options: dict[str, Any]
    steps: int
    named: bool

    def told(self) -> str:
        """Name, options and steps, for a recipe."""
        wrong = "" if self.options == self.paddle_options else f" [Paddle: {self.paddle_options}]"
        options = "named" if self.named else f"{self.options}{wrong}"
        return f"{self.name} {options} x {self.steps}"

    def asked(self) -> Any:
        """The optimizer as `align.compare` takes it."""
        if self.named:
            return self.name
        torch_made, paddle_made, _, _ = OPTIMIZERS[self.name]
        left, right = (SimpleNamespace(**o) for o in (self.options, self.paddle_options))
        return (
            lambda model: torch_made(model.parameters(), left),
            lambda model: paddle_made(model.parameters(), right),
        )

    def paddle_optimizer(self, parameters: list) -> paddle.optimizer.Optimizer:
        """The port's optimizer."""
        return OPTIMIZERS[self.name][1](parameters, SimpleNamespace(**self.paddle_options))


def draw_optimizer(d: Draws) -> Optimizer:
    """An optimizer with 2 or 3 steps of training."""
    name = d.of(*OPTIMIZERS)
    options = {key: d.of(*values) for key, values in OPTIMIZERS[name][2].items()}
    named = name != "adam" and d.chance(0.3)
    return Optimizer(name, options, options, d.of(2, 3), named)
