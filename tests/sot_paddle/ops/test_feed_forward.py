"""The fused parts of an encoder's layer in inference give the bits of the separate ones."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.layers import Mlp
from sot_paddle.ops.feed_forward import feed_forward, infers, norm_of_sum
from sot_paddle.ops.gelu import gelu
from sot_paddle.ops.layers import with_native_layers

native = pytest.mark.native
FUSED = {"sot_gelu_of_sum", "sot_layer_norm_of_sum"}


def layer(*, activation: object = gelu, normalize_before: bool = False) -> nn.Layer:
    paddle.seed(5)
    made = nn.TransformerEncoderLayer(6, 2, 10, dropout=0.5, normalize_before=normalize_before)
    made.activation = activation
    return with_native_layers(made)


def tokens(*shape: int) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(1).normal(size=shape).astype("float32"))


@native
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 17), (2, 40, 33), (300, 20)])
def test_value_is_that_of_the_layers(called, shape) -> None:
    width = shape[-1]
    first, second = with_native_layers(nn.Sequential(nn.Linear(width, 7), nn.Linear(7, width)))
    norm, x = nn.LayerNorm(width, epsilon=1e-3), tokens(*shape)
    with paddle.no_grad():
        assert infers(x, first, second)
        found = norm_of_sum(feed_forward(x, first, second), x, norm)
        assert set(called) >= FUSED
        expected = with_native_layers(norm)(x + second(gelu(first(x))))
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    plain = F.layer_norm(x + second(F.gelu(first(x))), [width], norm.weight, norm.bias, 1e-3)
    np.testing.assert_allclose(found.numpy(), plain.numpy(), rtol=2e-5, atol=2e-6)
    assert found.stop_gradient


@native
def test_strided_inputs_and_the_number_of_threads(threads) -> None:
    """The products, which are Paddle's, add one term: they are exact in any order."""
    first, second = nn.Linear(6, 900), nn.Linear(900, 6)
    first.weight.set_value(np.eye(6, 900, dtype="float32")[:, ::-1].copy())
    second.weight.set_value(np.eye(900, 6, dtype="float32")[::-1].copy())
    norm, found = nn.LayerNorm(6), []
    x = tokens(6, 700)
    with paddle.no_grad():
        for count in (1, 3):
            threads(count)
            found.append(norm_of_sum(feed_forward(x.t(), first, second), x.t(), norm).numpy())
        dense = x.t().contiguous()
        expected = norm_of_sum(feed_forward(dense, first, second), dense, norm).numpy()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], expected)


@native
def test_a_layer_of_an_encoder_is_fused_in_inference_only(called) -> None:
    made, x = layer(), tokens(2, 3, 6)
    made(x)
    made.eval()
    expected = made(x)
    assert not FUSED & set(called)
    with paddle.no_grad():
        np.testing.assert_array_equal(made(x).numpy(), expected.numpy())
    assert set(called) >= FUSED
    called.clear()
    with paddle.no_grad():
        made.train()
        made(x)
        made.eval()
        for other in (layer(activation=F.relu), layer(normalize_before=True)):
            other.eval()
            other(x)
        assert made.to(dtype="float64")(x.astype("float64")).dtype == paddle.float64
    assert not FUSED & set(called)


@native
@pytest.mark.parametrize("part", ["linear1", "linear2", "norm1", "norm2", "dropout", "dropout2"])
def test_a_part_that_someone_watches_is_called(called, part) -> None:
    made, seen = layer(), []
    made.eval()
    getattr(made, part).register_forward_post_hook(lambda *_: seen.append(1))
    with paddle.no_grad():
        made(tokens(2, 3, 6))
    assert seen == [1]
    assert not FUSED & set(called)


@native
def test_the_feed_forward_part_of_an_image_model_is_fused_in_inference(called, plainly) -> None:
    mlp, x = with_native_layers(Mlp(6, 11, drop=0.5)), tokens(2, 3, 6)
    mlp.eval()
    with paddle.no_grad():
        found = mlp(x)
        assert called == ["sot_gelu_of_sum", "sot_add_bias"]
        np.testing.assert_allclose(found.numpy(), plainly(mlp)(x).numpy(), rtol=1e-5, atol=1e-6)
        mlp.train()
        mlp(x)
    assert called.count("sot_gelu_of_sum") == 1


def test_layers_and_functions_of_another_kind_are_called(called, monkeypatch) -> None:
    x, first = tokens(2, 6), nn.Linear(6, 6)
    with paddle.no_grad():
        assert not infers(x, first, nn.Linear(6, 6, bias_attr=False))
        assert not infers(x.astype("float64"), first, first)
        assert not infers(x[:0], first, first)
        monkeypatch.setattr(F, "gelu", F.relu)
        assert not infers(x, first, first)
        monkeypatch.undo()
        monkeypatch.setattr(F, "linear", lambda *given: "replaced")
        assert not infers(x, first, first)
        monkeypatch.undo()
        monkeypatch.setattr(F, "layer_norm", lambda *given: "replaced")
        assert norm_of_sum(x, x, with_native_layers(nn.LayerNorm(6))) == "replaced"
    assert not infers(x, first, first)
    assert called == []
