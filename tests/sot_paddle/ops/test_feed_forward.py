"""The fused parts of an encoder's layer give the bits of the separate ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.layers import Mlp
from sot_paddle.ops import bfloat16, dropout
from sot_paddle.ops.feed_forward import feed_forward, fuses, norm_of_sum
from sot_paddle.ops.gelu import gelu
from sot_paddle.ops.layers import with_native_layers
from tests.sot_paddle.ops.properties import assert_one_derivative, same, walked_twice

native = pytest.mark.native
FUSED = {"sot_gelu_of_sum", "sot_layer_norm_of_sum"}
KEPT = nn.Dropout(0.0)


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
        assert fuses(x, first, second)
        found = norm_of_sum(feed_forward(x, first, second, KEPT), x, norm, KEPT)
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
            made = feed_forward(x.t(), first, second, KEPT)
            found.append(norm_of_sum(made, x.t(), norm, KEPT).numpy())
        dense = x.t().contiguous()
        made = feed_forward(dense, first, second, KEPT)
        expected = norm_of_sum(made, dense, norm, KEPT).numpy()
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], expected)


def parts(width: int, p: float) -> nn.Layer:
    """Layers of a feed-forward part, a dropout and a norm, with parameters that are not round."""
    paddle.seed(width)
    made = nn.Sequential(nn.Linear(width, 7), nn.Linear(7, width), nn.LayerNorm(width, 1e-3))
    for parameter in made.parameters():
        parameter.set_value(parameter + 0.3 * paddle.randn(parameter.shape))
    made.append(nn.Dropout(p))
    return with_native_layers(made)


def fused(x: paddle.Tensor, made: nn.Layer) -> paddle.Tensor:
    first, second, norm, drop = made
    return norm_of_sum(feed_forward(x, first, second, drop), x, norm, drop)


def separate(x: paddle.Tensor, made: nn.Layer) -> paddle.Tensor:
    first, second, norm, drop = made
    return norm(x + drop(second(drop(gelu(first(x))))))


def trained(function: Callable, array: np.ndarray, made: nn.Layer) -> list[np.ndarray]:
    """Value, gradients of input and parameters, and what the generator draws next."""
    paddle.seed(8)
    x = paddle.to_tensor(array, stop_gradient=False)
    y = function(x, made)
    y.backward(tokens(*y.shape) + 0.1)
    found = [y.numpy(), x.grad.numpy(), *(one.grad.numpy() for one in made.parameters())]
    made.clear_gradients()
    return [*found, paddle.rand([3]).numpy()]


@native
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 17), (2, 40, 33), (300, 20)])
def test_training_is_that_of_the_layers_to_the_bit(called, plainly, threads, shape, p) -> None:
    made, array = parts(shape[-1], p), tokens(*shape).numpy()
    expected = trained(separate, array, made)
    assert not FUSED & set(called)
    for count in (1, 3):
        threads(count)
        found = trained(fused, array, made)
        assert set(called) >= FUSED
        if count == 1:  # the products, which are Paddle's, may depend on the number of threads
            same(found, expected)
    plain = plainly(trained)(separate, array, made)
    for one, other in zip(found, plain, strict=True):
        scale = max(1.0, np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * scale)


@native
def test_products_of_another_precision_are_made_by_their_own_function(called, monkeypatch) -> None:
    """With a stand-in for `bfloat16.linear`, which not every processor runs."""
    made, array, asked = parts(6, 0.3), tokens(4, 6).numpy(), []
    expected = trained(separate, array, made)

    def product(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
        asked.append(weight.shape)
        return paddle.matmul(x, weight) + bias

    monkeypatch.setattr(bfloat16, "linear", product)
    monkeypatch.setattr(F, "linear", product)
    called.clear()
    found = trained(fused, array, made)
    assert asked == [[6, 7], [7, 6]]
    assert called[:3] == ["sot_gelu", "sot_dropout", "sot_layer_norm_of_sum"]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@native
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_a_graph_can_be_walked_twice_and_differentiated_once(p) -> None:
    made, x = parts(6, p), tokens(4, 6)
    x.stop_gradient = False
    y = fused(x, made)
    tensors = [x, *made.parameters()]
    walked_twice((y * tokens(4, 6)).sum(), tensors, rtol=1e-5, atol=1e-6)
    first, second, norm, drop = made
    assert_one_derivative(feed_forward(x, first, second, drop), x)
    assert_one_derivative(norm_of_sum(x, tokens(4, 6), norm, drop), x)


@native
def test_what_goes_round_gets_a_gradient_of_its_own() -> None:
    """One tensor as input and as residual: both gradients are added, neither takes the other's."""
    norm, weight = with_native_layers(nn.LayerNorm(5)), tokens(3, 5)
    x = tokens(3, 5)
    x.stop_gradient = False
    (norm_of_sum(x, x, norm, KEPT) * weight).sum().backward()
    twice = tokens(3, 5)
    twice.stop_gradient = False
    (norm(twice + twice) * weight).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), twice.grad.numpy())


@native
def test_strided_gradients_are_taken() -> None:
    made, x = parts(6, 0.0), tokens(4, 6)
    x.stop_gradient = False
    first, second, norm, drop = made
    for y in (feed_forward(x, first, second, drop), norm_of_sum(x, x, norm, drop)):
        g = tokens(6, 4)
        found = paddle.grad(y, x, g.t(), retain_graph=True)[0]
        expected = paddle.grad(y, x, g.t().contiguous())[0]
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@native
def test_a_layer_of_an_encoder_is_fused(called) -> None:
    made, x = layer(), tokens(2, 3, 6)
    made(x)
    assert set(called) >= FUSED
    made.eval()
    expected = made(x)
    with paddle.no_grad():
        np.testing.assert_array_equal(made(x).numpy(), expected.numpy())
    called.clear()
    for other in (layer(activation=F.relu), layer(normalize_before=True)):
        other(x)
    with paddle.no_grad():
        assert made.to(dtype="float64")(x.astype("float64")).dtype == paddle.float64
    assert not FUSED & set(called)


@native
@pytest.mark.parametrize("part", ["linear1", "linear2", "norm1", "norm2", "dropout", "dropout2"])
def test_a_part_that_someone_watches_is_called(called, part) -> None:
    made, seen = layer(), []
    getattr(made, part).register_forward_post_hook(lambda *_: seen.append(1))
    made(tokens(2, 3, 6))
    made.eval()
    with paddle.no_grad():
        made(tokens(2, 3, 6))
    assert seen == [1, 1]
    assert not FUSED & set(called)


@native
def test_masks_of_another_origin_are_drawn_by_the_layer(called, monkeypatch) -> None:
    x, norm, drop = tokens(2, 6), with_native_layers(nn.LayerNorm(6)), nn.Dropout(0.5)
    monkeypatch.setattr(dropout, "_KERNEL", None)
    norm_of_sum(x, x, norm, drop)
    assert called == ["sot_layer_norm"]


@native
def test_the_feed_forward_part_of_an_image_model_is_fused(called, plainly) -> None:
    mlp, x = with_native_layers(Mlp(6, 11, drop=0.5)), tokens(2, 3, 6)
    for evaluated in (False, True):
        found = []
        called.clear()
        for function in (mlp, plainly(mlp)):
            paddle.seed(2)
            with paddle.set_grad_enabled(not evaluated):
                found.append(function(x).numpy())
        drops = [] if evaluated else ["sot_dropout"]
        assert called == ["sot_gelu_of_sum", *drops, "sot_add_bias", *drops]
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
        mlp.eval()


def test_layers_and_functions_of_another_kind_are_called(called, monkeypatch) -> None:
    x, first = tokens(2, 6), nn.Linear(6, 6)
    with paddle.no_grad():
        assert not fuses(x, first, nn.Linear(6, 6, bias_attr=False))
        assert not fuses(x.astype("float64"), first, first)
        assert not fuses(x[:0], first, first)
        monkeypatch.setattr(F, "gelu", F.relu)
        assert not fuses(x, first, first)
        monkeypatch.undo()
        monkeypatch.setattr(F, "linear", lambda *given: "replaced")
        assert not fuses(x, first, first)
        monkeypatch.undo()
        monkeypatch.setattr(F, "layer_norm", lambda *given: "replaced")
        assert norm_of_sum(x, x, with_native_layers(nn.LayerNorm(6)), KEPT) == "replaced"
    assert called == []
