"""PyTorch with every rounding moved by a unit in the last place: one draw of its rounding error.

Another processor, another order of a sum, a fused kernel: each gives other last digits. Such runs
of the reference are imitated here. While the mode is on, what every operator that rounds hands
out, forward, backward and in the optimizer, is multiplied by 1 + u or 1 - u by chance, u = 2**-23
(in float64 2**-52, of what a model computes in float32 there 2**-23). Operators that only move,
choose or compare numbers are left alone: they round nothing. Sums are formed one term after the
other, as a kernel without blocks forms them, and products of many terms are moved by what such a
sum rounds. In two of the runs the argument of a kink (a ReLU) that rounding may carry across is
moved to one side of it (`align.judge.noise_band`).

A kernel may add n terms in blocks or one after the other; both are right, the latter rounds most.
PyTorch's sums take blocks. Paddle's sums over rows do not, nor do either framework's products of
narrow matrices. So the moved runs form their sums one term after the other:

- Plain sums, also those inside means, variances and the passes of norms, are really formed term by
  term, in the order of the memory or in a drawn one. This covers what is no scatter, too: n equal
  terms are rounded alike n times. Two of six runs deal the terms out to 8 or 16 partial sums, as
  vector registers do: equal terms have the same sum in every order, but not in such parts.
- For products (of matrices, convolutions) the scatter of such a chain is planted. A chain of n
  terms t with the sum S and R**2 = sum(t**2) goes from 0 to S as a Brownian bridge: the mean square
  of its partial sums is S**2 / 3 + R**2 / 6. Each addition rounds by a part, equally distributed
  from -1/2 to 1/2, of the spacing of numbers at its partial sum, whose mean square is
  3 / (8 ln 2) u**2 times the partial sum's. Together that makes n (2 S**2 + R**2) u**2 / 133. The
  same operator makes R**2 of the squared operands.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from align.record.arrays import Arrays, sampled
from align.record.recording import MovedRun


@dataclass(frozen=True)
class Order:
    """How the terms of a sum follow each other.

    Attributes:
        generator: what draws their order; None for the order of the memory.
        parts: partial sums that the terms are dealt out to.
    """

    generator: np.random.Generator | None = None
    parts: int = 1

    @classmethod
    def of_run(cls, number: int) -> Order:
        """The order of a moved run, counted from 0; run 0 has the memory's."""
        parts = {2: 8, 3: 16}.get(number % 4, 1)
        return cls(np.random.default_rng(number) if number else None, parts)


Product = tuple[torch.Tensor, float, torch.Tensor]
"""A result, the number of its terms, and the sum of their squares."""

_aten = torch.ops.aten
_CHAIN = 3 / (8 * math.log(2)) / 12 / 6  # 1 / 133


def _operators(names: str) -> list[Any]:
    return [getattr(_aten, name).default for name in names.split()]


_NORMS = (
    *_operators("native_layer_norm_backward native_batch_norm _native_batch_norm_legit"),
    *_operators("native_batch_norm_backward native_group_norm_backward"),
    _aten._native_batch_norm_legit.no_stats,
)


def _is_loss(operator: Any) -> bool:
    schema = getattr(operator, "_schema", None)
    if schema is None or schema.name.endswith("backward") or schema.overload_name.startswith("out"):
        return False
    return any(argument.name == "reduction" for argument in schema.arguments)


_IN_STEPS: Mapping[Any, Callable[..., Any]] = {
    operator: decomposition
    for operator, decomposition in decomposition_table.items()
    if operator in _NORMS or _is_loss(operator)
}
"""Norms and losses, which hold sums over many places -> the same in single steps."""


def in_order(
    x: torch.Tensor, axes: Sequence[int] | None = (), keepdim: bool = False, *, order: Order
) -> torch.Tensor:
    """Add the terms of a sum one after the other, in the precision that they have.

    Args:
        x: (...) float32 or float64 on the CPU.
        axes: what is summed; nothing for all axes.
        keepdim: keep the summed axes, of length 1.
    """
    summed = sorted({axis % x.dim() for axis in axes or range(x.dim())})
    shape = [1 if axis in summed else length for axis, length in enumerate(x.shape)]
    terms = x.detach().movedim(summed, [*range(len(summed))]).reshape(-1, math.prod(shape))
    rows = np.ascontiguousarray(terms.numpy())
    if order.generator is not None:
        rows = rows[order.generator.permutation(len(rows))]
    if order.parts > 1:
        whole = np.zeros((-(-len(rows) // order.parts) * order.parts, rows.shape[1]), rows.dtype)
        whole[: len(rows)] = rows
        rows = np.add.reduce(whole.reshape(-1, order.parts * rows.shape[1]), axis=0)
        rows = rows.reshape(order.parts, -1)
    if rows.shape[1] == 1:  # NumPy adds rows one by one, the numbers of one column in blocks
        total = np.add.accumulate(rows[:, 0])[-1:]
    else:
        total = np.add.reduce(rows, axis=0)
    kept = torch.from_numpy(total).reshape(shape)
    return kept if keepdim else kept.squeeze(summed)


def _mean(x: torch.Tensor, axes: Any = (), keepdim: bool = False, *, order: Order) -> torch.Tensor:
    total = in_order(x, axes, keepdim, order=order)
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
    squares = in_order((x - mean).square(), axes, keepdim, order=order)
    terms = x.numel() // mean.numel()
    return squares / (terms - (1 if correction is None else correction)), mean.reshape_as(squares)


def _back_through_convolution(*args: Any, order: Order) -> tuple[torch.Tensor | None, ...]:
    """The three gradients of a convolution, its bias's with a sum in order."""
    gradient, mask = args[0], args[-1]
    passed = _aten.convolution_backward.default(*args)
    if not mask[2]:
        return passed
    summed = [axis for axis in range(gradient.dim()) if axis != 1]
    return *passed[:2], in_order(gradient, summed, order=order)


_SUMS: Mapping[Any, Callable[..., Any]] = {
    _aten.sum.default: in_order,
    _aten.sum.dim_IntList: in_order,
    _aten.mean.default: _mean,
    _aten.mean.dim: _mean,
    _aten.var.correction: lambda *args, **options: _variance_and_mean(*args, **options)[0],
    _aten.var_mean.correction: _variance_and_mean,
    _aten.convolution_backward.default: _back_through_convolution,
}
"""Operators on floating numbers -> the same with sums in a given order."""


def chain_errors(operator: Any, args: Sequence[Any], results: Any) -> list[torch.Tensor | None]:
    """Say of every result of an operator how far a chain of additions moves it.

    Args:
        operator: one of _LONG.

    Returns:
        For each tensor of the results its root mean square error in units u, of its shape; None
        for what is no product.
    """
    if operator not in _PRODUCTS:
        return [None] * (len(results) if isinstance(results, tuple) else 1)
    errors = []
    for result, terms, squares in _PRODUCTS[operator](args, results):
        weight = terms * _CHAIN
        error = torch.hypot(result * math.sqrt(1 + 2 * weight), (squares * weight).sqrt())
        errors.append(error.nan_to_num_(0.0, 0.0, 0.0))
    return errors


def _of_matrices(args: Sequence[Any], result: torch.Tensor) -> Iterator[Product]:
    a, b = args[-2:]
    yield result, a.shape[-1], torch.matmul(a.square(), b.square())


def _of_convolution(args: Sequence[Any], result: torch.Tensor) -> Iterator[Product]:
    x, weight, _, *settings = args
    squares = _aten.convolution(x.square(), weight.square(), None, *settings)
    yield result, _terms(weight, transposed=settings[3], groups=settings[5]), squares


def _of_convolution_backward(args: Sequence[Any], results: Sequence[Any]) -> Iterator[Product]:
    gradient, x, weight, *settings, mask = args
    wanted = [mask[0], mask[1], False]
    squares = _aten.convolution_backward(
        gradient.square(), x.square(), weight.square(), *settings, wanted
    )
    if mask[0]:
        terms = _terms(weight, transposed=not settings[4], groups=settings[6])
        yield results[0], terms, squares[0]
    if mask[1]:
        yield results[1], gradient.numel() // gradient.shape[1], squares[1]
    if mask[2]:
        yield results[2], 0, results[2].square()  # added in order already: it is rounded once more


def _terms(weight: torch.Tensor, *, transposed: bool, groups: int) -> int:
    """How many products one result of a convolution adds, at most.

    Args:
        weight: (C_out, C_in / groups, ...), transposed (C_in, C_out / groups, ...).
        transposed: whether it spreads each place over several.
    """
    return weight[:, 0].numel() // groups if transposed else weight[0].numel()


_PRODUCTS: Mapping[Any, Callable[[Sequence[Any], Any], Iterator[Product]]] = {
    **dict.fromkeys(_operators("mm bmm mv dot addmm baddbmm"), _of_matrices),
    _aten.convolution.default: _of_convolution,
    _aten.convolution_backward.default: _of_convolution_backward,
}
_LONG = {*_IN_STEPS, *_SUMS, *_PRODUCTS}
"""Operators with sums of many terms."""


UNIT = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}
"""Spacing of the numbers from 1 to 2."""

_DRAWS = 2**20  # factors drawn once; every tensor takes a run of them from a random place
# fmt: off
_EXACT = frozenset({
    "_to_copy", "abs", "amax", "amin", "cat", "clone", "constant_pad_nd", "copy_", "embedding",
    "empty_like", "fill_", "flip", "full_like", "gather", "index", "index_select", "lift_fresh",
    "masked_fill", "masked_fill_", "max", "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward", "maximum", "min", "minimum", "neg", "new_empty",
    "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones_like", "relu", "repeat",
    "roll", "scatter_", "select_backward", "sgn", "sign", "slice_backward", "sort", "stack",
    "threshold_backward", "topk", "where", "zero_", "zeros_like",
})
# fmt: on
"""Operators that hand on numbers as they are; views are told by their signature."""


_KINKS: Mapping[Any, tuple[float, ...]] = {
    **dict.fromkeys(_operators("relu relu_ leaky_relu leaky_relu_ _prelu_kernel abs"), (0.0,)),
    **dict.fromkeys(_operators("hardswish hardswish_ hardsigmoid hardsigmoid_"), (-3.0, 3.0)),
    **dict.fromkeys(_operators("hardtanh hardtanh_ clamp clamp_ clamp_min clamp_max"), ()),
}
"""Operator -> where its gradient jumps; () for the limits that it is called with."""
_WHOLE = set(_operators("_to_copy floor ceil trunc"))
"""Operators that make whole numbers: an index is no rounding to be moved."""
_MOST_UNITS = 64  # units that moves may take a whole number off itself on the way


class MovedRoundings(TorchDispatchMode):
    """Moves the results of a precision and of lower ones; all other numbers stay as they are.

    Args:
        run: what is asked of this one; what it meets is left in it.
    """

    def __init__(self, run: MovedRun, dtype: str = "float32") -> None:
        super().__init__()
        self._dtype = getattr(torch, dtype)
        self._run, self._kinks = run, itertools.count()
        generator = torch.Generator().manual_seed(run.number)
        up = torch.randint(0, 2, (_DRAWS,), generator=generator)
        self._factors = {
            moved: (1.0 + (2.0 * up.double() - 1.0) * unit).to(moved)
            for moved, unit in UNIT.items()
            if unit >= UNIT[self._dtype]
        }
        self._random = random.Random(run.number).random
        self._order = Order.of_run(run.number)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Refuse a guard against torch.compile, which nothing here uses: a fifth of the time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the operator, then move what it rounded."""
        if func in _KINKS and args[0].dtype in self._factors:
            self._at_kink(args[0], _KINKS[func] or _limits(*args))
        if self._dtype is torch.float64:
            args = self._constants(func, args)
        if func in _LONG and args[0].dtype in self._factors and args[0].is_cpu:
            return self._long(func, args, kwargs or {})
        if func in _WHOLE and args[0].dtype in UNIT and _makes_whole(func, kwargs):
            args = self._steady(args)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if _rounds(func):
            for tensor in _tensors(_written(func, args) if result is None else result):
                self._move(tensor)
        return result

    def _long(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator with sums, and move what it makes by what long sums round."""
        if func in _IN_STEPS:
            with self:
                return _IN_STEPS[func](*args, **kwargs)
        if func in _SUMS and kwargs.get("dtype") is None and args[0].numel():
            options = {name: value for name, value in kwargs.items() if name != "dtype"}
            result = _SUMS[func](*args, order=self._order, **options)
        else:
            result = func(*args, **kwargs)
        errors = chain_errors(func, args, result)
        for tensor, error in zip(_tensors(result), errors, strict=True):
            self._move(tensor, error)
        return result

    def _at_kink(self, argument: torch.Tensor, places: Sequence[float]) -> None:
        """Note some of what a kink is given, or move what is near it to the side of the run."""
        number, run = next(self._kinks), self._run
        if not run.side:
            sample = argument.reshape(-1)[torch.from_numpy(sampled(argument.numel()))]
            run.met[number] = sample.numpy(force=True)
            return
        near = run.reach.get(number, 0.0)
        if near and 0 not in argument.stride():  # an expanded tensor cannot be written to
            for place in places:
                off = (argument - place).abs()
                argument.copy_(torch.where(off < near, place + run.side * off, argument))

    def _constants(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Operands of float64 that hold no more than float32's digits, moved by float32's unit.

        Everything else is moved already: these are constants that were computed in float32.
        """
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if not any(tensor.dtype is torch.float64 for tensor in tensors) or _written(func, args):
            return args
        moved_args = list(args)
        for i, arg in enumerate(args):
            if _is_of_float32(arg):
                moved = arg.to(torch.float32, copy=True)
                self._move(moved)
                moved_args[i] = moved.to(arg.dtype)
        return tuple(moved_args)

    def _steady(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Numbers that become whole, those that moves took off a whole one put back on it."""
        numbers, *others = args
        whole, unit = numbers.round(), UNIT[numbers.dtype]
        is_near = (numbers - whole).abs() <= _MOST_UNITS * unit * whole.abs()
        return torch.where(is_near, whole, numbers), *others

    def arrays(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Moved copies of weights or inputs; arrays of another dtype are passed on."""
        return {name: self.array(array) for name, array in arrays.items()}

    def array(self, array: np.ndarray) -> np.ndarray:
        """Return a moved copy of an array; one of another dtype is passed on."""
        tensor = torch.from_numpy(np.array(array)) if array.dtype.kind == "f" else None
        if tensor is None or tensor.dtype is not self._dtype:
            return array
        self._move(tensor)
        return tensor.numpy()

    def _move(self, tensor: torch.Tensor, error: torch.Tensor | None = None) -> None:
        """Move a tensor in place; infinities, NaN and counts (of steps, places) stay.

        Args:
            tensor: (...) numbers.
            error: (...) how far in units; None for their own sizes, so that zeros stay.
        """
        size, factors = tensor.numel(), self._factors.get(tensor.dtype)
        if factors is None or not size:
            return
        first = float(tensor[(0,) * tensor.dim()])
        if first.is_integer() and bool((tensor == tensor.round()).all()):
            return
        self._run.lower |= tensor.dtype is not self._dtype
        factors = factors if size <= _DRAWS else factors.repeat(-(-size // _DRAWS))
        start = int(self._random() * (max(size, _DRAWS) - size + 1))
        factors = factors[start : start + size].view(tensor.shape)
        if error is None:
            tensor.mul_(factors)
        else:
            tensor.add_((factors - 1.0) * error)


def _is_of_float32(numbers: Any) -> bool:
    """Whether numbers have all digits of float32 and no more; short ones (0.5, 3) are exact."""
    if not isinstance(numbers, torch.Tensor) or numbers.dtype not in UNIT or not numbers.numel():
        return False
    wide = numbers.double()

    def fit(values: torch.Tensor) -> bool:
        first = (0,) * wide.dim()
        return bool(values[first] == wide[first]) and bool((values == wide).all())

    return fit(wide.float()) and not fit(wide.half()) and not fit(wide.round())


def _makes_whole(func: Any, kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a copy is one into whole numbers; any other of _WHOLE makes them."""
    kind = (kwargs or {}).get("dtype", torch.float32)
    is_copy = func is _aten._to_copy.default
    return not is_copy or not (kind.is_floating_point or kind is torch.bool)


def _limits(_: torch.Tensor, low: float | None = -1.0, high: float | None = 1.0) -> list[float]:
    """Between which an operator clips; the defaults, which are not handed on, are hardtanh's."""
    return [at for at in (low, high) if at is not None]


def _tensors(results: Any) -> Iterator[torch.Tensor]:
    """The tensors of what an operator made, lists of them included."""
    for result in results if isinstance(results, tuple | list) else (results,):
        if isinstance(result, torch.Tensor):
            yield result
        elif isinstance(result, list):
            yield from result


def _written(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an operator that hands nothing out writes into (the fused step of an optimizer)."""
    arguments = zip(func._schema.arguments, args, strict=False)
    aliases = ((argument.alias_info, value) for argument, value in arguments)
    return tuple(value for alias, value in aliases if alias and alias.is_write)


@functools.cache
def _rounds(func: Any) -> bool:
    """Whether an operator makes new numbers out of tensors, by its name and its signature."""
    schema = func._schema
    if schema.name.removeprefix("aten::") in _EXACT:
        return False
    if not any("Tensor" in str(argument.type) for argument in schema.arguments):
        return False  # a constant
    aliases = [result.alias_info for result in schema.returns]
    return all(alias is None or alias.is_write for alias in aliases)
