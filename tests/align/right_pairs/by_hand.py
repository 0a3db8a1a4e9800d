"""Run a drawn pair in float64 without the suite: is it right, what does a wrong option change."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import paddle
import torch

from tests.align.right_pairs.wiring import Pair

AGREE = 1e-9
"""How far the outputs of a right pair may be apart, of the largest value."""
AGREE_BACKWARD = 1e-7
"""The same for gradients: what the frameworks' kernels leave open (docs/differences.md)."""
ROUNDING = 1e-6
"""Of the largest gradient: one that is smaller may be what is left where all cancels out."""
CRASHES = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NameError)
CRASHES += (OSError, RuntimeError, TypeError)
"""What may leave a model or the suite beside a ValueError."""
Arrays = Mapping[str, np.ndarray]


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Both frameworks build and compute in float64."""
    before = torch.get_default_dtype(), paddle.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    paddle.set_default_dtype("float64")
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        paddle.set_default_dtype(before[1])


def _weighted(output, seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 3]).normal(size=tuple(output.shape))


def torch_numbers(pair: Pair) -> tuple[Arrays, Arrays, Arrays]:
    """Weights of the reference and their gradients (under its names); output, input's gradient."""
    model = pair.torch_model().train(pair.train)
    weights = {k: v.detach().numpy().copy() for k, v in model.state_dict().items()}
    x = torch.tensor(pair.inputs())
    x.requires_grad_(x.is_floating_point())
    output = model(x)
    if pair.loss:
        value = pair.loss.torch_loss()(output, torch.tensor(pair.loss.labels(pair.seed)))
    else:
        value = (output * torch.tensor(_weighted(output, pair.seed))).sum()
    value.backward()
    found = {"output": output.detach().numpy(), "loss": value.detach().numpy()}
    if x.grad is not None:
        found["gradient of the input"] = x.grad.numpy()
    gradients = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    return weights, gradients, found


def paddle_numbers(
    pair: Pair, weights: Arrays | None, state: Arrays | None
) -> tuple[Arrays, Arrays]:
    """The port's state, and its output, gradients, statistics and trained weights.

    Args:
        pair: that is run.
        weights: of the reference, laid out here.
        state: of another port of the same names, as it is.
    """
    model = pair.paddle_model()
    model.train() if pair.train else model.eval()
    recurrent = (paddle.nn.LSTM, paddle.nn.GRU, paddle.nn.SimpleRNN)
    for layer in model.sublayers():
        if isinstance(layer, recurrent):
            layer.train()  # PADDLE: no backward pass in eval mode
    loaded = laid_out(model, weights) if state is None else state
    model.set_state_dict({name: paddle.to_tensor(value) for name, value in loaded.items()})
    x = paddle.to_tensor(pair.inputs(), stop_gradient=pair.input_kind == "ids")
    state = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    optimizer = None
    if pair.optimizer and model.parameters():
        optimizer = pair.optimizer.paddle_optimizer(model.parameters())
    found: dict[str, np.ndarray] = {}
    not_finite: list[int] = []
    _watch_gradients(model, not_finite)
    for step in range(pair.optimizer.steps if optimizer else 1):
        output = model(x)
        if pair.loss:
            value = pair.loss.paddle_loss()(output, paddle.to_tensor(pair.loss.labels(pair.seed)))
        else:
            value = (output * paddle.to_tensor(_weighted(output, pair.seed))).sum()
        value.backward()
        found.setdefault("loss", value.numpy())
        if step == 0:
            found["output"] = output.numpy()
            if x.grad is not None:
                found["gradient of the input"] = x.grad.numpy()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    found[f"gradient of {name}"] = parameter.grad.numpy()
            found |= {n: b.numpy() for n, b in model.named_buffers() if b.ndim}
        if optimizer:
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
    if optimizer:
        found |= {f"trained {n}": p.numpy() for n, p in model.named_parameters()}
    found["not finite"] = np.array(float(sum(not_finite)))
    return state, found


def _watch_gradients(model: paddle.nn.Layer, not_finite: list[int]) -> None:
    """Note how many values of the gradient at every layer's output are not finite.

    A clip or a mask behind the layer can hide them from the gradients of inputs and weights.
    """

    def count(gradient: paddle.Tensor) -> None:
        not_finite.append(int((~np.isfinite(gradient.numpy())).sum()))

    def watch(layer: paddle.nn.Layer, inputs: tuple, output: object) -> None:
        if isinstance(output, paddle.Tensor) and not output.stop_gradient:
            output.register_hook(count)

    for layer in model.sublayers():
        layer.register_forward_post_hook(watch)


_OTHER_NAMES = {
    "._mean": ".running_mean",
    "._variance": ".running_var",
    "._weight": ".weight",
    ".scale": ".weight",
}


def laid_out(model: paddle.nn.Layer, weights: Arrays) -> Arrays:
    """PyTorch's weights under Paddle's names and in its layout, by the kind of the layer."""
    found = {}
    linear = {
        f"{name}.weight"
        for name, layer in model.named_sublayers()
        if isinstance(layer, paddle.nn.Linear)
    }
    for name, tensor in model.state_dict().items():
        source = name
        for ours, theirs in _OTHER_NAMES.items():
            source = source.replace(ours, theirs)
        value = weights.get(source)
        if value is None and "_proj." in name:  # the three projections stand in one tensor
            holder, projection, kind = source.rsplit(".", 2)
            packed = weights.get(f"{holder}.in_proj_{kind}")
            value = None if packed is None else np.split(packed, 3)["qkv".index(projection[0])]
        if value is not None:
            value = value.T if name in linear and value.ndim == 2 else value
            value = value[..., 0, 0].T if name in linear and value.ndim == 4 else value
            found[name] = value.reshape(tuple(tensor.shape))
    return found


def apart(left: Arrays, right: Arrays, names: set[str] | None = None) -> float:
    """The largest change of a number, of its tensor's largest; NaN counts as infinite."""
    worst = 0.0
    for name in names if names is not None else left.keys() | right.keys():
        if name not in left or name not in right or left[name].shape != right[name].shape:
            return float("inf")
        if not left[name].size:
            continue
        difference = float(np.max(np.abs(left[name] - right[name])))
        scale = float(np.max(np.abs(right[name]))) or 1.0
        worst = max(worst, difference / scale if np.isfinite(difference) else float("inf"))
    return worst


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How far both sides of a right pair are apart in float64, of the tensor's largest value."""

    forward: float
    backward: float
    finite: bool

    @property
    def is_right(self) -> bool:
        """Whether the pair is a right one."""
        return self.finite and self.forward <= AGREE and self.backward <= AGREE_BACKWARD

    @property
    def is_right_in_float32(self) -> bool:
        """Whether it is one for a comparison in float32 alone."""
        return self.finite and self.forward <= AGREE_BACKWARD


def _nonzero_gradients(numbers: Arrays, least: float = 1e-9) -> set[str]:
    """Names of the gradients that are more than rounding beside the largest one."""
    sizes = {
        name: float(np.abs(array).max())
        for name, array in numbers.items()
        if name not in ("output", "loss") and array.size
    }
    largest = max(sizes.values(), default=0.0)
    return {name for name, size in sizes.items() if size > least * largest}


def agreement(pair: Pair) -> Agreement:
    """Run both sides of a pair in float64 on the same weights."""
    with in_float64():
        weights, gradients, theirs = torch_numbers(pair)
        _, ours = paddle_numbers(pair, weights, None)
        laid = laid_out(pair.paddle_model(), gradients)
    theirs |= {f"gradient of {name}": array for name, array in laid.items()}
    finite = not ours.pop("not finite") and all(np.isfinite(a).all() for a in theirs.values())
    forward = {"output", "loss"} if pair.loss else {"output"}  # the sum of weighted outputs cancels
    backward = _nonzero_gradients(theirs)
    return Agreement(apart(ours, theirs, forward), apart(ours, theirs, backward), finite)


def effect(right: Pair, wrong: Pair) -> float:
    """The largest change that a wrong option makes: outputs, gradients, statistics, weights.

    A gradient that is rounding beside the largest one on both sides is no number that changes.
    """
    with in_float64():
        weights, _, _ = torch_numbers(right)
        state, before = paddle_numbers(right, weights, None)
        try:
            _, after = paddle_numbers(wrong, None, state)
        except (*CRASHES, ValueError):  # the wrong port does not run
            return float("inf")
    names = {"output", "loss"} if right.loss else {"output"}  # the sum of weighted outputs cancels
    gradients = _nonzero_gradients(before, ROUNDING) | _nonzero_gradients(after, ROUNDING)
    return apart(after, before, names | gradients)
