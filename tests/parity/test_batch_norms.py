"""Compare batch norms alone: output, what they keep, gradients.

In a model the statistics are those of hundreds of values. Here a mask leaves no value, one or two,
the fused kernel has a backward pass, and the sums of a second process arrive through its hook.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np
import paddle
import pytest
import torch

from sot_paddle.backbones.layers import BatchNorm2D
from sot_paddle.heads.pooling import TokenBatchNorm
from sot_paddle.ops import build
from sot_torch_ref.heads.pooling import TokenBatchNorm2d
from tests.parity.sides import FLOAT32_SUMS, assert_same, on_paddle, on_torch, paddle_precision

EPSILON, MOMENTUM = 3e-3, 0.02
IMAGES, TOKENS = (4, 3, 5, 6), (3, 4, 5)
LAYERS = [
    # shape, tokens of each sample that the mask leaves, training mode, native operators
    (IMAGES, None, True, True),
    (IMAGES, None, True, False),
    (IMAGES, None, False, True),
    (IMAGES, None, False, False),
    (TOKENS, (0, 0, 0), True, True),
    (TOKENS, (0, 1, 0), True, True),
    (TOKENS, (1, 1, 0), True, True),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("shape", "valid", "train", "native"), LAYERS)
def test_batch_norm(
    shape: tuple[int, ...], valid: Sequence[int] | None, train: bool, native: bool, dtype: str
) -> None:
    batch, state = random_batch(shape, dtype)
    mask = None if valid is None else np.arange(shape[1])[None] < np.array(valid)[:, None]
    without = mock.patch.object(build, "why_not", return_value="left out")
    with contextlib.nullcontext() if native else without:
        layer = paddle_layer(batch, state, train=train)
        masked = () if mask is None else (paddle.to_tensor(mask),)
        paddle_values = on_paddle(lambda x: layer(x, *masked), [batch])
    paddle_values |= gradients_of(layer) | kept_by(layer)
    module = torch_layer(batch, state, train=train)
    torch_values = on_torch(lambda x: normalized(module, x, mask), [batch])
    torch_values |= gradients_of(module) | kept_by(module)
    assert_same(paddle_values, torch_values, bound=FLOAT32_SUMS if dtype == "float32" else None)


@pytest.mark.parametrize("valid", [None, (1, 4, 2)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tokens_where_no_gradient_is_asked_for(valid: Sequence[int] | None, dtype: str) -> None:
    batch, state = random_batch(TOKENS, dtype)
    mask = None if valid is None else np.arange(TOKENS[1])[None] < np.array(valid)[:, None]
    layer, module = (make(batch, state, train=False) for make in (paddle_layer, torch_layer))
    masked = () if mask is None else (paddle.to_tensor(mask),)
    with paddle.no_grad():
        paddle_values = on_paddle(lambda x: layer(x, *masked), [batch], gradients=False)
    torch_values = on_torch(lambda x: normalized(module, x, mask), [batch], gradients=False)
    assert_same(paddle_values, torch_values, bound=FLOAT32_SUMS if dtype == "float32" else None)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(6, 3, 5, 4), (6, 5, 4)])
def test_half_a_batch_with_the_sums_of_the_other_process(
    shape: tuple[int, ...], dtype: str
) -> None:
    """Ours has the first half and gets the other sums by its hook, the reference has both."""
    batch, state = random_batch(shape, dtype)
    layer, half = paddle_layer(batch, state, train=True), len(batch) // 2
    layer.sum_across_processes = add_sums_of(batch[half:], whole=batch)
    paddle_values = on_paddle(layer, [batch[:half]], gradients=False) | kept_by(layer)
    module = torch_layer(batch, state, train=True)
    torch_values = on_torch(lambda x: normalized(module, x, None)[:half], [batch], gradients=False)
    torch_values |= kept_by(module)
    assert_same(paddle_values, torch_values, bound=FLOAT32_SUMS if dtype == "float32" else None)


def random_batch(shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw images (B, C, H, W) or tokens (B, N, C), and the state of a batch norm of C channels."""
    rng = np.random.default_rng(17)
    batch = rng.normal(1.0, 2.0, shape).astype(dtype)
    channels = shape[1] if len(shape) == 4 else shape[2]
    state = {name: rng.normal(size=channels) for name in ("weight", "bias", "running_mean")}
    state["running_var"] = rng.uniform(0.5, 2.0, channels)
    return batch, {name: array.astype(dtype) for name, array in state.items()}


def paddle_layer(
    batch: np.ndarray, state: dict[str, np.ndarray], *, train: bool
) -> paddle.nn.Layer:
    """Build our batch norm of images or tokens and load its state."""
    kind = BatchNorm2D if batch.ndim == 4 else TokenBatchNorm
    with paddle_precision(batch.dtype.name):
        layer = kind(len(state["bias"]), momentum=1.0 - MOMENTUM, epsilon=EPSILON)
    assert layer.set_state_dict(dict(state)) == ([], [])
    layer.train() if train else layer.eval()
    return layer


def torch_layer(
    batch: np.ndarray, state: dict[str, np.ndarray], *, train: bool
) -> TokenBatchNorm2d:
    """Build the reference's batch norm, which has images and masked tokens, and load its state."""
    module = TokenBatchNorm2d(len(state["bias"]), eps=EPSILON, momentum=MOMENTUM)
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    module.to(tensors["bias"].dtype).train(train)
    module.load_state_dict(tensors | {"num_batches_tracked": torch.tensor(0)})
    return module


def normalized(module: TokenBatchNorm2d, x: torch.Tensor, mask: np.ndarray | None) -> torch.Tensor:
    """Run the reference's layer on images, or on tokens (B, N, C) as images (B, C, N, 1)."""
    if x.ndim == 4:
        return module(x)
    valid = None if mask is None else torch.tensor(mask)
    return module(x.transpose(1, 2)[..., None], valid)[..., 0].transpose(1, 2)


def kept_by(layer: paddle.nn.Layer | torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the running statistics of a layer."""
    state = layer.state_dict()
    return {name: state[name].numpy() for name in ("running_mean", "running_var")}


def gradients_of(layer: paddle.nn.Layer | torch.nn.Module) -> dict[str, np.ndarray]:
    """Return the gradients of weight and bias."""
    return {f"gradient of {n}": p.grad.numpy() for n, p in layer.named_parameters()}


def add_sums_of(rest: np.ndarray, *, whole: np.ndarray) -> Callable[[paddle.Tensor], paddle.Tensor]:
    """Return what adds count, sum and sum of squared distances of the rest, one a call."""
    axes = (0, 2, 3) if whole.ndim == 4 else (0, 1)
    mean = whole.astype(np.float64).mean(axis=axes, keepdims=True)
    squares = ((rest - mean) ** 2).sum(axis=axes)
    count = np.asarray(rest.size // mean.size)
    sums = iter((count, rest.astype(np.float64).sum(axis=axes), squares))
    return lambda total: total + paddle.to_tensor(next(sums).astype(whole.dtype))
