"""Rows of edits that move values: orders, axes, indices, shifts, windows, sizes of images."""

from __future__ import annotations

from typing import Any

import paddle

from align.explain.calls import call_values as values
from align.explain.calls.call_values import CallRow, option
from align.explain.calls.framework_rows import interpolated, is_bilinear
from align.frameworks.watched_calls import WatchedCall


def _joined(call: WatchedCall, order: tuple[int, ...]) -> Any:
    chosen = [values.first(call)[i] for i in order]
    return call.go(chosen, *call.args[1:]) if call.args else call.go(x=chosen)


def _repeated(call: WatchedCall, _: Any) -> paddle.Tensor:
    """The parts of one axis repeated in the other order: a b a b, a a b b."""
    x = values.first(call)
    if call.name == "repeat_interleave":
        axis = call.argument("axis") % len(x.shape)
        return paddle.tile(x, [1] * axis + [call.argument("repeats")] + [1] * (x.ndim - axis - 1))
    times = list(call.argument("repeat_times"))
    (axis,) = (i for i, count in enumerate(times) if count > 1)
    return paddle.repeat_interleave(x, times[axis], axis - len(times))


PLACE_ROWS = (
    CallRow("flip", "flip: PyTorch does not flip", lambda call, _: call.args[0]),
    CallRow(
        "concat stack",
        "order of the parts in {name}: PyTorch has {value} of Paddle's list",
        _joined,
        lambda call, around: values.orders(len(values.first(call))),
    ),
    option("concat stack", "axis", values.axes),
    CallRow(
        "split chunk unbind",
        "order of the parts of {name}: swapped; PyTorch's are numbers {value} of Paddle's",
        lambda call, order: [call.go()[i] for i in order],
        lambda call, around: values.orders(len(call.go())),
    ),
    option(
        "transpose",
        "perm",
        values.perms,
        "axes of transpose: Paddle's order is {{own}}, with {{value}} it agrees",
    ),
    CallRow(
        "reshape flatten",
        "{name} without a transposition of its input: with the axes in the order {value} before "
        "it, it agrees (the heads are not put back)",
        lambda call, order: values.put(call, 0, paddle.transpose(call.args[0], order)),
        values.input_perms,
    ),
    CallRow(
        "reshape flatten",
        "order of the sizes in {name}: Paddle reads {value[2]}, PyTorch {value[3]} with the axes "
        "{value[0]} and {value[1]} swapped after",
        values.regrouped,
        values.size_swaps,
    ),
    CallRow(
        "index",
        "index: Paddle takes [{own}], with [{value}] it agrees",
        lambda call, value: call.go(call.args[0], value[1]),
        values.places,
        lambda call: values.index(call.args[1]),
    ),
    CallRow(
        "index",
        "the last states of a two-way recurrent layer: Paddle takes its output at the last place "
        "[{own}] for both directions, PyTorch the one at the first place for the way back",
        values.both_ways,
        values.two_ways,
        lambda call: values.index(call.args[1]),
    ),
    CallRow(
        "arange embedding",
        "positions are off by one: Paddle's are {value:+d} to PyTorch's",
        lambda call, by: (
            call.go() - by if call.name == "arange" else call.go(call.args[0] - by, *call.args[1:])
        ),
        lambda call, around: (1, -1),
    ),
    option(
        "embedding",
        "padding_idx",
        (None,),
        "{argument}: Paddle's embedding gives zeros for that index, PyTorch the row",
    ),
    option(
        "roll",
        "shifts",
        values.shifts,
        "shift of roll: Paddle rolls by {{own}}, with {{value}} it agrees",
    ),
    option("interpolate", "align_mode", (0, 1)),
    option("interpolate", "antialias", (True, False)),
    option("interpolate", "recompute_scale_factor", (True, None)),
    option("affine_grid grid_sample", "align_corners", (True, False)),
    CallRow(
        "interpolate",
        "interpolate to a size of 1: Paddle takes the first place, PyTorch the middle, in float32 "
        "too; with the middle it agrees: compute it by hand",
        interpolated,
        lambda call, around: is_bilinear(call, around) if 1 in call.go().shape[2:] else [],
    ),
    CallRow(
        "tile repeat_interleave",
        "order of what is repeated: with {value} instead of {own} it agrees (grouped heads)",
        _repeated,
        lambda call, around: {"tile", "repeat_interleave"} - {call.name},
        lambda call: call.name,
    ),
)
"""In the order in which they are tried."""
