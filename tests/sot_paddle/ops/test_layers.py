"""Layers and models with native operators are the framework's; who watches a layer sees it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle import create_model, ops
from sot_paddle.backbones.layers import BatchNorm2D, Mlp
from sot_paddle.backbones.token_embed import _Stem
from sot_paddle.backbones.token_stages import DenseBlock, Transition
from sot_paddle.ops import layers
from sot_paddle.ops.attention import can_attend
from sot_paddle.ops.layers import side_by_side, with_native_layers

DROP = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "head_dropout": 0.3}
TEXT = {
    **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, **DROP},
    **{"intermediate_size": 96, "vocab_size": 60, "q_dim": 7, "k_dim": 5},
}
IMAGES = {"img_size": 32, "embed_dim": 24, "depth": 2, "drop_rate": 0.1, "attn_drop_rate": 0.2}
SOT = {**IMAGES, "num_heads": 4, "mlp_ratio": 1.5, "head_num_heads": 3, "wr_dim": 4}
SWIN = {"img_size": 28, "window_size": 3, "depths": (2, 2), "num_heads": (2, 4), "embed_dim": 24}
ENCODER = {"sot_add_bias", "sot_attention", "sot_dropout", "sot_layer_norm", "sot_gelu"}
OF_TEXT = {*ENCODER, "sot_embedding"}
HEAD = {"sot_covariance", "sot_sv_power_norm"}
MODELS: Mapping[str, tuple[str, dict[str, Any], set[str]]] = {
    "text": (
        "bert_base",
        {**TEXT, "pooling": "mgcrp_qk", "mask_padding": True},
        {*OF_TEXT, *HEAD},
    ),
    "another text": ("roberta_base", TEXT, OF_TEXT),
    "gpt": ("openai_gpt", TEXT, OF_TEXT - {"sot_gelu"}),
    "images": ("deit_tiny_sot", {**SOT, "token_type": "linear"}, {*ENCODER, *HEAD}),
    "windows": ("swin_tiny", {**SWIN, "drop_rate": 0.1, "attn_drop_rate": 0.2}, ENCODER),
    "tokens": (
        "sot_tiny",
        {**SOT, "token_type": "densenet"},
        {*ENCODER, *HEAD, "sot_stem", "sot_dense_block", "sot_transition"},
    ),
}

pytestmark = pytest.mark.native


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def one_step(name: str) -> dict[str, np.ndarray]:
    """Logits and gradients of a training pass, logits of an evaluation; the generator's next."""
    kind, options, _ = MODELS[name]
    paddle.seed(3)
    model, rng = create_model(kind, 3, **options), np.random.default_rng(2)
    if side := options.get("img_size"):
        batch = {"images": paddle.to_tensor(rng.normal(size=(2, 3, side, side)), "float32")}
    else:
        mask = np.arange(9) < np.array([[9], [5], [7]])
        batch = {"input_ids": paddle.to_tensor(rng.integers(5, 60, mask.shape))}
        batch["attention_mask"] = paddle.to_tensor(mask.astype("int64"))
    for weight in model.parameters():
        if weight.ndim == 2:  # as they are drawn, all tokens get about the same attention
            weight.set_value(10.0 * weight)
    logits = model(**batch)
    (logits * logits).sum().backward()
    # rounding may flip a ReLU or a maximum of a token embedding: see the operators' own tests
    skipped = "embed." if "token_type" in options else "(none)"
    slopes = [
        parameter.grad.numpy().ravel()
        for path, parameter in model.named_parameters()
        if parameter.grad is not None and not path.startswith(skipped)
    ]
    model.eval()
    with paddle.no_grad():
        evaluated = model(**batch).numpy()
    return {
        "logits": logits.numpy(),
        "gradients": np.concatenate(slopes),  # one scale: some are zero but for rounding
        "evaluation": evaluated,
        "generator": paddle.rand([3]).numpy(),
    }


def test_a_feed_forward_part_is_fused_in_inference_to_the_same_bits(called) -> None:
    part, x = with_native_layers(Mlp(6, 10, drop=0.3)), paddle.to_tensor(rand(3, 5, 6))
    part.eval()
    expected = part(x).numpy()
    assert "sot_gelu_of_sum" not in called
    with paddle.no_grad():
        np.testing.assert_array_equal(part(x).numpy(), expected)
        assert called.count("sot_gelu_of_sum") == 1
        part.fc1.register_forward_post_hook(lambda *_: None)
        part(x)
    assert called.count("sot_gelu_of_sum") == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_plain_one(called, name) -> None:
    found = one_step(name)
    assert set(called) - {"sot_gelu_of_sum"} == MODELS[name][2]
    called.clear()
    with ops.native(False):
        plain = one_step(name)
    assert called == []
    np.testing.assert_array_equal(found.pop("generator"), plain["generator"])
    for what, value in found.items():
        largest = np.abs(plain[what]).max()
        np.testing.assert_allclose(value, plain[what], rtol=0, atol=2e-5 * largest, err_msg=what)


def test_layers_change_their_class_and_nothing_else() -> None:
    class Own(nn.Linear):
        """Of a user."""

    stack = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.5), Own(4, 4))
    names, seen = list(stack.state_dict()), []
    stack[0].register_forward_post_hook(lambda *_: seen.append(1))
    assert with_native_layers(stack) is stack
    assert list(stack.state_dict()) == names
    assert [type(one) for one in stack] == [layers.Linear, layers.LayerNorm, layers.Dropout, Own]
    stack.eval()
    expected = stack(paddle.ones([2, 4])).numpy()
    assert seen == [1]
    np.testing.assert_array_equal(copy.deepcopy(stack)(paddle.ones([2, 4])).numpy(), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LayerNorm([2, 4]),
        lambda: nn.LayerNorm(4, weight_attr=False),
        lambda: nn.Dropout(0.5, mode="downscale_in_infer"),
        lambda: nn.Dropout(1.0),
        lambda: nn.Linear(4, 4, bias_attr=False),
        lambda: nn.MultiHeadAttention(4, 2, dropout=1.0),
    ],
)
def test_layers_with_other_settings_are_the_frameworks(called, make: Callable) -> None:
    layer, x = make(), paddle.to_tensor(rand(3, 2, 4))
    found = []
    for one in (copy.deepcopy(layer), with_native_layers(copy.deepcopy(layer))):
        paddle.seed(1)
        made = one(x)
        found.append((made[0] if isinstance(made, tuple) else made).numpy())
    assert not {"sot_layer_norm", "sot_dropout", "sot_attention"} & set(called)
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_attention_of_another_kind_is_the_frameworks(called) -> None:
    attend = with_native_layers(nn.MultiHeadAttention(6, 2, dropout=0.5))
    attend.eval()
    x = paddle.to_tensor(rand(2, 5, 6))
    expected = attend(x).numpy()
    assert called.count("sot_attention") == 1
    trained = paddle.zeros([2, 1, 1, 5])
    trained.stop_gradient = False
    for other in (
        attend(x, x[:, :], x),
        attend(x, attn_mask=trained > -1),
        attend(x, x, x, trained),
    ):
        np.testing.assert_allclose(other.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert attend(x, x[:, :3], x[:, :3]).shape == [2, 5, 6]
    assert attend(x, x, x, None, attend.gen_cache(x))[0].shape == [2, 5, 6]
    assert called.count("sot_attention") == 1


@pytest.mark.parametrize(
    ("shape", "can"), [((2, 1, 1, 3), True), ((1, 2, 3, 3), True), ((2, 1, 3, 1), False)]
)
def test_scores_take_a_bias_of_four_axes(shape, can) -> None:
    assert can_attend([paddle.rand([2, 3, 8])], paddle.rand(shape)) is can


WATCHED: Mapping[str, tuple[Callable[[], nn.Layer], str, tuple[int, ...]]] = {
    "a convolution of the stem": (lambda: _Stem(3, 5), "conv", (2, 3, 8, 8)),
    "a dense layer": (lambda: DenseBlock(3, num_layers=2), "layers.1", (2, 3, 4, 4)),
    "a norm between": (lambda: Transition(3, 4, pool=True), "norm", (2, 3, 4, 4)),
}


@pytest.mark.parametrize("way", ["hook", "subclass"])
@pytest.mark.parametrize("what", WATCHED)
def test_a_layer_that_someone_watches_or_replaced_is_called(called, what, way) -> None:
    make, path, shape = WATCHED[what]
    x, seen = paddle.to_tensor(rand(*shape)), []
    make()(x)
    assert len(called) == 1
    layer = make()
    part = dict(layer.named_sublayers())[path]
    if way == "hook":
        part.register_forward_post_hook(lambda *_: seen.append(1))
    else:
        kind = type(part)
        forward = lambda self, *given: seen.append(1) or kind.forward(self, *given)  # noqa: E731
        part.__class__ = type("Own", (kind,), {"forward": forward})
    layer(x)
    assert seen
    assert len(called) == 1


def projections() -> list[nn.Linear]:
    paddle.seed(6)
    return [nn.Linear(13, width, bias_attr=False) for width in (7, 1, 4)]


def test_layers_side_by_side_are_one_product_in_training(monkeypatch) -> None:
    calls, product, found = [], F.linear, []
    monkeypatch.setattr(
        F, "linear", lambda *given, **named: calls.append(1) or product(*given, **named)
    )
    for way in (side_by_side, lambda x, parts: [part(x) for part in parts]):
        parts, x = projections(), paddle.to_tensor(rand(2, 5, 13), stop_gradient=False)
        made = way(x, parts)
        sum((one * (one + k)).sum() for k, one in enumerate(made)).backward()
        found.append([*made, x.grad, *(part.weight.grad for part in parts)])
    assert len(calls) == 1 + 3
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: with_native_layers(Mlp(6, 10, drop=0.3)), [None, None, 6]),
        (lambda: DenseBlock(3, num_layers=2), [None, 3, None, None]),
    ],
    ids=["feed-forward", "dense block"],
)
def test_open_axes_are_traced_without_operators(called, make, shape) -> None:
    """While a graph is traced, a size is a tensor: none is looked at before that is known."""
    spec = [paddle.static.InputSpec(shape, "float32")]
    graph = paddle.jit.to_static(make(), input_spec=spec, full_graph=True)
    assert "sot_" not in str(graph.forward.concrete_program.main_program)
    assert called == []


def test_what_the_operators_of_images_leave_to_paddle(called) -> None:
    x, between, stem = paddle.to_tensor(rand(2, 3, 4, 4)), Transition(3, 4, pool=True), _Stem(3, 5)
    between(x)
    assert called == ["sot_transition"]
    between.norm.sum_across_processes = lambda total: total
    between(x)
    between.eval()
    between(x[:0])
    x.stop_gradient = False
    stem(x).sum().backward()
    assert x.grad.shape == x.shape
    assert called == ["sot_transition"]


def test_a_transition_trains_the_running_values_of_its_norm() -> None:
    x, found = paddle.to_tensor(rand(3, 4, 8, 8) * 0.01 + 100.0), []
    for enabled in (True, False):
        layer = Transition(4, 2, pool=True)
        with ops.native(enabled):
            layer(x)
        found.append([buffer.numpy() for buffer in layer.buffers()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    with pytest.raises(ValueError, match="more than one value for each channel"):
        Transition(3, 4, pool=False)(paddle.ones([1, 3, 1, 1]))
    assert isinstance(layer.norm, BatchNorm2D)
