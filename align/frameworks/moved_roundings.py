"""PyTorch with every rounding moved by a unit in the last place: one draw of its rounding error.

Another processor, another order of a sum, a fused kernel: each gives other last digits. Such runs
of the reference are imitated here. While the mode is on, what every operator that rounds hands
out, forward, backward and in the optimizer, is multiplied by 1 + u or 1 - u by chance, u = 2**-23
(in float64 2**-52, of what a model computes in float32 there 2**-23). Operators that only move,
choose or compare numbers are left alone: they round nothing. Sums are formed one term after the
other, as a kernel without blocks forms them, and products of many terms are moved by what such a
sum rounds (`long_sums`). In two of the runs the argument of a
kink (a ReLU) that rounding may carry across is moved to one side of it, see `align.judge.kinks`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from align.frameworks import long_sums
from align.record.arrays import Arrays
from align.record.moved_run import MovedRun, sampled

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
    getattr(torch.ops.aten, name).default: places
    for names, places in {
        ("relu", "relu_", "leaky_relu", "leaky_relu_", "_prelu_kernel", "abs"): (0.0,),
        ("hardswish", "hardswish_", "hardsigmoid", "hardsigmoid_"): (-3.0, 3.0),
        ("hardtanh", "hardtanh_", "clamp", "clamp_", "clamp_min", "clamp_max"): (),
    }.items()
    for name in names
}
"""Operator -> where its gradient jumps; () for the limits that it is called with."""
_WHOLE = {getattr(torch.ops.aten, n).default for n in ("_to_copy", "floor", "ceil", "trunc")}
"""Operators that make whole numbers: an index is no rounding to be moved."""
_REACH = 64  # units that moves may take a whole number off itself on the way


class MovedRoundings(TorchDispatchMode):
    """Moves the results of a precision and of lower ones; all other numbers stay as they are.

    Args:
        run: what is asked of this one; what it meets is left in it.
        dtype: "float32" or "float64".
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
        self._order = long_sums.Order.of_run(run.number)
        self._rounds: dict[Any, bool] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No guard against torch.compile, which nothing here uses: it takes a fifth of the time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the operator, then move what it rounded."""
        if func in _KINKS and args[0].dtype in self._factors:
            self._meet(args[0], _KINKS[func] or _limits(*args))
        if func in long_sums.LONG and args[0].dtype in self._factors and args[0].is_cpu:
            return self._long(func, args, kwargs or {})
        if func in _WHOLE and args[0].dtype in UNIT and _is_cast(func, kwargs):
            args = (self._steady(args[0]), *args[1:])
        result = func(*args, **kwargs) if kwargs else func(*args)
        rounds = self._rounds.get(func)
        if rounds is None:
            rounds = self._rounds[func] = _rounds(func)
        if rounds:
            for tensor in _tensors(_written(func, args) if result is None else result):
                self._move(tensor)
        return result

    def _long(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator with sums, and move what it makes by what long sums round."""
        if func in long_sums.PARTS:
            with self:
                return long_sums.PARTS[func](*args, **kwargs)
        if func in long_sums.SUMS and kwargs.get("dtype") is None and args[0].numel():
            options = {name: value for name, value in kwargs.items() if name != "dtype"}
            result = long_sums.SUMS[func](*args, order=self._order, **options)
        else:
            result = func(*args, **kwargs)
        reaches = long_sums.reaches(func, args, result)
        for tensor, reach in zip(_tensors(result), reaches, strict=True):
            self._move(tensor, reach)
        return result

    def _meet(self, argument: torch.Tensor, places: Sequence[float]) -> None:
        """Keep some of the argument of a kink, or take what is near as above or below, in place."""
        at, run = next(self._kinks), self._run
        if not run.side:
            sample = argument.reshape(-1)[torch.from_numpy(sampled(argument.numel()))]
            run.met[at] = sample.numpy(force=True)
            return
        reach = run.reach.get(at, 0.0)
        if reach and 0 not in argument.stride():  # an expanded tensor cannot be written to
            for place in places:
                off = (argument - place).abs()
                argument.copy_(torch.where(off < reach, place + run.side * off, argument))

    def _steady(self, numbers: torch.Tensor) -> torch.Tensor:
        """Numbers that become whole, those that moves took off a whole one put back on it."""
        whole, unit = numbers.round(), UNIT[numbers.dtype]
        return torch.where((numbers - whole).abs() <= _REACH * unit * whole.abs(), whole, numbers)

    def arrays(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Moved copies of weights or inputs; arrays of another dtype are passed on."""
        return {name: self.array(array) for name, array in arrays.items()}

    def array(self, array: np.ndarray) -> np.ndarray:
        """The same of one array."""
        tensor = torch.from_numpy(np.array(array)) if array.dtype.kind == "f" else None
        if tensor is None or tensor.dtype is not self._dtype:
            return array
        self._move(tensor)
        return tensor.numpy()

    def _move(self, tensor: torch.Tensor, reach: torch.Tensor | None = None) -> None:
        """Move a tensor in place; infinities, NaN and counts (of steps, places) stay.

        Args:
            tensor: (...) numbers.
            reach: (...) how far in units; None for their own sizes, so that zeros stay.
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
        if reach is None:
            tensor.mul_(factors)
        else:
            tensor.add_((factors - 1.0) * reach)


def _is_cast(func: Any, kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a copy is one into whole numbers; any other of _WHOLE makes them."""
    kind = (kwargs or {}).get("dtype", torch.float32)
    is_copy = func is torch.ops.aten._to_copy.default
    return not is_copy or not (kind.is_floating_point or kind is torch.bool)


def _limits(_: torch.Tensor, low: float | None = -1.0, high: float | None = 1.0) -> list[float]:
    """Between which an operator clips; the defaults, which are not handed on, are hardtanh's."""
    return [at for at in (low, high) if at is not None]


def _tensors(made: Any) -> Iterator[torch.Tensor]:
    """The tensors of what an operator made, lists of them included."""
    for one in made if isinstance(made, tuple | list) else (made,):
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, list):
            yield from one


def _written(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an operator that hands nothing out writes into (the fused step of an optimizer)."""
    given = zip(func._schema.arguments, args, strict=False)
    return tuple(value for told, value in given if told.alias_info and told.alias_info.is_write)


def _rounds(func: Any) -> bool:
    """Whether an operator makes new numbers out of tensors, by its name and its signature."""
    schema = func._schema
    if schema.name.removeprefix("aten::") in _EXACT:
        return False
    if not any("Tensor" in str(argument.type) for argument in schema.arguments):
        return False  # a constant
    aliases = [made.alias_info for made in schema.returns]
    return all(alias is None or alias.is_write for alias in aliases)
