"""The native dropout draws Paddle's masks, bit for bit, and leaves its generator where it would."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import _C_ops, nn
from paddle.nn import functional as F

from sot_paddle.ops.dropout import dropout
from sot_paddle.ops.layers import drops_unseen
from tests.sot_paddle.ops.properties import assert_one_derivative, assert_same_in_threads, same

native = pytest.mark.native


def states() -> list[str]:
    """What Paddle says of its generator on the CPU, without addresses."""
    return [part for part in str(paddle.get_rng_state()[0]).split() if not part.startswith("0x")]


@native
@pytest.mark.parametrize("p", [1e-7, 0.1, 0.3, 0.5, 0.9, 1.0 - 2.0**-24])
def test_masks_values_gradients_and_generator_are_those_of_the_framework(
    gradients, plainly, called, p
) -> None:
    x = np.random.default_rng(1).normal(size=(61, 17)).astype("float32")  # 3 states and a part

    def several(tensor: paddle.Tensor) -> paddle.Tensor:
        paddle.rand([5])
        first = dropout(tensor, p, training=True)
        return first + 3.0 * dropout(tensor[:2], p, training=True).sum() + paddle.rand([17])

    found, after = gradients(several, [x]), paddle.rand([400]).numpy()
    assert called == ["sot_dropout"] * 2
    plain, after_plain = plainly(gradients)(several, [x]), paddle.rand([400]).numpy()
    for one, other in zip([*found, after], [*plain, after_plain], strict=True):
        np.testing.assert_array_equal(one, other)


@native
def test_a_rate_that_float32_rounds_to_one_is_left_to_the_framework(gradients, called) -> None:
    p = 1.0 - 1e-8
    given = (lambda t: dropout(t, p, training=True), [np.ones((2, 3), "float32")])
    same(gradients(*given), [np.zeros((2, 3), "float32")] * 2)
    assert called == []
    assert not drops_unseen(nn.Dropout(p))


@native
def test_the_generator_goes_on_from_a_state_that_was_kept(called) -> None:
    x = paddle.ones([1000])
    dropout(x, 0.5, training=True)
    kept = paddle.get_rng_state()
    first = dropout(x, 0.5, training=True).numpy()
    paddle.set_rng_state(kept)
    np.testing.assert_array_equal(F.dropout(x, 0.5).numpy(), first)
    paddle.set_rng_state(kept)
    np.testing.assert_array_equal(dropout(x, 0.5, training=True).numpy(), first)
    assert 0.4 < np.mean(first > 0) < 0.6


@native
def test_the_number_of_threads_changes_nothing(gradients, plainly, threads) -> None:
    """Of a mask that takes 224 states of the generator and a part, which are made in turns."""
    x = np.random.default_rng(1).normal(size=70001).astype("float32")
    given = (lambda t: dropout(t, 0.3, training=True) + paddle.rand([1]), [x])
    assert_same_in_threads(threads, lambda: gradients(*given))
    same(gradients(*given), plainly(gradients)(*given))


@native
def test_nan_infinity_and_strided_views_are_treated_alike(gradients, plainly) -> None:
    x = np.random.default_rng(1).normal(size=(8, 9)).astype("float32")
    x[1], x[2], x[:, 3] = np.nan, np.inf, -np.inf
    for seed in range(3):
        given = (lambda t: dropout(t.t()[::2], 0.5, training=True), [x], seed)
        for one, other in zip(gradients(*given), plainly(gradients)(*given), strict=True):
            np.testing.assert_array_equal(one, other)


@native
def test_repeated_backward_has_the_same_mask_and_a_second_derivative_is_refused() -> None:
    x = paddle.ones([200])
    x.stop_gradient = False
    y = dropout(x, 0.5, training=True)
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2.0 * y.numpy())
    assert_one_derivative(dropout(x, 0.5, training=True), x)


@native
def test_nothing_is_drawn_where_nothing_is_dropped(called) -> None:
    x, before = paddle.ones([3]), states()
    for p, training in ((0.5, False), (0.0, True)):
        assert dropout(x, p, training=training) is x
    assert dropout(paddle.ones([0, 4]), 0.5, training=True).shape == [0, 4]
    assert dropout(x, 1.0, training=True).tolist() == [0.0] * 3
    assert states() == before
    dropout(x, 0.5, training=True)
    assert states() != before


def test_the_framework_draws_what_the_operator_does_not(called, monkeypatch) -> None:
    x = paddle.ones([50])
    dropout(x.astype("float64"), 0.5, training=True)
    with pytest.raises(ValueError, match="p argument should between 0 and 1"):
        dropout(x, 1.5, training=True)
    program = paddle.static.default_main_program()
    program.random_seed = 11
    try:
        first, second = (dropout(x, 0.5, training=True).numpy() for _ in range(2))
    finally:
        program.random_seed = 0
    np.testing.assert_array_equal(first, second)
    for owner in (F, _C_ops):
        with monkeypatch.context() as patch:
            patch.setattr(owner, "dropout", lambda *args, **named: "replaced")
            assert dropout(x, 0.5, training=True) == "replaced"
    assert called == []
