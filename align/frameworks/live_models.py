"""What both frameworks' models are put through: optimizers in one form, dropout switched off.

Dropout functions hand their input on, and every call that would have dropped is listed.

A factory takes the model and returns the optimizer, ``(optimizer, scheduler)``,
``(optimizer, scheduler, before_step)`` or ``(optimizer, scheduler, before_step, average)``.
``before_step`` is a callable that gets the model and runs before each optimizer step: the place for
what PyTorch does outside of its optimizers, such as ``clip_grad_norm_``. ``average`` is a moving
average of the model: its ``update()`` runs after each step, and its ``arrays()`` (NumPy, by the
model's names) are compared at the end. All but the optimizer may be None.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from align.record.recording import ROOT, Call
from sot_paddle.ops import masks_by_paddle

HELD_IN_FLOAT32: Mapping[str, tuple[str, ...]] = {
    "SGD": (),
    "Adam": (),
    "AdamW": ("weight_decay",),
    "Momentum": ("momentum", "weight_decay"),
    "NAdam": ("betas", "eps"),
    "RAdam": ("betas", "eps"),
    "Adadelta": ("rho", "eps"),
    "Adagrad": ("eps",),
    "RMSProp": ("alpha", "eps", "momentum"),
}
"""Paddle's optimizer -> PyTorch's names of the settings that its kernel holds in float32."""
CLIP_EPS = 1e-6  # PyTorch's clip_grad_norm_ divides by norm + 1e-6
FORMS = "the optimizer, (optimizer, scheduler), or also before_step and a moving average"

AVERAGE = "_align_moving_average"
"""Attribute of an optimizer that holds the moving average that goes with it."""


def unpack(returned: Any, model: Any) -> tuple[Any, Any]:
    """The optimizer, with what surrounds a step hooked into it, and the scheduler.

    Raises:
        ValueError: not one of FORMS.
    """
    parts = returned if isinstance(returned, tuple) else (returned,)
    if not 1 <= len(parts) <= 4:
        raise ValueError(f"optimizer factory: got {len(parts)} values, expected {FORMS}")
    optimizer, scheduler, before, average = (*parts, None, None, None)[:4]
    for what, value, methods in (
        ("optimizer", optimizer, ["step"]),
        ("scheduler", scheduler, ["step"]),
        ("before_step", before, ["__call__"]),
        ("moving average", average, ["update", "arrays"]),
    ):
        missing = [f"{n}()" for n in methods if not callable(getattr(value, n, None))]
        if missing and (what == "optimizer" or value is not None):
            raise ValueError(
                f"optimizer factory: its {what} is a {type(value).__name__} without "
                f"{' and '.join(missing)}; return {FORMS}"
            )
    if hasattr(scheduler, "zero_grad") or hasattr(scheduler, "clear_grad"):
        raise ValueError(
            "optimizer factory: got two optimizers, expected one: give the parameters as its "
            "groups, or compare each one on its own"
        )
    if before is not None:
        around_steps(optimizer, "pre", lambda: before(model))
    if average is not None:
        around_steps(optimizer, "post", average.update)
        setattr(optimizer, AVERAGE, average)
    return optimizer, scheduler


def around_steps(optimizer: Any, when: str, call: Callable[[], Any]) -> None:
    """Run ``call`` before ("pre") or after ("post") every step of this optimizer."""
    register = getattr(optimizer, f"register_step_{when}_hook", None)  # PyTorch has, Paddle not
    if register is not None:

        def silent(*_: Any) -> None:
            call()  # whose result would replace the arguments of the step

        register(silent)
        return
    step = optimizer.step

    def stepped(*args: Any, **options: Any) -> Any:
        if when == "pre":
            call()
        result = step(*args, **options)
        if when == "post":
            call()
        return result

    optimizer.step = stepped


def make_step(framework: str, optimizer: Any) -> None:
    """One step.

    Raises:
        ValueError: an optimizer that must compute the loss itself, or without a kernel for the
            precision.
    """
    name = f"{framework}: {type(optimizer).__name__}.step()"
    try:
        optimizer.step()
    except TypeError as error:
        raise ValueError(
            f"{name} needs an argument ({error}): optimizers with a closure cannot be compared"
        ) from error
    except RuntimeError as error:
        reason = next((line for line in str(error).splitlines() if "kernel" in line), str(error))
        raise ValueError(
            f"{name} failed ({reason.strip()[:200]}): compare in another precision (dtype=), or "
            "replace what has no kernel"
        ) from error


def next_rate(scheduler: Any) -> None:
    """One step of the schedule, whether or not the optimizer made one.

    Raises:
        ValueError: a scheduler whose step needs an argument.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
        try:
            scheduler.step()
        except TypeError as error:
            raise ValueError(
                f"{type(scheduler).__name__}.step() needs an argument ({error}): pass "
                "schedule=(torch_rates, paddle_rates) instead"
            ) from error


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
    if name.startswith("feature_") or name[-2:] in ("1d", "2d", "3d"):
        axes = (0, 1)
    axes = (axes,) if isinstance(axes, int) else axes
    if axes is not None:
        shape = tuple(n if i in axes else 1 for i, n in enumerate(shape))
    kind = name if "alpha" in name else arguments.get("mode", UPSCALED)
    note(float(arguments["p"]), kind, shape)


@contextlib.contextmanager
def dropouts_seen(side: Any, model: Any, paired: Mapping[str, str]) -> Iterator[list[DropoutCall]]:
    """List the dropout calls of a pass in a ``with`` block; nothing is dropped."""
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
