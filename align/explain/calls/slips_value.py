"""Slips of value: an activation, a scale, a mask, a mean, an operand, a cut in the graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from align.explain.calls.calls import WatchedCall

Slip = tuple[str, Callable[[WatchedCall], Any]]
FORMULAS: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "GELU (erf)": lambda x: F.gelu(x),
    "GELU (tanh approximation)": lambda x: F.gelu(x, approximate=True),
    "ReLU": F.relu,
    "SiLU": F.silu,
    "tanh": paddle.tanh,
    "sigmoid": F.sigmoid,
    "ELU": F.elu,
    "leaky ReLU (slope 0.01)": F.leaky_relu,
    "leaky ReLU (slope 0.2)": lambda x: F.leaky_relu(x, 0.2),
    "ReLU6": F.relu6,
    "hard swish": F.hardswish,
    "mish": F.mish,
    "softplus": F.softplus,
    "GELU (sigmoid approximation)": lambda x: x * F.sigmoid(1.702 * x),
    "the identity": lambda x: x,
}
EXPONENTS = (0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0, 1.5, 2.0, -0.5, -1.0)
REDUCTIONS = ("mean", "sum", "max", "min")
EPSILONS = (0.0, 1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
LOW = -1e30


def activated(call: WatchedCall) -> Iterator[Slip]:
    """Another activation function."""
    x = call.args[0] if call.args else call.argument("x")
    own = call.go()
    same = [name for name, f in FORMULAS.items() if bool((f(x) == own).all())]
    said = same[0] if same else call.name
    for name, formula in FORMULAS.items():
        if name not in same:
            yield (
                f"activation: Paddle computes {said}, PyTorch {name}",
                lambda one, formula=formula: formula(one.args[0] if one.args else one.kwargs["x"]),
            )


def softmaxed(
    call: WatchedCall, masks: Sequence[np.ndarray], widths: Sequence[int]
) -> Iterator[Slip]:
    """softmax: another axis, scores not scaled, a mask that is missing, inverted or too weak."""
    x = call.args[0]
    own = call.argument("axis", -1)
    for axis in range(len(x.shape)):
        if axis != own % len(x.shape):
            yield (
                f"softmax axis: Paddle takes axis {own}, PyTorch axis {axis}",
                lambda one, axis=axis: one.with_argument("axis", axis),
            )
    for width, power in itertools.product(widths, (-0.5, 0.5, -1.0)):
        yield (
            f"scale of the attention scores: they have to be multiplied by {width} ** {power:g} "
            "once more",
            lambda one, f=float(width) ** power: one.go(one.args[0] * f, *one.args[1:]),
        )
    for a, b in itertools.permutations(widths, 2):
        yield (
            f"scale of the attention scores: Paddle divides by the root of {a}, PyTorch of {b}",
            lambda one, f=a / b: one.go(one.args[0] * math.sqrt(f), *one.args[1:]),
        )
    for keep in _keeps(masks, x.shape):
        yield (
            "mask: it is not applied, or its value is too weak to hide what it marks; minus "
            "infinity in its places makes the layer agree",
            lambda one, keep=keep: one.go(_masked(one.args[0], keep), *one.args[1:]),
        )


def _keeps(masks: Sequence[np.ndarray], shape: Sequence[int]) -> Iterator[np.ndarray]:
    """Which scores may be seen, by every reading of a mask that broadcasts to them."""
    seen = set()
    for mask in masks:
        readings = [mask > -1.0] if mask.dtype.kind == "f" else [mask != 0, mask == 0]
        for keep in readings:
            if keep.ndim == 2 and len(shape) > 2 and keep.shape[0] == shape[0]:
                keep = keep.reshape(keep.shape[0], *[1] * (len(shape) - 2), keep.shape[1])
            if keep.ndim == len(shape) and keep.shape[1:] == tuple(shape[1:]):
                keep = np.tile(keep, (max(shape[0] // keep.shape[0], 1), *[1] * (keep.ndim - 1)))
            try:
                wide = np.broadcast_to(keep, tuple(shape))
            except ValueError:
                continue
            if wide.all() or not wide.any() or wide.tobytes() in seen:
                continue
            seen.add(wide.tobytes())
            yield wide


def _masked(scores: paddle.Tensor, keep: np.ndarray) -> paddle.Tensor:
    low = paddle.full_like(scores, LOW if scores.dtype != paddle.float16 else -6e4)
    return paddle.where(paddle.to_tensor(np.ascontiguousarray(keep)), scores, low)


def chosen(call: WatchedCall) -> Iterator[Slip]:
    """where: the condition the other way round, a mask value that is too weak."""
    if len(call.args) != 3:
        return
    yield (
        "mask: it is inverted (the condition of where is the other way round)",
        lambda one: one.go(paddle.logical_not(one.args[0]), *one.args[1:]),
    )
    for at in (1, 2):
        value = call.args[at]
        small = isinstance(value, float) or (isinstance(value, paddle.Tensor) and value.size == 1)
        if small:
            yield (
                f"mask value: Paddle fills in {float(value):g}, which is too weak; a very low "
                "number makes the layer agree",
                lambda one, at=at: one.go(
                    *one.args[:at], paddle.full_like(one.args[3 - at], LOW), *one.args[at + 1 :]
                ),
            )


def added(call: WatchedCall) -> Iterator[Slip]:
    """A sum: one operand too many, a mask of the wrong strength or sign, a wrong epsilon."""
    a, b = call.args[:2]
    for at, other in ((0, b), (1, a)):
        own = call.args[at]
        if isinstance(own, paddle.Tensor) and _is_mask(own):
            yield (
                "mask value: what Paddle adds to the scores is too weak; a very low number makes "
                "the layer agree",
                lambda one, at=at: one.go(*_with(one.args, at, _strong(one.args[at], False))),
            )
            yield (
                "mask: it is inverted (Paddle hides what PyTorch keeps)",
                lambda one, at=at: one.go(*_with(one.args, at, _strong(one.args[at], True))),
            )
        if isinstance(own, float) and 0 <= own < 1e-2:
            for eps in EPSILONS:
                if eps != own:
                    yield (
                        f"epsilon: Paddle adds {own:g}, with {eps:g} it agrees",
                        lambda one, at=at, eps=eps: one.go(*_with(one.args, at, eps)),
                    )
        if isinstance(other, paddle.Tensor) and _shape(other) == _shape(call.go()):
            yield (
                "a term of a sum is added once too often, or not in PyTorch",
                lambda one, at=at: one.args[1 - at],
            )


def subtracted(call: WatchedCall) -> Iterator[Slip]:
    """A difference: the wrong way round, or none at all (n - 1 for n)."""
    if not isinstance(call.args[0], paddle.Tensor) and not isinstance(call.args[1], paddle.Tensor):
        return
    yield "swapped operands of a difference (a wrong sign)", lambda one: -one.go()
    if isinstance(call.args[0], paddle.Tensor):
        yield (
            "a difference: PyTorch does not subtract (n - 1 for n, or a mean that stays)",
            lambda one: one.args[0],
        )


def multiplied(call: WatchedCall) -> Iterator[Slip]:
    """A product or quotient with a number: PyTorch does without, or the other way round."""
    a, b = call.args[:2]
    if call.name == "divide" and isinstance(b, paddle.Tensor):
        yield (
            "quotient: PyTorch divides by the root of what Paddle divides by",
            lambda one: one.args[0] / paddle.sqrt(one.args[1]),
        )
        yield (
            "quotient: Paddle divides by the root of what PyTorch divides by",
            lambda one: one.args[0] / (one.args[1] * one.args[1]),
        )
    number = b if not isinstance(b, paddle.Tensor) or b.size == 1 else None
    if isinstance(a, paddle.Tensor) and number is not None:
        yield (
            f"scale: Paddle has a factor {float(number):.6g} ({call.name}) that PyTorch has not",
            lambda one: one.args[0],
        )
        yield (
            f"scale: Paddle has the inverse of PyTorch's factor {float(number):.6g}",
            lambda one: (
                one.args[0] / one.args[1] if one.name == "multiply" else one.args[0] * one.args[1]
            ),
        )


def reduced(call: WatchedCall) -> Iterator[Slip]:
    """A mean, sum, maximum: another of them, over other axes, a biased or unbiased variance."""
    x = call.args[0]
    if call.name in ("var", "std"):
        own = call.argument("unbiased", True)
        yield (
            f"variance: Paddle divides by {'n - 1' if own else 'n'}, PyTorch by "
            f"{'n' if own else 'n - 1'} (biased or unbiased)",
            lambda one: one.with_argument("unbiased", not own),
        )
        return
    axes, keep = call.argument("axis"), call.argument("keepdim", False)
    for name in REDUCTIONS:
        if name != call.name:
            yield (
                f"{call.name} instead of {name}: with {name} over the same axes it agrees",
                lambda one, name=name: getattr(paddle, name)(one.args[0], axis=axes, keepdim=keep),
            )
    rank = len(x.shape)
    own_axes = sorted(a % rank for a in ([axes] if isinstance(axes, int) else axes or range(rank)))
    for count in range(1, rank + 1):
        for other in itertools.combinations(range(rank), count):
            if list(other) != own_axes:
                yield (
                    f"axes of {call.name}: Paddle takes {own_axes}, with {list(other)} it agrees",
                    lambda one, other=other: one.with_argument("axis", list(other)),
                )
    if call.name == "mean":
        yield (
            "mean: PyTorch does not subtract or use it (zero instead makes the layer agree)",
            lambda one: paddle.zeros_like(one.go()),
        )


def raised(call: WatchedCall) -> Iterator[Slip]:
    """A power: another exponent."""
    own = call.args[1] if len(call.args) > 1 else None
    if own is None or (isinstance(own, paddle.Tensor) and own.size > 1):
        return
    for exponent in EXPONENTS:
        if abs(exponent - float(own)) > 1e-9:
            yield (
                f"exponent of a power: Paddle takes {float(own):g}, with {exponent:.3g} it agrees",
                lambda one, e=exponent: one.go(
                    one.args[0], paddle.full([], e, dtype=one.args[0].dtype), *one.args[2:]
                ),
            )


def rooted(call: WatchedCall) -> Iterator[Slip]:
    """A root that PyTorch does not take."""
    yield f"{call.name}: PyTorch does not take the root", lambda one: one.args[0]


def multiplied_matrices(call: WatchedCall) -> Iterator[Slip]:
    """A matrix product: operands swapped, one transposed, not centred."""
    a, b = call.args[:2]
    if len(a.shape) < 2 or len(b.shape) < 2:
        return
    flags = {n: call.argument(n, False) for n in ("transpose_x", "transpose_y")}
    for x, y in itertools.product((False, True), repeat=2):
        if (x, y) != tuple(flags.values()):
            yield (
                "matrix product: an operand is transposed in one framework only "
                f"(transpose_x={x}, transpose_y={y} makes the layer agree)",
                lambda one, x=x, y=y: paddle.matmul(*one.args[:2], transpose_x=x, transpose_y=y),
            )
    yield (
        "matrix product: swapped operands (query and key, or the two factors)",
        lambda one: paddle.matmul(one.args[1], one.args[0], **flags),
    )
    yield (
        "matrix product: swapped operands (query and key): its result has to be transposed",
        lambda one: _turned(one.go()),
    )
    for axes in ([-2], [-1], [-2, -1]):
        yield (
            f"centring: the factors of a product have to be centred (their mean over the axes "
            f"{axes} subtracted)",
            lambda one, axes=axes: one.go(
                *(v - v.mean(axis=axes, keepdim=True) for v in one.args[:2]), *one.args[2:]
            ),
        )


def spread(call: WatchedCall) -> Iterator[Slip]:
    """diag_embed: Paddle's has no gradient."""

    def answer(one: WatchedCall) -> Any:
        x = one.args[0]
        return x.unsqueeze(-1) * paddle.eye(x.shape[-1], dtype=x.dtype)

    yield (
        "paddle.diag_embed has no gradient: it cuts the graph; multiply by an identity instead",
        answer,
    )


def _turned(x: paddle.Tensor) -> paddle.Tensor:
    axes = list(range(len(x.shape)))
    axes[-2:] = axes[-1], axes[-2]
    return paddle.transpose(x, axes)


def _is_mask(x: paddle.Tensor) -> bool:
    """Two values, one of them zero and the other not above it."""
    if not paddle.is_floating_point(x):
        return False
    values = np.unique(x.numpy())
    return values.size == 2 and 0.0 in values and values.min() < 0


def _strong(mask: paddle.Tensor, inverted: bool) -> paddle.Tensor:
    hidden = (mask == 0) if inverted else (mask != 0)
    return paddle.where(hidden, paddle.full_like(mask, LOW), paddle.zeros_like(mask))


def _with(args: tuple, at: int, value: Any) -> tuple:
    return (*args[:at], value, *args[at + 1 :])


def _shape(x: Any) -> list[int] | None:
    return list(x.shape) if isinstance(x, paddle.Tensor) else None
