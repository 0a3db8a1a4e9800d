"""Dropout functions that hand their input on, and a list of every call that would have dropped."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from align.record.recording import ROOT, Call
from sot_paddle.ops import masks_by_paddle

UPSCALED = "upscale_in_train"
"""PADDLE: the mode of its dropout that divides what is kept by 1 - p, as PyTorch's always does."""
Note = Callable[[float, str, tuple[int, ...]], None]
"""Takes p, the mode and the shape of the mask."""


@dataclass(frozen=True)
class DropoutCall:
    """One call of a dropout function in training mode.

    Attributes:
        place: key of the innermost paired call it ran in, by Paddle's name.
        number: 1 for the first dropout there.
        p: probability to drop, above 0.
        mode: UPSCALED, Paddle's other mode, or the name of another kind of dropout.
        shape: of the mask; 1 where an axis shares it.
    """

    place: str
    number: int
    p: float
    mode: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Numbers of the mask."""
        return math.prod(self.shape)


@contextlib.contextmanager
def without_dropout(functional: Any, note: Note | None = None) -> Iterator[None]:
    """Let every dropout function of a framework hand its input on, in training mode too.

    Native operators of sot_paddle draw no masks meanwhile.

    Args:
        functional: the framework's module of functions.
        note: told of every call that would drop.
    """
    functions = {n: getattr(functional, n) for n in dir(functional) if "dropout" in n}
    plain = [n for n, f in functions.items() if callable(f) and not n.startswith(("_", "fused"))]
    attend = functional.scaled_dot_product_attention
    is_paddle = functional.__name__.startswith("paddle")
    length_axis = -3 if is_paddle else -2  # PADDLE: (B, T, H, D)

    def attend_all(query, key, value, attn_mask=None, dropout_p=0.0, *args: Any, **options: Any):
        is_training = options.get("training", args[1] if len(args) > 1 else True)
        if note is not None and is_training and dropout_p:
            note(dropout_p, UPSCALED, (math.prod(query.shape[:-1]), key.shape[length_axis]))
        return attend(query, key, value, attn_mask, 0.0, *args, **options)

    def handing_on(name: str) -> Callable[..., Any]:
        def hand_on(*args: Any, **named: Any) -> Any:
            x = args[0] if args else named["input" if "input" in named else "x"]
            if note is not None:
                _tell(note, name, functions[name], x, args, named)
            return x

        return hand_on

    others: dict[str, Any] = {name: handing_on(name) for name in plain}
    patched = mock.patch.multiple(functional, **others, scaled_dot_product_attention=attend_all)
    with masks_by_paddle() if is_paddle else contextlib.nullcontext(), patched:
        yield


def _tell(note: Note, name: str, function: Any, x: Any, args: tuple, named: Mapping) -> None:
    """Note a call unless it drops nothing."""
    bound = inspect.signature(function).bind(*args, **named)
    bound.apply_defaults()
    arguments, shape = bound.arguments, tuple(int(n) for n in x.shape)
    if not arguments["training"] or not arguments["p"]:
        return
    axes = arguments.get("axis")
    if name.removeprefix("feature_") != name or name[-2:] in ("1d", "2d", "3d"):
        axes = (0, 1)
    axes = (axes,) if isinstance(axes, int) else axes
    if axes is not None:
        shape = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    kind = name if "alpha" in name else arguments.get("mode", UPSCALED)
    note(float(arguments["p"]), kind, shape)


@contextlib.contextmanager
def dropouts_seen(side: Any, model: Any, paired: Mapping[str, str]) -> Iterator[list[DropoutCall]]:
    """List the dropout calls of a pass in a ``with`` block; nothing is dropped.

    Args:
        side: `on_torch` or `on_paddle`.
        model: in training mode.
        paired: the side's own names of paired layers -> Paddle's.
    """
    calls: list[DropoutCall] = []
    stack: list[str] = [ROOT]
    counts: dict[str, int] = {}

    def entering(name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            key = stack[-1]
            if name in paired:
                counts[name] = counts.get(name, 0) + 1
                key = Call(paired[name], counts[name]).key
            stack.append(key)

        return enter

    def leave(*_: Any) -> None:
        stack.pop()

    def note(p: float, mode: str, shape: tuple[int, ...]) -> None:
        number = 1 + sum(call.place == stack[-1] for call in calls)
        calls.append(DropoutCall(stack[-1], number, p, mode, shape))

    with contextlib.ExitStack() as hooks:
        for name, layer in side.modules(model).items():
            hooks.enter_context(side.hook(layer, entering(name), leave))
        hooks.enter_context(without_dropout(side.FUNCTIONAL, note))
        yield calls
