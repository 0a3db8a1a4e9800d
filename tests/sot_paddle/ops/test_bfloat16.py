"""Products in bfloat16: the exact products of rounded factors, on request, or one line."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.ops import bfloat16, build, dispatch
from sot_paddle.ops.linear import PLAIN
from sot_paddle.train.device import prepare_device

able = pytest.mark.skipif(bool(bfloat16.why_not()), reason=f"bfloat16: {bfloat16.why_not()}")


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    yield
    bfloat16.choose_products("float32")


@pytest.fixture
def called(monkeypatch) -> list[str]:
    """Names of the native operators that were called."""
    names, original = [], dispatch._C_ops._run_custom_op
    watched = lambda name, *rest: names.append(name) or original(name, *rest)  # noqa: E731
    monkeypatch.setattr(dispatch._C_ops, "_run_custom_op", watched)
    return names


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def rounded(x: np.ndarray) -> np.ndarray:
    """To eight bits of mantissa, to nearest, ties to even; as float64."""
    bits = x.astype("float32").view("uint32")
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype("uint32").view("float32").astype("float64")


@able
@pytest.mark.parametrize(
    ("shape", "width"), [((5, 7), 3), ((1, 9), 1), ((2, 3, 33), 17), ((200, 70), 65)]
)
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
    flat, given = rounded(arrays[0]).reshape(-1, shape[-1]), rounded(g).reshape(-1, width)
    want = flat @ rounded(arrays[1]) + (arrays[2] if with_bias else 0.0)
    expected = [(y, want.reshape(g.shape)), (w.grad, flat.T @ given)]
    expected.append((x.grad, (given @ rounded(arrays[1]).T).reshape(shape)))
    if with_bias:
        expected.append((b.grad, g.reshape(-1, width).astype("float64").sum(0)))
    for found, exact in expected:
        np.testing.assert_allclose(found.numpy(), exact, rtol=0, atol=2e-6 * np.abs(exact).max())


@able
def test_strided_views_repeated_backward_and_double_use() -> None:
    x = paddle.to_tensor(random(6, 4), stop_gradient=False)
    w = paddle.to_tensor(random(6, 6, seed=1), stop_gradient=False)
    y = bfloat16.linear(bfloat16.linear(x.t(), w), w.t()).sum()
    y.backward(retain_graph=True)
    once = [x.grad.numpy().copy(), w.grad.numpy().copy()]
    y.backward()
    for tensor, first in zip((x, w), once, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), 2.0 * first, rtol=1e-6)
    x.clear_gradient()
    PLAIN(PLAIN(x.t(), w), w.t()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), once[0], rtol=0, atol=0.03 * np.abs(once[0]).max())


@able
def test_infinity_and_nan_stay() -> None:
    x = paddle.to_tensor([[np.inf], [-np.inf], [np.nan], [3.4e38], [0.0]])
    y = bfloat16.linear(x, paddle.ones([1, 1])).numpy()[:, 0]
    np.testing.assert_array_equal(y, np.array([np.inf, -np.inf, np.nan, np.inf, 0.0], "float32"))


@able
def test_a_second_derivative_is_refused() -> None:
    x = paddle.to_tensor(random(2, 3), stop_gradient=False)
    (first,) = paddle.grad((bfloat16.linear(x, x.t()) ** 2).sum(), x, create_graph=True)
    with pytest.raises(OSError, match="SOT_PADDLE_NATIVE=0 for second derivatives"):
        paddle.grad(first.sum(), x)


def test_paddle_computes_what_the_operator_does_not_take(called) -> None:
    x, w = paddle.ones([2, 3], "float64"), paddle.ones([3, 4], "float64")
    assert bfloat16.linear(x, w).tolist() == [[3.0] * 4] * 2
    assert bfloat16.linear(paddle.ones([0, 3]), paddle.ones([3, 4])).shape == [0, 4]
    with pytest.raises(ValueError, match="Input"):
        bfloat16.linear(paddle.ones([2, 3]), paddle.ones([4, 5]))
    assert called == []


@able
def test_the_choice_holds_for_layers_until_the_next_one(called) -> None:
    layer, x = paddle.nn.Linear(3, 4), paddle.ones([2, 3])
    for precision, expected in (("bf16", ["sot_bfloat16_linear"]), ("float32", [])):
        prepare_device(dtype="float32", cpu=True, cpu_precision=precision)
        called.clear()
        layer(x)
        assert called == expected


def test_a_machine_that_cannot_refuses_in_one_line(monkeypatch) -> None:
    def refusal() -> str:
        with pytest.raises(ValueError, match="cpu_precision bf16") as caught:
            bfloat16.choose_products("bf16")
        assert F.linear is PLAIN
        assert "\n" not in str(caught.value)
        return str(caught.value)

    monkeypatch.setattr(bfloat16, "processor", lambda: ("V", frozenset({"avx512f"})))
    assert "no instructions for them (amx_bf16 or avx512_bf16)" in refusal()
    monkeypatch.setattr(bfloat16, "processor", lambda: ("V", frozenset({"avx512_bf16"})))
    monkeypatch.setattr(build, "why_not", lambda: "no C++ compiler")
    assert "the native operators are not used: no C++ compiler" in refusal()
    monkeypatch.setattr(build, "why_not", lambda: "")

    def refused(*given: object) -> None:
        raise OSError("(External) the oneDNN that Paddle loaded has no product in bfloat16")

    monkeypatch.setattr(bfloat16, "run", refused)
    assert "has no product in bfloat16" in refusal()
    monkeypatch.setattr(bfloat16.paddle, "get_device", lambda: "gpu:0")
    assert "is for the CPU" in refusal()
