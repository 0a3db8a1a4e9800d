"""Products in bfloat16: the exact products of rounded factors, on request, or one line."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.ops import bfloat16, build, layers
from sot_paddle.ops.functions import gelu
from sot_paddle.ops.layers import with_native_layers
from sot_paddle.train.device import prepare_device

able = pytest.mark.skipif(bool(bfloat16.why_not()), reason=f"bfloat16: {bfloat16.why_not()}")


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    yield
    bfloat16.choose_products("float32")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def rounded(x: np.ndarray) -> np.ndarray:
    """To eight bits of mantissa, to nearest, ties to even; as float64."""
    bits = x.astype("float32").view("uint32")
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype("uint32").view("float32").astype("float64")


@able
@pytest.mark.parametrize(("shape", "width"), [((1, 9), 1), ((2, 3, 33), 17), ((200, 70), 65)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_are_the_products_of_rounded_factors(
    called, shape, width, with_bias
) -> None:
    arrays = [random(*shape), random(shape[-1], width, seed=1), random(width, seed=2)]
    x, w, b = (paddle.to_tensor(array, stop_gradient=False) for array in arrays)
    g = random(*shape[:-1], width, seed=3)
    y = bfloat16.linear(x, w, b if with_bias else None)
    y.backward(paddle.to_tensor(g))
    assert called == ["sot_bfloat16_linear"]
    (slope,) = paddle.grad((bfloat16.linear(x, w) ** 2).sum(), x, create_graph=True)
    with pytest.raises(OSError, match="SOT_PADDLE_NATIVE=0"):
        paddle.grad(slope.sum(), x)
    flat, given = rounded(arrays[0]).reshape(-1, shape[-1]), rounded(g).reshape(-1, width)
    want = flat @ rounded(arrays[1]) + (arrays[2] if with_bias else 0.0)
    expected = [(y, want.reshape(g.shape)), (w.grad, flat.T @ given)]
    expected.append((x.grad, (given @ rounded(arrays[1]).T).reshape(shape)))
    if with_bias:
        expected.append((b.grad, g.reshape(-1, width).astype("float64").sum(0)))
    for found, exact in expected:
        np.testing.assert_allclose(found.numpy(), exact, rtol=0, atol=2e-6 * np.abs(exact).max())


def step(layer: paddle.nn.Linear) -> None:
    layer(paddle.ones([1, 70])).sum().backward()
    paddle.optimizer.AdamW(0.1, parameters=layer.parameters()).step()


def one_number(layer: paddle.nn.Linear) -> None:
    array = layer.weight.numpy()
    array[41, 3] += 8.0
    layer.weight.set_value(array)


CHANGES = {
    "optimizer": step,
    "set_value of one number": one_number,
    "alias": lambda layer: layer.weight.detach().add_(paddle.full([70, 37], 2.0)),
    "other memory": lambda layer: paddle.ones([70, 37])._share_buffer_to(layer.weight),
}


@able
@pytest.mark.parametrize("way", CHANGES)
def test_a_weight_that_changes_is_packed_again(called, way) -> None:
    layer, x = paddle.nn.Linear(70, 37), random(9, 70, seed=5)

    def apart() -> tuple[np.ndarray, float]:
        """Result, and its distance from the exact products with the weight as it is."""
        with paddle.no_grad():
            y = bfloat16.linear(paddle.to_tensor(x), layer.weight, layer.bias).numpy()
        exact = rounded(x) @ rounded(layer.weight.numpy()) + layer.bias.numpy()
        return y, np.abs(y - exact).max() / np.abs(exact).max()

    before, off = apart()
    assert off < 2e-6
    with paddle.no_grad() if way != "optimizer" else paddle.enable_grad():
        CHANGES[way](layer)
    after, off = apart()
    assert called.count("sot_packed_linear") == 2
    assert np.abs(after - before).max() > 0.1  # a pack of the weight before would show
    assert off < 2e-6


@able
def test_the_feed_forward_part_rounds_what_lies_between_once(called) -> None:
    first, second = with_native_layers(nn.Sequential(nn.Linear(70, 90), nn.Linear(90, 37)))
    x = random(3, 7, 70, seed=7)
    bfloat16.choose_products("bf16")
    called.clear()
    with paddle.no_grad():
        kept = paddle.nn.Dropout(0.0).eval()
        found = layers.feed_forward(paddle.to_tensor(x), first, second, kept).numpy()
        apart = second(gelu(first(paddle.to_tensor(x)))).numpy()
    assert called[0] == "sot_packed_feed_forward"
    inner = rounded(x) @ rounded(first.weight.numpy()) + first.bias.numpy()
    inner *= 0.5 * np.vectorize(math.erfc)(-inner / math.sqrt(2.0))
    exact = rounded(inner) @ rounded(second.weight.numpy()) + second.bias.numpy()
    for value in (found, apart):  # some numbers between are rounded to the other side
        np.testing.assert_allclose(value, exact, rtol=0, atol=1e-3 * np.abs(exact).max())


@able
def test_the_choice_holds_for_layers_until_the_next_one(called) -> None:
    for layer in (paddle.nn.Linear(3, 4), layers.Linear(3, 4)):
        expected = ["sot_add_bias"] if isinstance(layer, layers.Linear) else []
        for precision, names in (("bf16", ["sot_bfloat16_linear"]), ("float32", expected)):
            prepare_device(dtype="float32", cpu=True, cpu_precision=precision)
            called.clear()
            layer(paddle.ones([2, 3]))
            assert called == names


def test_a_machine_that_cannot_refuses_in_one_line(monkeypatch) -> None:
    def refusal() -> str:
        with pytest.raises(ValueError, match="cpu_precision bf16") as caught:
            bfloat16.choose_products("bf16")
        assert not bfloat16.is_chosen()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    monkeypatch.setattr(bfloat16, "processor", lambda: ("V", frozenset({"avx512f"})))
    assert "no instructions for them (amx_bf16 or avx512_bf16)" in refusal()
    monkeypatch.setattr(bfloat16, "processor", lambda: ("V", frozenset({"avx512_bf16"})))
    monkeypatch.setattr(build, "why_not", lambda: "no C++ compiler")
    assert "the native operators are not used: no C++ compiler" in refusal()
