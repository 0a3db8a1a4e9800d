"""Every native operator is its plain formula: value, gradients, threads, memory, derivatives.

A row of `ROWS` is a call of the product and what Paddle's own operators make of it. The formula is
computed in float64. Where a rounding could flip a ReLU or a maximum, numbers are small integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle import functional, ops
from sot_paddle.ops.attention import attention
from sot_paddle.ops.dispatch import run
from sot_paddle.ops.functions import dropout, embedding, gelu, layer_norm, linear
from sot_paddle.ops.images import dense_block, stem, transition
from sot_paddle.ops.layers import with_native_layers
from sot_paddle.ops.second_order import cross_covariance, head_covariance, sv_power_norm

Function = Callable[..., paddle.Tensor]
Shapes = Sequence[Sequence[int]]

EPSILON = 2.0**-10  # exact in float32, as which Paddle's kernels take it
IDS = paddle.to_tensor([[1, 4, 4], [0, 10, 4]])
IMAGES = paddle.to_tensor(np.random.default_rng(9).integers(-1, 2, (2, 3, 35, 40)), "float32")


@dataclass(frozen=True)
class Row:
    """A call that runs natively, its formula, and the shapes of what is trained."""

    native: Function
    plain: Function
    shapes: Sequence[Shapes]
    integers: bool = False
    bound: float = 3e-6  # of the largest number


def attended(q, k, v, bias=None, p=0.0, heads_first=False, heads=3) -> paddle.Tensor:
    """Attention (B, S, C) with each head on an axis of its own."""
    batch, tokens, width = q.shape
    parts = (t.reshape([batch, tokens, heads, -1]).transpose([0, 2, 1, 3]) for t in (q, k, v))
    q, k, v = (t.transpose([1, 0, 2, 3]) if heads_first else t for t in parts)
    scores = 0.3 * paddle.matmul(q, k, transpose_y=True)
    if bias is not None and heads_first:  # entry i belongs to the samples i, i + w, ...
        bias = paddle.concat([bias] * (batch // bias.shape[1]), axis=1)
    scores = scores if bias is None else scores + bias.astype(scores.dtype)
    made = paddle.matmul(F.dropout(F.softmax(scores), p), v)
    made = made.transpose([1, 0, 2, 3]) if heads_first else made
    return made.transpose([0, 2, 1, 3]).reshape([batch, tokens, width])


def attention_row(shapes: Sequence[Shapes], bias=None, p=0.0, heads_first=False) -> Row:
    options = {"scale": 0.3, "bias": bias, "p": p, "heads_first": heads_first}
    return Row(
        lambda *parts: attention(parts, 3, **options),
        lambda *parts: attended(*parts, bias, p, heads_first),
        shapes,
    )


def bias_of(*shape: int) -> paddle.Tensor:
    """Numbers to add to scores, some of which hide a token."""
    numbers = np.random.default_rng(5).normal(size=shape).astype("float32")
    return paddle.to_tensor(np.where(numbers > 1.5, np.float32(-1e4), numbers))


def dense_layers(x: paddle.Tensor, *weights: paddle.Tensor) -> paddle.Tensor:
    """Two dense layers, each of ReLU, 1x1 and ReLU, 3x3 convolution of all channels so far."""
    for squeeze, grow in (weights[:2], weights[2:]):
        x = paddle.concat([x, F.conv2d(F.relu(F.conv2d(F.relu(x), squeeze)), grow, padding=1)], 1)
    return x


def dense_shapes(batch: int, channels: int, height: int, width: int) -> Shapes:
    first, second = ((4, channels, 1, 1), (2, 4, 3, 3)), ((4, channels + 2, 1, 1), (3, 4, 3, 3))
    return ((batch, channels, height, width), *first, *second)


def plain_stem(weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    images = IMAGES.astype(weight.dtype)
    return F.max_pool2d(F.conv2d(images, weight, bias, padding=1), 3, 2, padding=1)


def transition_row(step: int, *, train: bool) -> Row:
    def running(channels: int, dtype: str) -> list[paddle.Tensor]:
        drawn = np.random.default_rng(8).uniform(0.5, 2.0, (2, channels))
        return [paddle.to_tensor(numbers, dtype) for numbers in drawn]

    def native(x, scale, bias, weight) -> paddle.Tensor:
        kept = None if train else running(x.shape[1], "float32")
        made = transition(x, scale, bias, weight, kept, step=step, epsilon=EPSILON)
        assert all(part.stop_gradient for part in made[1:])
        return made[0]

    def plain(x, scale, bias, weight) -> paddle.Tensor:
        kept = running(x.shape[1], "float64")
        normed = F.batch_norm(x, *kept, scale, bias, training=train, epsilon=EPSILON)
        return F.avg_pool2d(F.conv2d(normed, weight), step)

    images = [(2, 3, 6, 8), (2, 5, 7, 5), (3, 2, 66, 70)]
    shapes = [(image, image[1:2], image[1:2], (4, image[1], 1, 1)) for image in images]
    return Row(native, plain, shapes, bound=1e-5)


def mask_of(batch: int, count: int) -> paddle.Tensor:
    return paddle.to_tensor(np.arange(count)[None] < np.array([count, 1, 0])[:batch, None])


def covariance_row(centering: str, mask: paddle.Tensor | None) -> Row:
    options = {"centering": centering, "mask": mask}
    return Row(
        lambda x, y: cross_covariance(x, y, **options),
        lambda x, y: functional.cross_covariance(x, y, **options),
        [((3, 21, 5), (3, 21, 37))],
    )


def heads_row(heads: int, width: int, count: int, centering: str, *, masked: bool) -> Row:
    options = {"centering": centering, "mask": mask_of(3, count) if masked else None}
    shapes = [((3, count, 2 * heads * width),)]
    return Row(  # in float64 Paddle computes
        lambda x: head_covariance(x, heads, **options),
        lambda x: head_covariance(x, heads, **options),
        shapes,
    )


def power_row(shapes: Sequence[Shapes], **changes: object) -> Row:
    options = {"alpha": 0.5, "num_iter": 1, "num_sv": 1, "on_zero": "nan", **changes}
    return Row(
        lambda x, v: sv_power_norm(x, v, **options),
        lambda x, v: functional.sv_power_norm(x, v, **options),
        shapes,
        bound=5e-6,
    )


ROWS: Mapping[str, Row] = {
    "sot_gelu": Row(gelu, F.gelu, [((3, 5, 7),), ((),), ((0, 5),), ((2, 16385),)]),
    "sot_add_bias": Row(
        lambda x, b: run("sot_add_bias", x * 1.0, b),
        lambda x, b: x + b,
        [((1, 1), (1,)), ((3, 5, 17), (17,)), ((9001, 7), (7,))],
    ),
    "sot_add_bias of a product": Row(
        linear, F.linear, [((6, 7), (7, 5), (5,)), ((2, 3, 6), (6, 1), (1,))]
    ),
    "sot_layer_norm": Row(
        lambda *given: layer_norm(*given, EPSILON),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, EPSILON),
        [((3, 5, 17), (17,), (17,)), ((40, 33), (33,), (33,)), ((9000, 20), (20,), (20,))],
        bound=1e-5,
    ),
    "sot_dropout": Row(
        lambda x: dropout(x, 0.3, training=True) + paddle.rand([1]),
        lambda x: F.dropout(x, 0.3) + paddle.rand([1]).astype(x.dtype),
        [((61, 17),), ((70001,),), ((0, 4),)],
    ),
    "sot_embedding": Row(
        lambda w: embedding(IDS, w, 4),
        lambda w: F.embedding(IDS, w, padding_idx=4),
        [((11, 70),)],
    ),
    # 300 tokens: blocks of 218 queries
    "sot_attention": attention_row([[(2, n, 15)] * 3 for n in (1, 2, 31, 300)]),
    "sot_attention with dropout": attention_row([[(2, 31, 15)] * 3], p=0.2),
    "sot_attention of padding": attention_row([[(4, 9, 15)] * 3], bias_of(4, 1, 1, 9), 0.2),
    "sot_attention with any bias": attention_row([[(4, 9, 15)] * 3], bias_of(4, 3, 9, 9)),
    "sot_attention, causal": attention_row([[(4, 9, 15)] * 3], bias_of(1, 1, 9, 9)),
    "sot_attention of windows": attention_row([[(4, 9, 15)] * 3], bias_of(3, 2, 9, 9), 0.2, True),
    "sot_dense_block": Row(
        lambda x, *weights: dense_block(x, weights),
        dense_layers,
        [dense_shapes(*shape) for shape in ((2, 3, 5, 7), (1, 5, 1, 1), (3, 2, 1, 50))]
        + [dense_shapes(*shape) for shape in ((2, 17, 19, 4), (1, 4, 33, 40))],
        integers=True,
    ),
    "sot_stem": Row(
        lambda w, b: stem(IMAGES, w, b), plain_stem, [((11, 3, 3, 3), (11,))], integers=True
    ),
    "sot_transition": transition_row(2, train=True),
    "sot_transition without pooling": transition_row(1, train=True),
    "sot_transition, evaluated": transition_row(2, train=False),
    "sot_covariance of a pair": covariance_row("channel", None),
    "sot_covariance of a masked pair": covariance_row("channel", mask_of(3, 21)),
    "sot_covariance of a pair, by a scalar": covariance_row(
        "scalar", mask_of(3, 21).astype("int64")
    ),
    "sot_covariance of heads": heads_row(2, 24, 197, "scalar", masked=False),
    "sot_covariance of masked heads": heads_row(3, 5, 19, "channel", masked=True),
    "sot_covariance of one token": heads_row(1, 17, 1, "channel", masked=False),
    "sot_sv_power_norm": power_row(
        [((6, 5, 7), (7,)), ((2, 24, 24), (24,)), ((3, 48, 112), (112,)), ((0, 4, 3), (3,))]
    ),
    "sot_sv_power_norm in three steps": power_row([((6, 5, 7), (7,))], num_iter=3, alpha=0.3),
}
CASES = [(name, shapes) for name, row in ROWS.items() for shapes in row.shapes]

pytestmark = pytest.mark.native


def arrays_of(row: Row, shapes: Shapes) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    if row.integers:
        return [rng.integers(-1, 2, shape).astype("float32") for shape in shapes]
    return [rng.normal(0.3, 1.0, shape).astype("float32") for shape in shapes]


def step(function: Function, arrays: Sequence[np.ndarray], dtype: str) -> list[np.ndarray]:
    """Value and gradients, with the masks of one seed."""
    paddle.seed(4)
    tensors = [paddle.to_tensor(array.astype(dtype), stop_gradient=False) for array in arrays]
    value = function(*tensors)
    slope = np.random.default_rng(7).integers(-2, 3, value.shape)
    value.backward(paddle.to_tensor(slope.astype(dtype)))
    return [value.numpy(), *(tensor.grad.numpy() for tensor in tensors)]


def assert_near(
    found: Sequence[np.ndarray], exact: Sequence[np.ndarray], bound: float = 3e-6
) -> None:
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        largest = np.nanmax(np.abs(other), initial=1e-30)
        np.testing.assert_allclose(one, other, rtol=0, atol=bound * largest)


@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_value_and_gradients_are_those_of_the_formula_in_float64(called, name, shapes) -> None:
    row = ROWS[name]
    arrays = arrays_of(row, shapes)
    found = step(row.native, arrays, "float32")
    assert called == [name.split()[0].rstrip(",")]
    assert_near(found, step(row.plain, arrays, "float64"), row.bound)


@pytest.mark.parametrize("name", [name for name in ROWS if "product" not in name])
def test_the_number_of_threads_changes_no_bit(threads, name) -> None:
    row = ROWS[name]
    arrays, found = arrays_of(row, row.shapes[-1]), []
    for count in (1, 3):
        threads(count)
        found.append(step(row.native, arrays, "float32"))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ROWS)
def test_views_are_read_and_a_graph_is_walked_twice_but_derived_once(name) -> None:
    row = ROWS[name]
    arrays = [np.moveaxis(array, 0, -1) for array in arrays_of(row, row.shapes[0])]
    tensors = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]

    def view(tensor: paddle.Tensor) -> paddle.Tensor:
        return tensor.transpose([tensor.ndim - 1, *range(tensor.ndim - 1)])

    paddle.seed(4)
    value = row.native(*map(view, tensors))
    expected = step(row.native, arrays_of(row, row.shapes[0]), "float32")
    np.testing.assert_array_equal(value.numpy(), expected[0])
    value.sum().backward(retain_graph=True)
    once = [tensor.grad.numpy().copy() for tensor in tensors]
    (value * 1.0).sum().backward(retain_graph=True)
    for tensor, first in zip(tensors, once, strict=True):
        np.testing.assert_array_equal(tensor.grad.numpy(), 2.0 * first)
    (slope,) = paddle.grad((value * value).sum(), tensors[0], create_graph=True)
    with pytest.raises(
        OSError, match=r"SOT_PADDLE_NATIVE=0 or call sot_paddle.ops.native\(False\)"
    ):
        paddle.grad((slope * slope).sum(), tensors[0])


CHOOSING = {
    "gelu": (gelu, ((3, 5),)),
    "linear": (linear, ((3, 5), (5, 4), (4,))),
    "layer_norm": (lambda *given: layer_norm(*given, EPSILON), ((3, 5), (5,), (5,))),
    "dropout": (lambda x: dropout(x, 0.3, training=True), ((3, 5),)),
    "embedding": (lambda w: embedding(IDS, w, None), ((11, 5),)),
    "cross_covariance": (covariance_row("channel", None).native, ((2, 5, 3), (2, 5, 4))),
    "sv_power_norm": (power_row([]).native, ((2, 5, 3), (3,))),
}
"""Functions that leave to Paddle what the operator does not take."""


@pytest.mark.parametrize("name", CHOOSING)
def test_paddle_computes_where_the_operators_must_not(called, monkeypatch, name) -> None:
    function, shapes = CHOOSING[name]
    tensors = [paddle.rand(shape) for shape in shapes]
    with ops.native(False):
        function(*tensors)
        with ops.native(True):
            function(*tensors)
        function(*tensors)
    assert len(called) == 1
    function(*(tensor.astype("float64") for tensor in tensors))
    with monkeypatch.context() as patch:
        patch.setattr(paddle, "is_autocast_enabled", lambda: True)
        function(*tensors)
    assert len(called) == 1


def test_the_switch_holds_from_a_plain_call_on(called) -> None:
    try:
        ops.native(False)
        gelu(paddle.rand([3]))
        assert called == []
    finally:
        ops.native(True)
    with pytest.raises(KeyError), ops.native(False):
        raise KeyError
    assert ops.native.enabled


def test_paddles_functions_draw_the_masks_where_they_are_asked_to(called, monkeypatch) -> None:
    """Who replaces `F.dropout` is called; what drops nothing goes on natively."""
    asked = []
    monkeypatch.setattr(F, "dropout", lambda x, p, **_: asked.append(p) or x)
    x = paddle.rand([2, 3, 4])
    attend = with_native_layers(nn.MultiHeadAttention(4, 2, dropout=0.5))
    with ops.masks_by_paddle():
        dropout(x, 0.5, training=True)
        dropout(x, 0.5, training=False)
        attend(x)
        attend.eval()
        assert "sot_attention" not in called
        attend(x)
    assert asked == [0.5, 0.5]
    assert "sot_attention" in called
    dropout(x, 0.5, training=True)
    assert called[-1] == "sot_dropout"


def test_what_is_no_number_stays_where_it_was() -> None:
    x = [13.0, 1e4, -1e4, 1e38, -1e38, np.inf, -np.inf, np.nan, 0.0, -0.0]
    found, plain = (step(f, [np.array(x, "float32")], "float32") for f in (gelu, F.gelu))
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-35)
    rows, images = np.ones((4, 9), "float32"), IMAGES.clone()
    rows[1, 2], rows[3, 0], images[0, 0, 0, :3] = np.nan, np.inf, np.nan
    ones = paddle.ones([9])
    normed = layer_norm(paddle.to_tensor(rows), ones, ones, EPSILON).numpy()
    assert np.isnan(normed).all(1).tolist() == [False, True, False, True]
    pooled = stem(images, paddle.ones([1, 3, 3, 3]), paddle.zeros([1])).numpy()
    assert np.isnan(pooled[0, 0, :2, :3]).all()
    assert np.isnan(pooled[0, 0]).sum() == 6
    assert not np.isnan(pooled[1]).any()
    q, k, v = (paddle.ones([2, 6, 15]) for _ in range(3))
    q[1, 3, 0] = np.nan
    assert np.isnan(attention([q, k, v], 3, scale=0.3, p=0.0).numpy()).any(-1).sum() == 1


def test_gelu_keeps_its_digits_in_the_lower_tail() -> None:
    x = np.linspace(-9.0, 9.0, 40001).astype("float32")
    exact = [0.5 * number * math.erfc(-number / math.sqrt(2.0)) for number in x.tolist()]
    np.testing.assert_allclose(gelu(paddle.to_tensor(x)).numpy(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("scale", "shift", "off"), [(1e-3, 0.0, 2e-6), (1.0, 1e3, 5e-4)])
def test_small_rows_see_epsilon_and_large_means_keep_their_digits(scale, shift, off) -> None:
    rng = np.random.default_rng(3)
    x = (scale * rng.normal(size=(50, 240)) + shift).astype("float32")
    w, b = rng.normal(size=(2, 240)).astype("float32")
    exact = (x - x.astype("float64").mean(-1, keepdims=True)) * w
    exact = exact / np.sqrt(x.astype("float64").var(-1, keepdims=True) + 1e-5) + b
    found = layer_norm(*map(paddle.to_tensor, (x, w, b)), 1e-5).numpy()
    np.testing.assert_allclose(found, exact, rtol=0, atol=off)


def test_a_masked_token_has_no_weight_at_all() -> None:
    """Exactly 0, as in the framework; a subnormal weight makes every product with it slow."""
    q, k, v = (paddle.rand([2, 7, 15]) for _ in range(3))
    hidden = paddle.zeros([2, 1, 1, 7])
    hidden[:, :, :, 4:] = -1e4
    for tensor in (q, k, v):
        tensor.stop_gradient = False
    attention([q, k, v], 3, scale=0.3, p=0.0, bias=hidden).sum().backward()
    for tensor in (k, v):
        assert (tensor.grad.numpy()[:, 4:] == 0).all()


@pytest.mark.parametrize("on_zero", functional.ON_ZERO)
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_svpn_of_a_zero_matrix_is_the_plain_one(on_zero, alpha) -> None:
    row, rng = power_row([], on_zero=on_zero, alpha=alpha), np.random.default_rng(1)
    x = np.stack([np.zeros((4, 5)), rng.normal(size=(4, 5)), np.full((4, 5), 1e-14)])
    arrays = [x.astype("float32"), rng.normal(size=5).astype("float32")]
    found, plain = (step(f, arrays, "float32")[:2] for f in (row.native, row.plain))
    for ours, theirs in zip(found, plain, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert_near([one], [other], 1e-5)


def test_a_gradient_of_a_large_table_lies_in_memory_of_its_own_that_is_zero_again() -> None:
    weight = paddle.rand([200_000, 50])  # 40 MB: its gradient lies in the block that is kept
    weight.stop_gradient = False

    def gradient(*ids: int) -> paddle.Tensor:
        return paddle.grad(embedding(paddle.to_tensor(ids), weight, None).sum(), weight)[0]

    first = gradient(5, 199_999)
    kept, address = first.numpy().copy(), first.data_ptr()
    second = gradient(7, 7)  # the first is alive: another block
    np.testing.assert_array_equal(first.numpy(), kept)
    del first
    third = gradient(8)
    assert third.data_ptr() == address
    assert [np.flatnonzero(g.numpy().sum(axis=1)).tolist() for g in (second, third)] == [[7], [8]]


@pytest.mark.parametrize("p", [1e-7, 0.1, 0.5, 1.0 - 2.0**-24, 1.0 - 1e-8])
def test_masks_and_what_the_generator_draws_next_are_paddle_s(p) -> None:
    """The last rate is 1 in float32, which Paddle answers."""
    x = np.random.default_rng(1).normal(size=(61, 17)).astype("float32")
    x[1], x[2], x[:, 3] = np.nan, np.inf, -np.inf
    found = []
    for enabled in (True, False):
        with ops.native(enabled):
            found.append(step(lambda t: dropout(t, p, training=True), [x], "float32"))
            found[-1].append(paddle.rand([400]).numpy())
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
