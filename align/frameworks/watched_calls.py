"""Watch the calls of Paddle's functions and tensor methods, and put others in the place of one."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional as F

from align.frameworks.swapping import attributes, modules_of, set_to
from align.record.run_report import shown
from sot_paddle import ops

_ACTIVATIONS = (
    "gelu relu silu swish tanh sigmoid elu selu leaky_relu relu6 hardswish hardsigmoid mish "
    "softplus"
)
_FUNCTIONS = (
    "softmax log_softmax where concat stack split chunk unbind transpose reshape flatten mean sum "
    "max min var std arange roll interpolate avg_pool2d max_pool2d conv2d pad layer_norm "
    "batch_norm group_norm pow sqrt rsqrt matmul bmm detach diag_embed embedding dropout clip "
    "adaptive_avg_pool2d adaptive_max_pool2d masked_fill linear "
    "scaled_dot_product_attention normalize cumsum flip squeeze t tile repeat_interleave "
    "affine_grid grid_sample glu hardtanh hardshrink softshrink celu logsumexp median prod amax "
    "amin norm topk floor ceil round trunc put_along_axis take_along_axis tril triu "
    "cosine_similarity pairwise_distance local_response_norm instance_norm unfold cumprod "
    "conv1d conv3d avg_pool1d max_pool1d nan_to_num log_sigmoid softsign tanhshrink"
)
_LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy "
    "ctc_loss gaussian_nll_loss hinge_embedding_loss kl_div l1_loss margin_ranking_loss mse_loss "
    "multi_label_soft_margin_loss multi_margin_loss nll_loss poisson_nll_loss smooth_l1_loss "
    "soft_margin_loss triplet_margin_loss"
)
ACTIVATIONS, LOSSES = _ACTIVATIONS.split(), _LOSSES.split()
FUNCTIONS = [*_FUNCTIONS.split(), *LOSSES]
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
NAMES = (
    {name: name for name in (*ACTIVATIONS, *FUNCTIONS)}
    | OPERATORS
    | {
        "add": "add",
        "subtract": "subtract",
        "multiply": "multiply",
        "divide": "divide",
    }
)

DIGITS = {*ACTIVATIONS, *FUNCTIONS} - {"detach", "dropout", "batch_norm"}
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
        function: the function itself, unwatched.
        args, kwargs: what it was given.
        number: position among the watched calls of one run.
        place: "file.py:12" of the line that calls.
    """

    name: str
    function: Callable[..., Any]
    args: tuple
    kwargs: dict[str, Any]
    number: int
    place: str

    def go(self, *args: Any, **changes: Any) -> Any:
        """The call with other leading arguments or other keywords."""
        if not (args or changes):
            return self.function(*self.args, **self.kwargs)
        return self._changed(*(args or self.args), **{**self.kwargs, **changes})

    def arguments(self) -> dict[str, Any]:
        """The arguments by name, however they were passed, with defaults; {} where unknown."""
        bound = self._bound()
        return {} if bound is None else dict(bound.arguments)

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name, however it was passed."""
        return self.arguments().get(name, default)

    def with_argument(self, name: str, value: Any) -> Any:
        """The call with one argument changed, however it was passed."""
        return self.with_arguments({name: value})

    def with_arguments(self, values: Mapping[str, Any]) -> Any:
        """The call with some arguments changed, however they were passed."""
        bound = self._bound()
        if bound is None or not set(values) <= set(bound.arguments):
            raise TypeError(f"{self.name} has no argument {', '.join(values)}")
        for name, value in values.items():
            array = isinstance(value, np.ndarray)
            bound.arguments[name] = paddle.to_tensor(value) if array else value
        return self._changed(*bound.args, **bound.kwargs)

    def _changed(self, *args: Any, **kwargs: Any) -> Any:
        """Another call of the function; one of more than BYTES is not begun (MemoryError)."""
        bound = dataclasses.replace(self, args=args, kwargs=kwargs)._bound()
        if self.name in _ELEMENTS and bound is not None:
            wide = 8 * float(_ELEMENTS[self.name](**bound.arguments))
            if wide > BYTES:
                raise MemoryError(f"{self.name}: {wide:.1e} bytes, {BYTES:.1e} at most")
        return self.function(*args, **kwargs)

    def _bound(self) -> inspect.BoundArguments | None:
        try:
            bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):  # written in C++: it has no signature
            return None
        bound.apply_defaults()
        return bound


class _Watch:
    """Wraps functions; hands each call that nothing watched has made to ``answer``."""

    def __init__(self, active: Callable[[], bool], answer: Callable[[WatchedCall], Any]) -> None:
        self.active, self.answer = active, answer
        self.busy, self.count = False, 0
        self._wrapped: dict[int, Callable] = {}

    def wrap(self, function: Callable, name: str) -> Callable:
        """The same wrapper for the same function, whoever holds it."""
        if id(function) not in self._wrapped:

            @functools.wraps(function, updated=())
            def call(*args: Any, **kwargs: Any) -> Any:
                if self.busy or not self.active():
                    return function(*args, **kwargs)
                frame = sys._getframe(1)
                place = f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}"
                return self._take(WatchedCall(name, function, args, kwargs, 0, place))

            self._wrapped[id(function)] = call
        return self._wrapped[id(function)]

    def _take(self, call: WatchedCall) -> Any:
        call.number = self.count
        self.count += 1
        with attributes(self, busy=True):
            return self.answer(call)


@contextmanager
def watched(
    active: Callable[[], bool], answer: Callable[[WatchedCall], Any], owners: tuple[Any, ...] = ()
) -> Iterator[None]:
    """Hand every call to ``answer`` while ``active()`` is true; no native operator takes its place.

    Args:
        active: asked at every call.
        answer: gives the result; `WatchedCall.go` is the call itself.
        owners: modules and layers that may hold one of the functions under a name of their own.
    """
    watch = _Watch(active, answer)
    held = [
        (owner, attribute, function)
        for owner in (paddle, F, paddle.Tensor)
        for attribute in NAMES
        if callable(function := getattr(owner, attribute, None))
    ]
    known = {id(function): NAMES[attribute] for _, attribute, function in held}
    for owner in owners:
        held += [(owner, n, v) for n, v in list(vars(owner).items()) if id(v) in known]
    with ops.native(False), set_to((owner, n, watch.wrap(f, known[id(f)])) for owner, n, f in held):
        yield


def watched_in(
    layer: Any, answer: Callable[[WatchedCall], Any], active: Callable[[], bool] = lambda: True
) -> AbstractContextManager:
    """The same for what a layer, and the layers inside, may call.

    Args:
        layer: its modules and itself are owners.
        answer, active: see `watched`.
    """
    layers = [layer, *layer.sublayers()]
    return watched(active, answer, (*modules_of(layers), *layers))
