"""Sums of PyTorch as a right kernel of another framework may form them: one term after the other.

A kernel may add n terms in blocks or one after the other; both are right, the latter rounds most.
PyTorch's sums take blocks. Paddle's sums over rows do not, nor do either framework's products of
narrow matrices. So the moved runs (`moved_roundings`) form their sums one term after the other:

- Plain sums, also those inside means, variances and the passes of norms, are really formed term by
  term, in the order of the memory or in a drawn one. This covers what is no scatter, too: n equal
  terms are rounded alike n times. A third of the runs deals the terms out to 8 or 16 partial sums,
  as vector registers do: equal terms have the same sum in every order, but not in such parts.
- For products (of matrices, convolutions) the scatter of such a chain is planted. A chain of n
  terms t with the sum S and R**2 = sum(t**2) goes from 0 to S as a Brownian bridge: the mean square
  of its partial sums is S**2 / 3 + R**2 / 6. Each addition rounds by a part, equally distributed
  from -1/2 to 1/2, of the spacing of numbers at its partial sum, whose mean square is
  3 / (8 ln 2) u**2 times the partial sum's. Together that makes n (2 S**2 + R**2) u**2 / 133. The
  same operator makes R**2 of the squared operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table


@dataclass(frozen=True)
class Order:
    """How the terms of a sum follow each other.

    Attributes:
        drawn: what draws their order; None for the order of the memory.
        parts: partial sums that the terms are dealt out to.
    """

    drawn: np.random.Generator | None = None
    parts: int = 1

    @classmethod
    def of_run(cls, number: int) -> Order:
        """The order of a moved run: 0 has the memory's, 2 and 3 of each four have parts."""
        parts = 1 if number % 4 < 2 else 8 * (number % 4 - 1)
        return cls(np.random.default_rng(number) if number else None, parts)


Product = tuple[torch.Tensor, float, torch.Tensor]
"""A result, the number of its terms, and the sum of their squares."""

_aten = torch.ops.aten
_CHAIN = 3 / (8 * math.log(2)) / 12 / 6  # 1 / 133

_NORMS = (
    _aten.native_layer_norm_backward.default,
    _aten.native_batch_norm.default,
    _aten._native_batch_norm_legit.default,
    _aten._native_batch_norm_legit.no_stats,
    _aten.native_batch_norm_backward.default,
    _aten.native_group_norm_backward.default,
)


def _is_loss(operator: Any) -> bool:
    schema = getattr(operator, "_schema", None)
    if schema is None or schema.name.endswith("backward") or schema.overload_name.startswith("out"):
        return False
    return any(argument.name == "reduction" for argument in schema.arguments)


PARTS: Mapping[Any, Callable[..., Any]] = {
    operator: decomposition
    for operator, decomposition in decomposition_table.items()
    if operator in _NORMS or _is_loss(operator)
}
"""Norms and losses, which hold sums over many places -> the same in single steps."""


def in_order(x: torch.Tensor, axes: Sequence[int], order: Order) -> torch.Tensor:
    """Add the terms of a sum one after the other, in the precision that they have.

    Args:
        x: (...) float32 or float64 on the CPU.
        axes: what is summed; nothing for all axes.
        order: of the terms.

    Returns:
        The sum, whose summed axes have length 1.
    """
    summed = sorted({axis % x.dim() for axis in axes} or range(x.dim()))
    shape = [1 if axis in summed else length for axis, length in enumerate(x.shape)]
    terms = x.detach().movedim(summed, [*range(len(summed))]).reshape(-1, math.prod(shape))
    rows = np.ascontiguousarray(terms.numpy())
    if order.drawn is not None:
        rows = rows[order.drawn.permutation(len(rows))]
    if order.parts > 1:
        whole = np.zeros((-(-len(rows) // order.parts) * order.parts, rows.shape[1]), rows.dtype)
        whole[: len(rows)] = rows
        rows = np.add.reduce(whole.reshape(-1, order.parts * rows.shape[1]), axis=0)
        rows = rows.reshape(order.parts, -1)
    if rows.shape[1] == 1:  # NumPy adds rows one by one, the numbers of one column in blocks
        total = np.add.accumulate(rows[:, 0])[-1:]
    else:
        total = np.add.reduce(rows, axis=0)
    return torch.from_numpy(total).reshape(shape)


def _sum(x: torch.Tensor, axes: Any = (), keepdim: bool = False, *, order: Order) -> torch.Tensor:
    summed = {axis % x.dim() for axis in axes or range(x.dim())}
    total = in_order(x, [*summed], order)
    return total if keepdim else total.squeeze([*summed])


def _mean(x: torch.Tensor, axes: Any = (), keepdim: bool = False, *, order: Order) -> torch.Tensor:
    total = _sum(x, axes, keepdim, order=order)
    return total / (x.numel() // total.numel())


def _variance_and_mean(
    x: torch.Tensor,
    axes: Any = (),
    *,
    order: Order,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    mean = _mean(x, axes, True, order=order)
    squares = _sum((x - mean).square(), axes, keepdim, order=order)
    terms = x.numel() // mean.numel()
    return squares / (terms - (1 if correction is None else correction)), mean.reshape_as(squares)


def _variance(*args: Any, **options: Any) -> torch.Tensor:
    return _variance_and_mean(*args, **options)[0]


def _back_through_convolution(*args: Any, order: Order) -> tuple[torch.Tensor | None, ...]:
    """The three gradients of a convolution, its bias's with a sum in order."""
    gradient, mask = args[0], args[-1]
    passed = _aten.convolution_backward.default(*args)
    if not mask[2]:
        return passed
    summed = [axis for axis in range(gradient.dim()) if axis != 1]
    return *passed[:2], _sum(gradient, summed, order=order)


SUMS: Mapping[Any, Callable[..., Any]] = {
    _aten.sum.default: _sum,
    _aten.sum.dim_IntList: _sum,
    _aten.mean.default: _mean,
    _aten.mean.dim: _mean,
    _aten.var.correction: _variance,
    _aten.var_mean.correction: _variance_and_mean,
    _aten.convolution_backward.default: _back_through_convolution,
}
"""Operators on floating numbers -> the same with sums in a given order."""


def reaches(operator: Any, args: Sequence[Any], results: Any) -> list[torch.Tensor | None]:
    """Say of every result of an operator how far a chain of additions moves it.

    Args:
        operator: one of LONG.
        args: its operands.
        results: what it made of them.

    Returns:
        For each tensor of the results its root mean square error in units u, of its shape; None
        for what is no product.
    """
    if operator not in _PRODUCTS:
        return [None] * (len(results) if isinstance(results, tuple) else 1)
    reaches_of_results = []
    for result, terms, squares in _PRODUCTS[operator](args, results):
        weight = terms * _CHAIN
        reach = torch.hypot(result * math.sqrt(1 + 2 * weight), (squares * weight).sqrt())
        reaches_of_results.append(reach.nan_to_num_(0.0, 0.0, 0.0))
    return reaches_of_results


def _of_matrices(args: Sequence[Any], result: torch.Tensor) -> Iterator[Product]:
    a, b = args[-2:]
    yield result, a.shape[-1], torch.matmul(a.square(), b.square())


def _of_convolution(args: Sequence[Any], result: torch.Tensor) -> Iterator[Product]:
    x, weight, _, *settings = args
    squares = _aten.convolution(x.square(), weight.square(), None, *settings)
    yield result, _terms(weight, transposed=settings[3], groups=settings[5]), squares


def _of_convolution_backward(args: Sequence[Any], results: Sequence[Any]) -> Iterator[Product]:
    gradient, x, weight, *settings, mask = args
    operands = (gradient.square(), x.square(), weight.square())
    squares = _aten.convolution_backward(*operands, *settings, [mask[0], mask[1], False])
    if mask[0]:
        terms = _terms(weight, transposed=not settings[4], groups=settings[6])
        yield results[0], terms, squares[0]
    if mask[1]:
        yield results[1], gradient.numel() // gradient.shape[1], squares[1]
    if mask[2]:
        yield results[2], 0, results[2].square()


def _terms(weight: torch.Tensor, *, transposed: bool, groups: int) -> int:
    """How many products one result of a convolution adds, at most.

    Args:
        weight: (C_out, C_in / groups, ...), transposed (C_in, C_out / groups, ...).
        transposed: whether it spreads each place over several.
        groups: of channels.
    """
    return weight[:, 0].numel() // groups if transposed else weight[0].numel()


_PRODUCTS: Mapping[Any, Callable[[Sequence[Any], Any], Iterator[Product]]] = {
    _aten.mm.default: _of_matrices,
    _aten.bmm.default: _of_matrices,
    _aten.mv.default: _of_matrices,
    _aten.dot.default: _of_matrices,
    _aten.addmm.default: _of_matrices,
    _aten.baddbmm.default: _of_matrices,
    _aten.convolution.default: _of_convolution,
    _aten.convolution_backward.default: _of_convolution_backward,
}
LONG = {*PARTS, *SUMS, *_PRODUCTS}
"""Operators with sums of many terms."""
