"""What a layer computes where its native operator has to rest, and how often that runs.

The layers of a model get what native operators take. Here they get what these leave to the
framework too (see `test_native_choices`): what comes out is compared with the same layer without
any native operator, and the calls are counted.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.backbones.layers import Attention, Mlp
from sot_paddle.backbones.token_embed import _Stem
from sot_paddle.backbones.token_stages import DenseBlock, Transition
from sot_paddle.heads.pooling import MultiHeadCrossCovariance, TokenBatchNorm
from sot_paddle.ops import embedding, gelu, layers, second_order
from tests.sot_paddle.ops.native_operators import (
    counted_calls,
    learned,
    left_out,
    rand,
    replaced,
    watched,
)

Calls = Iterator[tuple[str, str, int, Callable[[], Any]]]
"""What is called, the operator that is counted, how often it runs, the call."""
_SEED = 11
ROUNDED = 2e-5  # float32: an operator rounds below 1e-6 of its largest value


def of_simple_layers() -> Calls:
    """Linear layers, layer norms, dropout and tables."""
    wide = {"dtype": "float64"}
    for what, wanted, layer, shape in (
        *(("linear", 1, nn.Linear(3, 2), (2, 3)), ("no pixel", 0, nn.Linear(3, 2), (0, 3))),
        ("linear without a bias", 0, nn.Linear(3, 2, bias_attr=False), (2, 3)),
    ):
        yield what, "add_bias", wanted, lambda m=layer, s=shape: native(m)(rand(*s))
    made = native(nn.Linear(3, 2).to(**wide))
    yield "linear in float64", "add_bias", 0, lambda: made(rand(2, 3, **wide))
    for what, wanted, layer, shape in (
        *(("norm", 1, nn.LayerNorm(4), (2, 3, 4)), ("norm of rows", 1, nn.LayerNorm(4), (2, 4))),
        *(("one row", 0, nn.LayerNorm(4), (4,)), ("no row", 0, nn.LayerNorm(4), (0, 4))),
        ("norm of one number", 1, nn.LayerNorm(1), (1, 1)),
        ("norm of two axes", 0, nn.LayerNorm([3, 4]), (2, 3, 4)),
        ("norm without a scale", 0, nn.LayerNorm(4, weight_attr=False), (2, 4)),
        ("norm without a bias", 0, nn.LayerNorm(4, bias_attr=False), (2, 4)),
    ):
        yield what, "layer_norm", wanted, lambda m=layer, s=shape: native(m)(rand(*s))
    for what, wanted, layer in (
        *(("dropout", 1, nn.Dropout(0.5)), ("dropout of none", 0, nn.Dropout(0.0))),
        *(("dropout of all", 0, nn.Dropout(1.0)), ("dropout of rows", 0, nn.Dropout(0.5, axis=0))),
        ("dropout by inference", 0, nn.Dropout(0.5, mode="downscale_in_infer")),
    ):
        yield what, "dropout", wanted, lambda m=layer: native(m)(rand(4, 5))
        still = native(nn.Dropout(layer.p, axis=layer.axis, mode=layer.mode))
        still.eval()
        yield f"{what}, evaluated", "dropout", 0, lambda m=still: m(rand(4, 5))
    ids, rows = paddle.to_tensor([[0, 3, 2]]), rand(5, 4)
    for padding in (None, 0, 3, -3):
        call = partial(embedding.embedding, ids, rows, padding)
        yield f"rows of a table, padding {padding}", "embedding", 1, call
    for option in ({}, {"sparse": True}, {"max_norm": 0.1}, {"scale_grad_by_freq": True}):
        table = native(nn.Embedding(5, 4, **option))
        yield f"a table, {option}", "embedding", int(not option), lambda m=table: m(ids)
    x64 = rand(2, 3, **wide)
    yield "GELU of float64", "gelu", 0, lambda: gelu.gelu(x64)


def native(layer: nn.Layer) -> nn.Layer:
    """A layer that computes natively where it can."""
    return layers.with_native_layers(layer)


def of_attention() -> Calls:
    """Paddle's attention and its encoder layer."""
    x, other = rand(2, 3, 8), rand(2, 3, 8)
    own = native(nn.MultiHeadAttention(8, 2))
    telling = native(nn.MultiHeadAttention(8, 2, need_weights=True))
    dropping = native(nn.MultiHeadAttention(8, 2, dropout=1.0))
    some, still = (native(nn.MultiHeadAttention(8, 2, dropout=0.3)) for _ in range(2))
    still.eval()
    bias = learned(rand(2, 1, 1, 3))
    for what, wanted, call in (
        *(("itself", 1, lambda: own(x)), ("itself, named", 1, lambda: own(x, x, x))),
        *(("keys", 0, lambda: own(x, other, x)), ("values", 0, lambda: own(x, x, other))),
        *(("weights", 0, lambda: telling(x)), ("none left", 0, lambda: dropping(x))),
        ("a cache", 0, lambda: own(x, x, x, None, own.gen_cache(x))[0]),
        ("a bias", 1, lambda: own(x, attn_mask=rand(2, 1, 3, 3))),
        ("a bias that learns", 0, lambda: own(x, attn_mask=bias)),
        *(("some left", 1, lambda: some(x)), ("all left", 1, lambda: still(x))),
    ):
        yield f"attention, {what}", "attention", wanted, call

    def encoder(activation: Any = gelu.gelu, **options: Any) -> nn.Layer:
        made = native(nn.TransformerEncoderLayer(8, 2, 16, 0.1, **options))
        made.activation = activation
        made.eval()
        return made

    plain, hooked = encoder(), [encoder() for _ in range(3)]
    for layer, name in zip(hooked, ("norm1", "linear2", "dropout"), strict=True):
        watched(getattr(layer, name))
    for what, wanted, layer in (
        *(("", 2, plain), (", normalized before", 0, encoder(normalize_before=True))),
        *((", another activation", 0, encoder(F.relu)), (", watched", 0, hooked[0])),
        *((", a watched part", 0, hooked[1]), (", watched dropout", 0, hooked[2])),
    ):
        run = paddle.no_grad()(lambda m=layer: m(x))
        yield f"encoder layer{what}", "layer_norm_of_sum", wanted, run
    trained = encoder()
    trained.train()
    yield "encoder layer with gradients", "layer_norm_of_sum", 2, lambda: plain(x)
    yield "encoder layer in training", "layer_norm_of_sum", 2, lambda: trained(x)

    def with_another(module: object, name: str, layer: nn.Layer) -> Any:
        with replaced(module, name):
            return layer(x)

    for what, *given in (("norm", F, "layer_norm", plain), ("dropout", F, "dropout", trained)):
        run = partial(with_another, *given)
        yield f"encoder layer, another {what}", "layer_norm_of_sum", 0, run


def of_models() -> Calls:
    """Layers of our own, watched or in several processes."""
    x, image = rand(2, 3, 8), rand(2, 4, 6, 6)
    part, seen, attends, looked = Mlp(8, 16), Mlp(8, 16), Attention(8, 2), Attention(8, 2)
    for layer in (part, seen, attends, looked):
        native(layer)
    watched(seen.fc1), watched(looked.attn_drop)
    for what, wanted, layer in (("", 1, part), (", watched", 0, seen)):
        layer.eval()
        yield f"Mlp{what}", "gelu_of_sum", wanted, lambda m=layer: m(x)
    for what, wanted, layer in (("", 1, attends), (", watched", 0, looked)):
        yield f"attention of images{what}", "attention", wanted, lambda m=layer: m(x)
    for name in ("", "norm", "conv", "pool"):
        layer = Transition(4, 6, pool=True)
        if name:
            watched(getattr(layer, name))
        yield f"transition {name}", "transition", int(not name), lambda m=layer: m(image)
    for what, wanted in (("trained", 0), ("evaluated", 1)):
        layer = Transition(4, 6, pool=True)
        layer.norm.sum_across_processes = lambda sums: 2 * sums
        layer.eval() if wanted else layer.train()
        yield f"transition, {what} by two", "transition", wanted, lambda m=layer: m(image)
    for name in ("", "conv1", "conv2", "norm1", "layer"):
        layer = DenseBlock(4, num_layers=2)
        if name:
            watched(getattr(layer.layers[1], name, layer.layers[1]))
        yield f"dense block {name}", "dense_block", int(not name), lambda m=layer: m(image)
    for name in ("", "conv", "pool"):
        layer = _Stem(3, 4)
        if name:
            watched(getattr(layer, name))
        yield f"stem {name}", "stem", int(not name), lambda m=layer: m(rand(1, 3, 6, 6))
    for what, operator, wanted in (("trained", "token_norm", 0), ("evaluated", "token_shift", 1)):
        layer = TokenBatchNorm(8)
        layer.sum_across_processes = lambda sums: 2 * sums
        layer.eval() if wanted else layer.train()
        yield f"token norm, {what} by two", operator, wanted, lambda m=layer: m(x)


def of_matrices() -> Calls:
    """Covariances, and power norms by one triplet and by more."""
    x, other, start = rand(2, 3, 4), rand(2, 3, 5), rand(4)
    mask = paddle.to_tensor([[1, 1, 0], [1, 0, 0]])
    shares = MultiHeadCrossCovariance(8, num_heads=2, wr_dim=2, norm=nn.Identity())
    for what, given in (("", None), (" of some", mask)):
        call = lambda m=given: shares(rand(2, 3, 8), m)  # noqa: E731
        yield f"covariance of heads{what}", "head_covariance", 1, call
        options = {"centering": "scalar", "mask": given}
        call = lambda o=options: second_order.cross_covariance(x, other, **o)  # noqa: E731
        yield f"covariance{what}", "pair_covariance", 1, call
    wide = [part.astype("float64") for part in (x, other)]
    for what, given, centring in (("float64", wide, "channel"), ("another way", (x, other), "x")):
        options = {"centering": centring, "mask": mask}
        call = lambda g=given, o=options: second_order.cross_covariance(*g, **o)  # noqa: E731
        yield f"covariance, {what}", "pair_covariance", 0, call
    options = {"alpha": 0.5, "num_iter": 1, "num_sv": 1, "on_zero": "zero"}
    call = lambda o=options: second_order.sv_power_norm(0.0 * x, start, **o)  # noqa: E731
    yield "norm of nothing", "sv_power_norm", 1, call
    for triplets, steps, wanted in ((1, 1, 1), (1, 2, 1), (2, 1, 0), (None, 1, 0), (1, 0, 0)):
        options = {"alpha": 0.5, "num_iter": steps, "num_sv": triplets, "on_zero": "zero"}
        call = lambda o=options: second_order.sv_power_norm(x, start, **o)  # noqa: E731
        yield f"norm by {triplets}, {steps} steps", "sv_power_norm", wanted, call


@contextlib.contextmanager
def _left_out() -> Iterator[None]:
    """No native operators, and Paddle's own layers."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(left_out())
        for kind in layers.KINDS:
            stack.enter_context(mock.patch.object(kind, "forward", kind.__base__.forward))
        yield


def _values(call: Callable[[], Any], *, plain: bool = False) -> tuple[np.ndarray, Counter[str]]:
    """What a call gives, plus 1 (zeros have no size), and how often each operator ran."""
    with _left_out() if plain else contextlib.nullcontext(), counted_calls() as calls:
        paddle.seed(_SEED)
        try:
            made = call()
        except ValueError:  # Paddle's own refusal: it has to stay one
            return np.array([-1.0], "float32"), calls
    first = made[0] if isinstance(made, tuple) else made
    value = first.astype("float32").numpy()
    return (value + 1.0 if value.size else np.array(value.shape, "float32") + 1.0), calls


@pytest.mark.native
@pytest.mark.parametrize("part", [of_simple_layers, of_attention, of_models, of_matrices])
def test_values_and_calls_of_a_layer(part: Callable[[], Calls]) -> None:
    paddle.seed(_SEED)
    for what, operator, wanted, call in part():
        value, calls = _values(call)
        plain, _ = _values(call, plain=True)
        assert calls[operator] == wanted, what
        assert value.shape == plain.shape, what
        np.testing.assert_allclose(
            value, plain, rtol=0, atol=ROUNDED * np.abs(plain).max(), err_msg=what
        )
