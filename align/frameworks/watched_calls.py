"""What functions are called with while a model runs, in Paddle and in PyTorch.

Calls of Paddle's may be answered in another way, and attributes have other values, for a block.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F
from torch.overrides import TorchFunctionMode, get_testing_overrides

from align.record.run_report import shown
from sot_paddle import ops


@contextlib.contextmanager
def set_to(values: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Other values of attributes, each (owner, name, value), for the length of a ``with`` block."""
    values = list(values)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in values]
    try:
        for owner, name, value in values:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def attributes(owner: Any, **values: Any) -> AbstractContextManager[None]:
    """Set attributes of one object to other values for the length of a ``with`` block."""
    return set_to((owner, name, value) for name, value in values.items())


def modules_of(layers: Iterable[Any]) -> list[Any]:
    """The Python modules that define the classes of some layers, and their base classes."""
    kinds = itertools.chain(*(type(layer).__mro__ for layer in layers))
    names = {kind.__module__ for kind in kinds}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


_ACTIVATIONS = (
    "gelu relu silu swish tanh sigmoid elu selu leaky_relu relu6 hardswish hardsigmoid mish "
    "softplus"
)
# what only rearranges numbers, as unpacking and indexing do, too
_MOVES = "where concat stack split chunk unbind transpose reshape flatten arange squeeze t tile"
_FUNCTIONS = (
    "softmax log_softmax mean sum max min var std roll interpolate avg_pool2d max_pool2d conv2d "
    "pad layer_norm batch_norm group_norm pow sqrt rsqrt matmul bmm detach diag_embed embedding "
    "dropout clip adaptive_avg_pool2d adaptive_max_pool2d masked_fill linear "
    "scaled_dot_product_attention normalize cumsum flip repeat_interleave affine_grid grid_sample "
    "glu hardtanh hardshrink softshrink celu logsumexp median prod amax amin norm topk floor ceil "
    "round trunc put_along_axis take_along_axis tril triu cosine_similarity pairwise_distance "
    "local_response_norm instance_norm unfold cumprod conv1d conv3d avg_pool1d max_pool1d "
    "nan_to_num log_sigmoid softsign tanhshrink label_smooth"
)
_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy "
    "ctc_loss gaussian_nll_loss hinge_embedding_loss kl_div l1_loss margin_ranking_loss mse_loss "
    "multi_label_soft_margin_loss multi_margin_loss nll_loss poisson_nll_loss smooth_l1_loss "
    "soft_margin_loss triplet_margin_loss"
)
ACTIVATIONS, LOSSES, MOVES = _ACTIVATIONS.split(), _LOSSES.split(), _MOVES.split()
FUNCTIONS = [*ACTIVATIONS, *_FUNCTIONS.split(), *MOVES, *LOSSES]
OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "subtract",
    "__rsub__": "subtract from",
    "__mul__": "multiply",
    "__rmul__": "multiply",
    "__truediv__": "divide",
    "__matmul__": "matmul",
    "__pow__": "pow",
    "__getitem__": "index",
    "__setitem__": "assign",
}
NAMES = OPERATORS | {n: n for n in (*FUNCTIONS, "add", "subtract", "multiply", "divide")}

DIGITS = {*FUNCTIONS} - {"detach", "dropout", "batch_norm"}
"""Functions that may lose digits: not those that draw, or write into what they are given."""

BYTES = 2**30  # of the largest result that an edit of a call may ask for
_ELEMENTS: Mapping[str, Callable[..., Any]] = {
    "interpolate": lambda x, size, scale_factor, **_: (
        x.size * np.prod(np.broadcast_to(scale_factor, x.ndim - 2))
        if size is None
        else x.shape[0] * x.shape[1] * np.prod(size)
    ),
    "arange": lambda start, end, step, **_: (start if end is None else end - start) / step,
    "matmul": lambda x, y, **_: x.size / x.shape[-1] * y.shape[-1],
}
"""Function -> elements of its result, of those that an edit may make much larger."""


@dataclass
class WatchedCall:
    """One call.

    Attributes:
        name: what is called, operators by their word.
        number: position among the watched calls of one run.
        place: "file.py:12" of the line that calls.
    """

    name: str
    function: Callable[..., Any]
    args: tuple
    kwargs: dict[str, Any]
    number: int
    place: str

    def go(self, *args: Any) -> Any:
        """The call, or the call with other leading arguments."""
        if not args:
            return self.function(*self.args, **self.kwargs)
        return self._changed(*args, *self.args[len(args) :], **self.kwargs)

    def arguments(self) -> dict[str, Any]:
        """The arguments by name, however they were passed, with defaults; {} where unknown."""
        bound = self._bound_arguments()
        return {} if bound is None else dict(bound.arguments)

    def unset(self) -> set[str]:
        """Return the names of the arguments that have the function's own default."""
        values = self.arguments()
        parameters = inspect.signature(self.function).parameters if values else {}
        return {name for name, value in values.items() if value is parameters[name].default}

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name, however it was passed."""
        return self.arguments().get(name, default)

    def with_arguments(self, values: Mapping[str, Any]) -> Any:
        """The call with some arguments changed, however they were passed."""
        bound = self._bound_arguments()
        if bound is None or not set(values) <= set(bound.arguments):
            raise TypeError(f"{self.name} has no argument {', '.join(values)}")
        for name, value in values.items():
            array = isinstance(value, np.ndarray)
            bound.arguments[name] = paddle.to_tensor(value) if array else value
        return self._changed(*bound.args, **bound.kwargs)

    def _changed(self, *args: Any, **kwargs: Any) -> Any:
        """Another call of the function; one of more than BYTES is not begun (MemoryError)."""
        bound = dataclasses.replace(self, args=args, kwargs=kwargs)._bound_arguments()
        if self.name in _ELEMENTS and bound is not None:
            wide = 8 * float(_ELEMENTS[self.name](**bound.arguments))
            if wide > BYTES:
                raise MemoryError(f"{self.name}: {wide:.1e} bytes, {BYTES:.1e} at most")
        return self.function(*args, **kwargs)

    def _bound_arguments(self) -> inspect.BoundArguments | None:
        try:
            bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):  # written in C++: it has no signature
            return None
        bound.apply_defaults()
        return bound


Answer = Callable[[WatchedCall], Any]
"""Gives the result of a call; `WatchedCall.go` is the call itself."""


def noting(calls: list[WatchedCall]) -> Answer:
    """Write every call down and make it."""

    def note(call: WatchedCall) -> Any:
        calls.append(call)
        return call.go()

    return note


@contextmanager
def watched(
    active: Callable[[], bool], answer: Answer, owners: tuple[Any, ...] = ()
) -> Iterator[None]:
    """Hand every call to ``answer`` while ``active()`` is true; no native operator takes its place.

    Args:
        owners: modules and layers that may hold one of the functions under a name of their own.
    """
    numbers, busy = itertools.count(), []

    def watching(function: Callable, name: str) -> Callable:
        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            if busy or not active():  # nothing is handed on that a watched call makes
                return function(*args, **kwargs)
            frame = sys._getframe(1)
            place = f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}"
            busy.append(name)
            try:
                return answer(WatchedCall(name, function, args, kwargs, next(numbers), place))
            finally:
                busy.clear()

        return call

    functions = []  # (owner, attribute, function)
    for owner, attribute in itertools.product((paddle, F, paddle.Tensor), NAMES):
        function = getattr(owner, attribute, None)
        if callable(function):
            functions.append((owner, attribute, function))
    word_of = {id(function): NAMES[attribute] for _, attribute, function in functions}
    wrapper_of = {id(f): watching(f, word_of[id(f)]) for _, _, f in functions}
    for owner in owners:
        functions += [(owner, n, v) for n, v in vars(owner).items() if id(v) in wrapper_of]
    with ops.native(False), set_to((owner, n, wrapper_of[id(f)]) for owner, n, f in functions):
        yield


def watched_in(
    layer: Any, answer: Answer, active: Callable[[], bool] = lambda: True
) -> AbstractContextManager:
    """Hand every call that a layer, and the layers inside, may make to ``answer``."""
    layers = [layer, *layer.sublayers()]
    return watched(active, answer, (*modules_of(layers), *layers))


REDUCED = ("amax", "amin", "all", "any", "logsumexp", "max", "mean", "min", "prod", "sum")
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(REDUCED, ("input", "dim", "keepdim")),
    **dict.fromkeys(("var", "std"), ("input", "dim", "unbiased", "keepdim")),
}
"""The arguments of functions written in C++ whose forms are several."""


class TorchCall(NamedTuple):
    """One call: the function's name, its arguments by PyTorch's names, defaults included."""

    name: str
    arguments: dict[str, Any]


class TorchCalls(TorchFunctionMode):
    """Writes down the calls of a model's code, not those that they make in turn."""

    def __init__(self, active: Callable[[], bool] = lambda: True) -> None:
        super().__init__()
        self.active, self.calls = active, []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if self.active():
            self.calls.append(TorchCall(name, _by_name(func, name, args, kwargs)))
        return func(*args, **kwargs)


def _by_name(func: Any, name: str, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name; those passed by name alone where no signature fits."""
    if name in SIGNATURES:
        defaults = {"dim": None, "keepdim": False}
        return defaults | dict(zip(SIGNATURES[name], args, strict=False)) | dict(kwargs)
    for signature in (func, *_signatures().get(name, ())):
        try:
            bound = inspect.signature(signature).bind(*args, **kwargs)
        except (TypeError, ValueError):  # written in C++, or another form
            continue
        bound.apply_defaults()
        return dict(bound.arguments)
    return dict(kwargs)


@functools.cache
def _signatures() -> dict[str, list[Callable]]:
    """Functions with PyTorch's arguments, by name."""
    signatures: dict[str, list[Callable]] = {}
    for function, like in get_testing_overrides().items():
        signatures.setdefault(getattr(function, "__name__", ""), []).append(like)
    return signatures
