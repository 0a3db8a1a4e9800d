"""Models with native operators are models with the framework's: values, gradients, masks, files."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle import create_model
from sot_paddle.ops import bfloat16, layers
from sot_paddle.ops.attention import attention
from sot_paddle.ops.layers import side_by_side, with_native_layers

native = pytest.mark.native
DROP = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "head_dropout": 0.3}
SMALL = {
    **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"intermediate_size": 96, "vocab_size": 60, **DROP},
}
VIT = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}
SWIN = {"img_size": 28, "patch_size": 4, "window_size": 3, "embed_dim": 24, "depths": (2, 2)}
IMAGE_DROP = {"drop_rate": 0.1, "attn_drop_rate": 0.2}
MODELS = {
    "bert_base": SMALL,
    "roberta_base_mgcrp": SMALL,
    "openai_gpt": SMALL,
    "deit_tiny": {**VIT, **IMAGE_DROP},
    "swin_tiny": {**SWIN, "num_heads": (2, 4), **IMAGE_DROP},
}


def batch(name: str) -> dict[str, paddle.Tensor]:
    rng = np.random.default_rng(2)
    if options := MODELS[name].get("img_size"):
        return {"images": paddle.to_tensor(rng.normal(size=(2, 3, options, options)), "float32")}
    mask = np.ones((3, 9), "int64")
    mask[1, 5:] = 0
    ids = paddle.to_tensor(rng.integers(5, 60, (3, 9)))
    return {"input_ids": ids, "attention_mask": paddle.to_tensor(mask)}


def one_step(name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Logits and gradients of a training pass, logits of an evaluation; the generator's next."""
    paddle.seed(3)
    model, inputs = create_model(name, 3, **MODELS[name]), batch(name)
    logits = model(**inputs)
    (logits * logits).sum().backward()
    found = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    model.eval()
    with paddle.no_grad():
        return {"train": logits.numpy(), "eval": model(**inputs).numpy(), **found}, paddle.rand([3])


@native
@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_a_model_with_dropout_is_the_frameworks(plainly, called, name) -> None:
    found, after = one_step(name)
    assert {"sot_layer_norm", "sot_attention", "sot_add_bias", "sot_dropout"} <= set(called)
    count = len(called)
    plain, after_plain = plainly(one_step)(name)
    assert len(called) == count
    np.testing.assert_array_equal(after.numpy(), after_plain.numpy())
    assert found.keys() == plain.keys()
    scale = max(np.abs(value).max() for value in plain.values())
    for key, value in plain.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=5e-6 * scale, err_msg=key)


@native
def test_nothing_is_kept_for_backward_without_gradients(called) -> None:
    stack = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.5))
    with_native_layers(stack)
    with paddle.no_grad():
        y = stack(paddle.ones([2, 4]))
        attended = attention([y.unsqueeze(0)] * 3, 2, scale=0.5, p=0.0)
    assert set(called) == {"sot_add_bias", "sot_layer_norm", "sot_dropout", "sot_attention"}
    assert y.stop_gradient
    assert y.is_leaf
    assert attended.is_leaf
    assert not stack(paddle.ones([2, 4])).stop_gradient


def test_layers_change_their_class_and_nothing_else() -> None:
    class Own(nn.Linear):
        """Of a user."""

    stack = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.5), Own(4, 4))
    names, hooked = list(stack.state_dict()), []
    stack[0].register_forward_post_hook(lambda *_: hooked.append(1))
    assert with_native_layers(stack) is stack
    assert list(stack.state_dict()) == names
    kinds = [type(layer) for layer in stack]
    assert kinds == [layers.Linear, layers.LayerNorm, layers.Dropout, Own]
    assert all(kind.__name__ == kind.__base__.__name__ for kind in kinds[:3])
    stack.eval()
    expected = stack(paddle.ones([2, 4])).numpy()
    assert hooked == [1]
    np.testing.assert_array_equal(copy.deepcopy(stack)(paddle.ones([2, 4])).numpy(), expected)
    assert pickle.loads(pickle.dumps(layers.Dropout)) is layers.Dropout  # noqa: S301 (our own)


def test_layers_with_other_settings_are_the_frameworks(called) -> None:
    x = paddle.rand([3, 2, 4])
    for layer in (
        nn.LayerNorm([2, 4]),
        nn.LayerNorm(4, weight_attr=False),
        nn.LayerNorm(4, bias_attr=False),
        nn.Dropout(0.5, axis=0),
        nn.Dropout(0.5, mode="downscale_in_infer"),
        nn.Dropout(1.0),
        nn.Linear(4, 4, bias_attr=False),
    ):
        paddle.seed(1)
        expected = layer(x).numpy()
        paddle.seed(1)
        np.testing.assert_array_equal(with_native_layers(layer)(x).numpy(), expected)
    assert called == []


@native
def test_attention_of_another_kind_is_the_frameworks(called) -> None:
    attend = with_native_layers(nn.MultiHeadAttention(6, 2, dropout=0.5))
    attend.eval()
    x = paddle.rand([2, 5, 6])
    mask = paddle.ones([2, 1, 1, 5], "bool")
    expected = attend(x).numpy()
    assert called.count("sot_attention") == 1
    for other in (attend(x, x[:, :], x), attend(x, attn_mask=mask)):
        np.testing.assert_allclose(other.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert attend(x, x[:, :3], x[:, :3]).shape == [2, 5, 6]
    attend.need_weights = True
    assert attend(x)[1].shape == [2, 2, 5, 5]
    assert called.count("sot_attention") == 1


def projections(*, bias: bool = False) -> list[nn.Linear]:
    paddle.seed(6)
    return [nn.Linear(13, width, bias_attr=None if bias else False) for width in (7, 1, 4)]


def weighed(made: list[paddle.Tensor]) -> paddle.Tensor:
    return sum((one * (one + k)).sum() for k, one in enumerate(made))


@native
@pytest.mark.parametrize("shape", [(1, 13), (2, 5, 13)])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_layers_side_by_side_are_one_product_in_training(monkeypatch, shape, precision) -> None:
    if precision == "bf16" and bfloat16.why_not():
        pytest.skip(bfloat16.why_not())
    product = bfloat16.linear if precision == "bf16" else F.linear
    array, found, calls = np.random.default_rng(3).normal(size=shape), [], []

    def counted(x: paddle.Tensor, weight: paddle.Tensor, *_: None, **__: None) -> paddle.Tensor:
        calls.append(1)
        return product(x, weight)

    monkeypatch.setattr(layers, "replaced", lambda: False)
    monkeypatch.setattr(F, "linear", counted)
    for way in (side_by_side, lambda x, parts: [part(x) for part in parts]):
        parts, x = projections(), paddle.to_tensor(array, "float32", stop_gradient=False)
        made = way(x, parts)
        weighed(made).backward()
        found.append([*made, x.grad, *(part.weight.grad for part in parts)])
        assert [one.shape for one in made] == [[*shape[:-1], width] for width in (7, 1, 4)]
    assert len(calls) == 1 + 3
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=2e-5)


@native
def test_layers_side_by_side_are_called_where_they_must_be(monkeypatch) -> None:
    joined = []
    monkeypatch.setattr(paddle, "concat", lambda *given, **named: joined.append(1))
    x, seen = paddle.ones([2, 13]), []
    with paddle.no_grad():
        side_by_side(x, projections())
    side_by_side(x, projections(bias=True))
    side_by_side(x[:0], projections())
    parts = projections()
    parts[1].register_forward_post_hook(lambda *_: seen.append(1))
    side_by_side(x, parts)
    assert seen == [1]
    monkeypatch.setattr(layers, "runs_natively", lambda x: False)
    assert [one.shape for one in side_by_side(x, projections())] == [[2, 7], [2, 1], [2, 4]]
    assert joined == []


@native
def test_a_dropout_that_someone_watches_is_called(called) -> None:
    model = create_model("deit_tiny", 3, **MODELS["deit_tiny"])
    seen = []
    model.blocks[0].attn.attn_drop.register_forward_post_hook(lambda *_: seen.append(1))
    model(**batch("deit_tiny"))
    assert seen == [1]
    assert called.count("sot_attention") == 1  # of the second block
