"""Rows of a table are Paddle's, and so are their gradients, in memory that is used again."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.ops.embedding import embedding
from sot_paddle.ops.layers import with_native_layers
from tests.sot_paddle.ops.properties import assert_one_derivative, assert_same_in_threads

native = pytest.mark.native
LARGE = (200_000, 50)
"""A table of 40 MB: its gradient lies in the block that is kept."""


def table(shape: tuple[int, int] = (11, 70), dtype: str = "float32") -> paddle.Tensor:
    made = paddle.to_tensor(np.random.default_rng(1).normal(size=shape).astype(dtype))
    made.stop_gradient = False
    return made


def value_and_gradient(ids, weight: paddle.Tensor, padding=None, seed: int = 3):
    rows = embedding(paddle.to_tensor(ids), weight, padding)
    slope = np.random.default_rng(seed).normal(size=rows.shape).astype("float32")
    return rows.numpy(), paddle.grad(rows, weight, paddle.to_tensor(slope))[0]


@native
@pytest.mark.parametrize("padding", [None, 0, 4, -1])
@pytest.mark.parametrize("ids", [[[1, 4, 4], [0, 10, 4]], [3], 7], ids=str)
def test_rows_and_gradients_are_paddle_s(plainly, called, ids, padding) -> None:
    rows, gradient = value_and_gradient(ids, table(), padding)
    assert called == ["sot_embedding"]
    expected, slope = plainly(value_and_gradient)(ids, table(), padding)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_allclose(gradient.numpy(), slope.numpy(), rtol=1e-6)


@native
def test_memory_is_zero_again_and_belongs_to_one_gradient() -> None:
    weight = table(LARGE)
    _, first = value_and_gradient([5, 199_999], weight)
    kept = first.numpy().copy()
    _, second = value_and_gradient([7, 7], weight, seed=4)  # the first is alive: another block
    np.testing.assert_array_equal(first.numpy(), kept)
    address = first.data_ptr()
    del first
    _, third = value_and_gradient([8], weight, seed=5)
    assert third.data_ptr() == address
    assert np.flatnonzero(np.abs(second.numpy()).sum(axis=1)).tolist() == [7]
    assert np.flatnonzero(np.abs(third.numpy()).sum(axis=1)).tolist() == [8]


@native
def test_gradients_of_several_calls_add_up(plainly) -> None:
    def twice() -> np.ndarray:
        weight = table(LARGE)
        total = embedding(paddle.to_tensor([1, 2]), weight, None).sum()
        total = total + (embedding(paddle.to_tensor([2, 3]), weight, None) ** 2).sum()
        total.backward(retain_graph=True)
        total.backward()
        return weight.grad.numpy()

    np.testing.assert_allclose(twice(), plainly(twice)(), rtol=1e-6)


@native
@pytest.mark.parametrize("wrong", [-1, 11])
def test_an_id_that_is_no_row_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"Expected ids.* (>= 0|< row_number)"):
        embedding(paddle.to_tensor([1, wrong]), table(), None)


@native
def test_a_second_derivative_is_refused() -> None:
    weight = table()
    assert_one_derivative(embedding(paddle.to_tensor([1, 2]), weight, None), weight)


@native
def test_the_number_of_threads_changes_nothing(threads) -> None:
    ids = np.random.default_rng(2).integers(0, 11, (9, 40))
    assert_same_in_threads(threads, lambda: [value_and_gradient(ids, table())[1].numpy()])


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    ids = paddle.to_tensor([1, 2])
    for one, weight in ((ids, table(dtype="float64")), (ids.astype("int32"), table())):
        rows = embedding(one, weight, 2).numpy()
        np.testing.assert_array_equal(rows, F.embedding(one, weight, padding_idx=2).numpy())
    assert embedding(paddle.zeros([0], "int64"), table(), None).shape == [0, 70]
    monkeypatch.setattr(F, "embedding", lambda ids, weight, padding_idx: "another")
    assert embedding(ids, table(), None) == "another"
    assert called == []


@native
@pytest.mark.parametrize(
    ("options", "names"),
    [({}, ["sot_embedding"]), ({"sparse": True}, []), ({"max_norm": 0.5}, [])]
    + [({"scale_grad_by_freq": True}, [])],
    ids=str,
)
def test_layers_with_options_of_their_own_are_paddle_s(called, options, names) -> None:
    layer = nn.Embedding(5, 3, **options)
    weight, ids = layer.weight.numpy().copy(), paddle.to_tensor([4, 4, 1])
    rows = with_native_layers(nn.Sequential(layer))(ids)
    assert called == names
    norms = np.linalg.norm(weight, axis=1, keepdims=True)
    limit = np.minimum(1.0, options.get("max_norm", np.inf) / norms)
    np.testing.assert_allclose(rows.numpy(), (weight * limit)[[4, 4, 1]], rtol=1e-5)
