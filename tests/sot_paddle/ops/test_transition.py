"""Batch norm, 1x1 convolution and pooling in one operator are the framework's."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from sot_paddle.backbones.token_stages import Transition
from sot_paddle.ops import transition
from tests.sot_paddle.ops.image_steps import close, drawn, redrawn, step, views_twice
from tests.sot_paddle.ops.properties import assert_one_derivative, assert_same_in_threads

native = pytest.mark.native
SHAPES = [(2, 3, 6, 8), (2, 5, 7, 5), (3, 17, 2, 2), (3, 2, 66, 70)]
OUT = 4


def made(channels: int, *, pool: bool = True, train: bool = True, dtype: str = "float32"):
    paddle.seed(5)
    return redrawn(Transition(channels, OUT, pool=pool), train=train, dtype=dtype)


@native
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_values_and_gradients(called, shape, pool, train) -> None:
    x, options = drawn(*shape), {"pool": pool, "train": train}
    found = step(made(shape[1], **options), x)
    assert called == ["sot_transition"]
    double = step(made(shape[1], **options, dtype="float64"), x.astype("float64"))
    close(found, double, 3e-5 if np.prod(shape) < 20 * shape[1] else 3e-6)


@native
def test_a_mean_far_from_zero_leaves_the_variance(called) -> None:
    x = drawn(3, 4, 8, 8) * 1e-2 + 100.0
    found = step(made(4), x)
    double = step(made(4, dtype="float64"), x.astype("float64"))
    np.testing.assert_allclose(found["norm.running_var"], double["norm.running_var"], rtol=1e-6)
    np.testing.assert_allclose(found["value"], double["value"], rtol=2e-3)
    assert called == ["sot_transition"]


@native
def test_the_number_of_threads_changes_nothing(threads) -> None:
    assert_same_in_threads(threads, lambda: [*step(made(5), drawn(3, 5, 70, 64)).values()])


@native
def test_strided_views_double_use_and_repeated_backward(plainly) -> None:
    close(views_twice(made(4)), plainly(views_twice)(made(4)), 3e-5)


@native
def test_frozen_weights_nothing_kept_and_one_derivative() -> None:
    layer = made(3)
    for p in layer.parameters():
        p.stop_gradient = True
    x = paddle.to_tensor(drawn(2, 3, 4, 4), stop_gradient=False)
    layer(x).sum().backward()
    assert x.grad is not None
    assert all(p.grad is None for p in layer.parameters())
    with paddle.no_grad():
        assert layer(x).is_leaf
    assert_one_derivative(made(3)(x), x)


@native
def test_one_value_for_each_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="more than one value for each channel"):
        made(3, pool=False)(paddle.ones([1, 3, 1, 1]))


def test_the_framework_computes_what_the_operator_does_not_take(called, monkeypatch) -> None:
    x = paddle.to_tensor(drawn(2, 3, 4, 4))
    for part in ("norm", "conv", "pool"):
        layer = made(3)
        getattr(layer, part).register_forward_post_hook(lambda *_: None)
        layer(x)
    shared = made(3)
    shared.norm.sum_across_processes = lambda total: total
    shared(x)
    assert not transition.takes(x[:0], *[paddle.ones([3])] * 2)
    assert not transition.takes(x, *[paddle.ones([3], "float64")] * 2)
    monkeypatch.setattr(F, "avg_pool2d", lambda given, *_, **__: given)
    made(3)(x)
    assert "sot_transition" not in called
