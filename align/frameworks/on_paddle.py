"""The Paddle side of any pair: the same functions as `on_torch`, NumPy in, NumPy out."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import paddle
from paddle import _C_ops

from align.frameworks.live_models import HELD_IN_FLOAT32, unpack
from align.record.arrays import Arrays, Entry, once, qualified_types
from align.record.recording import ROOT
from align.record.request import Request
from align.record.run_report import builders_recorded
from sot_paddle.versions import hook_calls

FUNCTIONAL = paddle.nn.functional
is_floating = paddle.is_floating_point

NAME, MODEL = "Paddle", "Paddle layer"
_CELLS = paddle.nn.LSTMCell, paddle.nn.GRUCell, paddle.nn.SimpleRNNCell
_MOMENT = re.compile(
    r"(?P<parameter>.+)_"
    r"(?P<kind>moment1|moment2|moment2_max|velocity|mean_square|_avg_squared_grad)_\d+"
)
"""PADDLE: the number at the end of an accumulator's name counts the optimizers of the process that
had a parameter of that name, as copies of one model have."""
_ALSO = {"_avg_squared_grad": "mean_square"}  # Adadelta's


@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    """Build and run in ``dtype``, then restore the default."""
    previous = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(previous)


def is_tensor(value: Any) -> bool:
    """Whether a value is this framework's tensor."""
    return isinstance(value, paddle.Tensor)


def numpy(tensor: paddle.Tensor) -> np.ndarray:
    """A copy as NumPy array; low precision as float32, a sparse gradient with its zeros."""
    if tensor.is_selected_rows():  # PADDLE: a row for every look-up
        rows = tensor._get_tensor_from_selected_rows().numpy()
        dense = np.zeros((tensor.get_selected_rows().height(), *rows.shape[1:]), rows.dtype)
        np.add.at(dense, tensor.rows(), rows)
        return dense
    low = tensor.dtype in (paddle.bfloat16, paddle.float16)
    return (tensor.astype("float32") if low else tensor).numpy()  # PADDLE: it copies


view = numpy
"""PADDLE: NumPy cannot read a tensor's own memory."""


def tensor(array: np.ndarray) -> paddle.Tensor:
    """A tensor that owns its memory."""
    return paddle.to_tensor(np.array(array, order="C"))


def needs_gradient(value: paddle.Tensor) -> bool:
    """Whether a gradient will arrive at a tensor."""
    return not value.stop_gradient and paddle.is_floating_point(value)


def leaf(array: np.ndarray) -> paddle.Tensor:
    """A tensor that owns its memory and collects a gradient."""
    return paddle.to_tensor(np.array(array, order="C"), stop_gradient=False)


def gradient(value: paddle.Tensor) -> np.ndarray | None:
    """What a leaf or a parameter has collected, None without."""
    return None if value.grad is None else numpy(value.grad)


def pull(tensors: list[paddle.Tensor], gradients: list[np.ndarray]) -> None:
    """Run the backward pass from several tensors with given gradients; the graph is kept."""
    paddle.autograd.backward(tensors, [tensor(g) for g in gradients], retain_graph=True)


def hook(layer: paddle.nn.Layer, before: Callable, after: Callable) -> contextlib.ExitStack:
    """Register both hooks; they are removed when what is returned is closed."""

    def leaving(called: paddle.nn.Layer, args: tuple, kwargs: dict, output: Any) -> Any:
        if not isinstance(called, _CELLS):
            return after(called, args, kwargs, output)
        new = after(called, args, kwargs, output[1])  # PADDLE: the output, then it in the state
        if new is None:
            return None
        return (new if is_tensor(new) else new[0]), new

    hooks = contextlib.ExitStack()
    for remove in hook_calls(layer, before, leaving):
        hooks.callback(remove)
    return hooks


def modules(model: paddle.nn.Layer) -> dict[str, paddle.nn.Layer]:
    """Every layer once, by name, the model itself as ROOT."""
    return {name or ROOT: layer for name, layer in model.named_sublayers(include_self=True)}


def entries(model: paddle.nn.Layer) -> list[Entry]:
    """Every name of the state dict; tied names share their identity."""
    owners = _owners(model)
    parameters = {id(p) for p in model.parameters()}
    listed = []
    for name, value in model.state_dict().items():
        owner = name.rpartition(".")[0]
        listed.append(
            Entry(
                name=name,
                shape=tuple(value.shape),
                dtype=str(value.dtype).removeprefix("paddle."),
                owner=owner or ROOT,
                types=qualified_types(owners.get(owner, model)),
                trainable=id(value) in parameters and not value.stop_gradient,
                buffer=id(value) not in parameters or name.endswith(("._mean", "._variance")),
                identity=id(value),
            )
        )
    return listed


def _owners(layer: paddle.nn.Layer, name: str = "") -> dict[str, paddle.nn.Layer]:
    """Every layer by each of its names: one that is held twice has two."""
    layer_of = {name: layer}
    for key, child in layer._sub_layers.items():  # named_children leaves a second name out
        if child is not None:
            layer_of |= _owners(child, f"{name}.{key}" if name else key)
    return layer_of


def named(model: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    """Every live tensor by canonical name."""
    return once(model.state_dict())


def state(model: paddle.nn.Layer) -> Arrays:
    """Every tensor by canonical name."""
    return {name: numpy(value) for name, value in named(model).items()}


def load(model: paddle.nn.Layer, arrays: Mapping[str, np.ndarray]) -> None:
    """Overwrite tensors by canonical name and read them back.

    PADDLE: set_state_dict only warns about what does not fit.
    """
    tensors = model.state_dict()
    for name, array in arrays.items():
        target = tensors[name]
        value = np.asarray(array, str(target.dtype).removeprefix("paddle."), order="C")
        target.set_value(value)
        if not np.array_equal(view(target), value):
            raise ValueError(f"Paddle {name}: the values read back are not those written")


def prepare(plan: Request, dtype: str, train: bool) -> paddle.nn.Layer:
    """A model of the user's layer in one precision, apart from the user's own object."""
    with default_dtype(dtype):
        if isinstance(plan.paddle_layer, paddle.nn.Layer):
            model = copy.deepcopy(plan.paddle_layer)
        else:
            paddle.seed(plan.seed)
            with builders_recorded(paddle.nn.Layer):
                model = plan.paddle_layer()
        if not isinstance(model, paddle.nn.Layer):
            raise ValueError(
                f"paddle_layer: got {type(model).__name__}, expected a paddle.nn.Layer or a "
                "callable without arguments that builds one"
            )
        # PADDLE: Layer.to(dtype=) would cast whole numbers (position ids) as well
        model._to_impl(dtype=dtype, floating_only=True, include_sublayers=True)
    for layer in _recurrent(model):
        layer.dropout = 0.0  # it drops inside its kernel
    picks = plan.picks(1)
    if picks is not None:
        model.register_forward_post_hook(lambda _, __, output: picks(output))
    set_mode(model, train)
    return model


def _recurrent(model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
    layers = model.sublayers(include_self=True)
    return [layer for layer in layers if isinstance(layer, paddle.nn.layer.rnn.RNNBase)]


def set_mode(model: paddle.nn.Layer, train: bool) -> None:
    """Training or eval mode of a model from `prepare`.

    PADDLE: the kernel of LSTM, GRU and SimpleRNN has no backward pass in eval mode. The mode only
    decides about its dropout, which `prepare` takes: the kernel stays in training mode.
    """
    model.train() if train else model.eval()
    for layer in _recurrent(model):
        layer.training = True


LOWEST = 64.0
"""PADDLE: `log_softmax` and `cross_entropy` count no score as more than this below the largest, in
every precision (CPU)."""


def cross_entropy(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """PyTorch's mean cross entropy: classes on axis 1, the mean over the labels that count.

    PADDLE: the mean divides by all labels, ignored ones (-100) included; and no score counts as
    more than LOWEST below the largest.
    """
    axis, soft = 1 if scores.ndim > 1 else -1, paddle.is_floating_point(labels)
    if float((scores.max(axis) - scores.min(axis)).max()) > LOWEST:
        logs = scores - paddle.logsumexp(scores, axis, keepdim=True)
        if soft:
            return -(labels * logs).sum(axis).mean()
        terms = -paddle.take_along_axis(logs, labels.clip(0).unsqueeze(axis), axis).squeeze(axis)
    else:
        labels_of_kernel = labels if soft else labels.unsqueeze(1)
        terms = paddle.nn.functional.cross_entropy(
            scores, labels_of_kernel, soft_label=soft, axis=axis, reduction="none"
        )
        if soft:
            return terms.mean()
        terms = terms.squeeze(1)
    counts = labels != -100
    terms = paddle.where(counts, terms, paddle.zeros_like(terms))
    return terms.sum() / counts.sum().astype(terms.dtype)


def clear(model: paddle.nn.Layer) -> None:
    """Forget the gradients: none, not zeros, with which an unused parameter would still move."""
    for parameter in model.parameters():
        parameter.clear_gradient(False)  # by position: Paddle ignores the keyword


def backward(loss: paddle.Tensor) -> None:
    """Run the backward pass of a scalar."""
    if not loss.stop_gradient:
        loss.backward()


def stamp(value: paddle.Tensor) -> dict[str, Any]:
    """Who computed a tensor, read off its type."""
    return {
        "framework": type(value).__module__.split(".")[0],
        "version": paddle.__version__,
        "device": str(value.place),
        "dtype": str(value.dtype).removeprefix("paddle."),
    }


@contextlib.contextmanager
def average_pools() -> Iterator[list[str]]:
    """Grows with every average pool. PADDLE: their backward pass holds 1/N in float32."""
    pools: list[str] = []

    def noting(function: Callable) -> Callable:
        def pool(*args: Any) -> Any:
            pools.extend(kind for kind in args if isinstance(kind, str) and kind == "avg")
            return function(*args)

        return pool

    others = {name: noting(getattr(_C_ops, name)) for name in ("pool2d", "pool3d")}
    with mock.patch.multiple(_C_ops, **others):
        yield pools


def stock_norms(model: paddle.nn.Layer) -> list[str]:
    """Norms of Paddle itself whose kernels hold epsilon (and momentum) in float32.

    Group norm is not among them: it holds its epsilon in float64. A class of its own is, when its
    forward is inherited or calls the inherited one.
    """
    norms, module = [], "paddle.nn.layer.norm"
    for name, layer in modules(model).items():
        kinds = [kind.__name__ for kind in type(layer).__mro__ if kind.__module__ == module]
        if not kinds or any("GroupNorm" in kind for kind in kinds):
            continue
        forward = type(layer).forward
        if forward.__module__ == module or "super" in forward.__code__.co_names:
            norms.append(name)
    return norms


def make_optimizer(plan: Request, model: paddle.nn.Layer) -> tuple[Any, Any]:
    """The plan's optimizer and scheduler (None without)."""
    if not isinstance(plan.optimizer, Mapping):
        return unpack(plan.optimizer[1](model), model)
    names = {"lr": "learning_rate", "eps": "epsilon"}
    options = {names.get(name, name): value for name, value in plan.optimizer.items()}
    options["parameters"] = [p for p in model.parameters() if not p.stop_gradient]
    if options.pop("name") != "sgd":
        return paddle.optimizer.AdamW(**options), None
    options["weight_decay"] = options["weight_decay"] or None
    if options["momentum"]:
        return paddle.optimizer.Momentum(**options), None
    del options["momentum"]
    return paddle.optimizer.SGD(**options), None


def live_moments(optimizer: Any, model: paddle.nn.Layer) -> dict[str, dict[str, paddle.Tensor]]:
    """Canonical parameter name -> kind of moment -> the optimizer's own tensor."""
    names = {tensor.name: name for name, tensor in named(model).items()}
    moments: dict[str, dict[str, paddle.Tensor]] = {}
    for key, value in optimizer.state_dict().items():
        parts = _MOMENT.fullmatch(key)
        name = names.get(parts["parameter"]) if parts else None
        if name is not None:
            moments.setdefault(name, {})[_ALSO.get(parts["kind"], parts["kind"])] = value
    return moments


ERRORS = (Exception,)
"""What a layer, an optimizer or a scheduler may raise when it is given what does not fit: anything,
a MemoryError and errors of the user's own among them."""


def parameters(model: paddle.nn.Layer) -> dict[str, paddle.Tensor]:
    """All floating parameters by canonical name; a frozen one gets gradients as well."""
    parameter_ids = {id(p) for p in model.parameters()}
    tensors = named(model).items()
    return {
        name: p for name, p in tensors if id(p) in parameter_ids and paddle.is_floating_point(p)
    }


def groups(optimizer: Any, model: paddle.nn.Layer) -> list[list[str]]:
    """Names of the trainable parameters of each group, one group for each rate in it."""
    return [names for names, _ in _parts(optimizer, model)]


def rates(optimizer: Any, model: paddle.nn.Layer) -> list[float]:
    """The rate that the next step applies to each of `groups`.

    PADDLE: the optimizer's get_lr() reads the schedule; the scheduler's own get_lr() is no getter.
    """
    base = float(optimizer.get_lr())
    return [base * factor for _, factor in _parts(optimizer, model)]


def factors(optimizer: Any, model: paddle.nn.Layer) -> list[float]:
    """What each of `groups` multiplies the base rate by."""
    return [factor for _, factor in _parts(optimizer, model)]


def _parts(optimizer: Any, model: paddle.nn.Layer) -> list[tuple[list[str], float]]:
    names = {p.name: name for name, p in parameters(model).items() if not p.stop_gradient}
    listed = getattr(optimizer, "_param_groups", None) or getattr(
        optimizer, "_parameter_list", None
    )
    if not listed:
        raise ValueError(
            f"Paddle: {type(optimizer).__name__} holds no parameters that can be listed; return an "
            "optimizer of paddle.optimizer (or a subclass) from the factory"
        )
    lists = [g["params"] for g in listed] if isinstance(listed[0], dict) else [listed]
    ratio = getattr(optimizer, "_lr_ratio", None)
    groups: list[tuple[list[str], float]] = []
    for params in lists:
        members: dict[float, list[str]] = {}
        for p in params:
            if p.name not in names:
                continue
            factor = float((getattr(p, "optimize_attr", None) or {}).get("learning_rate", 1.0))
            factor *= float(ratio(p)) if callable(ratio) else 1.0
            members.setdefault(factor, []).append(names[p.name])
        groups += [(listed_names, factor) for factor, listed_names in members.items()]
    return groups


def begin_again(scheduler: Any) -> None:
    """Compute the rate anew after options were set, at the same step."""
    epoch, scheduler.last_epoch = scheduler.last_epoch, -1
    scheduler.last_lr = scheduler.base_lr
    for _ in range(epoch + 1):
        scheduler.step()


def give(parameter: paddle.Tensor, gradient: np.ndarray | None) -> None:
    """Set a gradient, or for None take it away, but for zeros that an optimizer left behind.

    PADDLE: clear_grad() leaves zeros, with which an optimizer still moves the parameter.
    """
    if gradient is not None:
        dtype = str(parameter.dtype).removeprefix("paddle.")
        paddle_gradient = paddle.to_tensor(np.array(gradient, dtype=dtype, order="C"))
        try:
            parameter.grad = paddle_gradient
        except ValueError:  # PADDLE: after a sparse one only a backward pass brings a dense one
            parameter.clear_gradient(False)
            (parameter * paddle_gradient).sum().backward()
    elif parameter.grad is not None and bool(parameter.grad.any()):
        parameter.clear_gradient(False)  # by position: Paddle ignores the keyword


def kind_of(optimizer: Any) -> str:
    """The class of paddle.optimizer that it is, "" for one of the user's own."""
    kinds = [k for k in type(optimizer).__mro__ if k.__module__.startswith("paddle.optimizer.")]
    return kinds[0].__name__ if kinds and kinds[0] is not paddle.optimizer.Optimizer else ""


def kernel_numbers(optimizer: Any) -> tuple[tuple[str, ...] | None, float | None]:
    """What an optimizer's kernel computes with other numbers than PyTorch.

    Returns:
        PyTorch's names of the settings that it holds in float32, None where that is not known: of a
        class of another name with an update of its own; and the norm to which a class of Paddle's
        clips, None: by another formula, or not known.
    """
    clip = getattr(optimizer, "_grad_clip", None)
    is_of_paddle = type(clip).__module__.startswith("paddle.")
    limit = getattr(clip, "clip_norm", None) if is_of_paddle else None
    kind = type(optimizer).__name__
    updates = [getattr(type(optimizer), name, None) for name in ("step", "_append_optimize_op")]
    modules_of_update = [str(getattr(update, "__module__", "")) for update in updates]
    is_inherited = all(module.startswith("paddle.") for module in modules_of_update)
    if kind not in HELD_IN_FLOAT32 and is_inherited:
        kind = kind_of(optimizer)
    return HELD_IN_FLOAT32.get(kind), limit
