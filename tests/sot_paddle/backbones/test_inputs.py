"""Inputs that a model refuses in one line of its own, and those that it takes.

Dims: B 3, S 6, 30 token ids, 2 types; images (2, 3, 16, 16).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import paddle
import pytest

from sot_paddle import TokenEmbed, create_model
from sot_paddle.backbones import inputs
from sot_paddle.backbones.inputs import TextCheck, check_images

B, S = 3, 6
IMAGE_MODELS = {
    "sot_tiny": {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4},
    "deit_tiny": {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3},
    "swin_tiny": {"img_size": 16, "embed_dim": 8, "depths": (1,), "num_heads": (2,)},
}


def ids() -> np.ndarray:
    return np.random.default_rng(1).integers(1, 30, (B, S))


def with_value(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.astype(np.result_type(array, type(value)))
    changed[1, 4] = value
    return changed


def mask(lengths=(6, 3, 4)) -> np.ndarray:
    return (np.arange(S) < np.asarray(lengths)[:, None]).astype("int64")


def additive(least: float) -> np.ndarray:
    return np.where(mask() == 1, 0.0, least).astype("float32")


@pytest.mark.parametrize("name", ["bert_base", "bert_base_mgcrp"])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input_ids": with_value(ids(), -1)},
            "input_ids must be from 0 to vocab_size - 1 = 29, got values from -1 to .*tokenizer",
        ),
        ({"input_ids": with_value(ids(), 30)}, "vocab_size - 1 = 29, got values from .* to 30;"),
        ({"input_ids": ids().astype("float32")}, "input_ids must be int64 or int32, got float32"),
        ({"input_ids": ids() > 3}, "input_ids must be int64 or int32, got bool; cast it with"),
        ({"token_type_ids": with_value(0 * ids(), 2)}, "type_vocab_size - 1 = 1, got .* 0 to 2;"),
        ({"token_type_ids": with_value(0 * ids(), -1)}, "token_type_ids must be from 0 .* -1 to"),
        ({"token_type_ids": 0.0 * ids()}, "token_type_ids must be int64 or int32, got float64"),
        (
            {"attention_mask": additive(-1e4)},
            "1 .valid. and 0 .padding. only, got values from -10000 to 0; that is an additive mask",
        ),
        ({"attention_mask": additive(-np.inf)}, "got values from -inf to 0; .*additive mask"),
        ({"attention_mask": with_value(mask(), 2)}, "got values from 0 to 2; pass 1 for every"),
        ({"attention_mask": with_value(1.0 * mask(), 0.5)}, "must hold 1 .valid. and 0"),
        ({"attention_mask": with_value(1.0 * mask(), np.nan)}, "must hold 1 .valid. and 0"),
    ],
)
def test_what_a_text_model_refuses(tiny_bert, name, train, changes, message) -> None:
    model = tiny_bert(name)
    model.train() if train else model.eval()
    arrays = {"input_ids": ids(), **changes}
    with pytest.raises(ValueError, match=message) as caught:
        model(**{key: paddle.to_tensor(value) for key, value in arrays.items()})
    assert "\n" not in str(caught.value)


SMALL = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 30}
BACKBONES = {
    "bert_base": {},
    "roberta_base": {},
    "spanbert_base": {},
    "openai_gpt": {"intermediate_size": 48},
    "conv_bert_base": {"pad_token_id": 0},
}


@pytest.mark.parametrize("name", BACKBONES)
def test_every_backbone_refuses_the_same(name) -> None:
    model = create_model(name, 3, **SMALL, **BACKBONES[name])
    model.eval()
    for least in (-1, 30):
        with pytest.raises(ValueError, match="input_ids must be from 0 to vocab_size - 1 = 29"):
            model(paddle.to_tensor(with_value(ids(), least)))
    for value in (0.5, 2.0, -1.0, np.nan):
        wrong = paddle.to_tensor(with_value(1.0 * mask(), value))
        with pytest.raises(ValueError, match="attention_mask must hold 1 .valid. and 0 .padding."):
            model(paddle.to_tensor(ids()), attention_mask=wrong)
    for least in (-1e4, -np.inf):
        with pytest.raises(ValueError, match="that is an additive mask, .* pass the mask it was"):
            model(paddle.to_tensor(ids()), attention_mask=paddle.to_tensor(additive(least)))
    assert model(paddle.to_tensor(ids()), attention_mask=paddle.to_tensor(mask())).shape == [B, 3]


@pytest.mark.parametrize("name", ["input_ids", "token_type_ids", "attention_mask"])
def test_lists_and_arrays_are_no_tensors(tiny_bert, name) -> None:
    for value in (ids().tolist(), ids()):
        given = {"input_ids": paddle.to_tensor(ids()), name: value}
        with pytest.raises(ValueError, match=f"{name} must be a paddle.Tensor .*paddle.to_tensor"):
            tiny_bert()(**given)


@pytest.fixture(params=[True, False], ids=["strided", "contiguous"])
def kernels(request) -> Iterator[None]:
    """Both sets of Paddle's kernels: `import sot_paddle` before paddle chooses the second."""
    before = paddle.get_flags("FLAGS_use_stride_kernel")
    paddle.set_flags({"FLAGS_use_stride_kernel": request.param})
    yield
    paddle.set_flags(before)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64", "float16", "float32"])
def test_masks_of_zeros_and_ones_of_any_type_are_one_mask(tiny_bert, kernels, dtype) -> None:
    model = tiny_bert(mask_padding=True)
    model.eval()
    scores = [
        model(paddle.to_tensor(ids()), attention_mask=paddle.to_tensor(mask().astype(kind)))
        for kind in ("int64", dtype)
    ]
    np.testing.assert_array_equal(scores[0].numpy(), scores[1].numpy())


def test_every_id_of_the_tables_and_both_integer_types_are_taken(tiny_bert) -> None:
    model = tiny_bert()
    edge = paddle.to_tensor([[0, 29, 1]])
    for dtype in ("int64", "int32"):
        model(edge.astype(dtype), token_type_ids=paddle.to_tensor([[0, 1, 1]], dtype=dtype))


def test_one_token_is_enough_for_the_plain_classifier(tiny_bert) -> None:
    model = tiny_bert("bert_base")
    logits, taps = model(
        paddle.to_tensor([[5], [7]]), attention_mask=paddle.ones([2, 1]), return_taps=True
    )
    logits.sum().backward()
    assert (logits.shape, taps["layers.1"].shape) == ([2, 3], [2, 1, 12])
    for fusion in ("sum_fc", "concat", "word_tokens"):
        with pytest.raises(ValueError, match="pools words and got none.*two tokens or more"):
            tiny_bert(fusion=fusion)(paddle.to_tensor([[5], [7]]))
    assert tiny_bert(fusion="aggre_all")(paddle.to_tensor([[5], [7]])).shape == [2, 3]


def test_in_training_on_an_accelerator_one_batch_of_64_is_looked_at(monkeypatch) -> None:
    """Waiting for a device in every step would cost more than it finds."""
    looked = []
    monkeypatch.setattr(TextCheck, "_check_values", lambda *arguments: looked.append(1))
    check, tensor = TextCheck(30, 2, 16), paddle.to_tensor(ids())
    for _ in range(5):
        check(tensor, None, None, training=True)
    assert len(looked) == 5  # on a CPU every batch

    class Elsewhere:
        def is_cpu_place(self) -> bool:
            return False

    monkeypatch.setattr(paddle.Tensor, "place", property(lambda tensor: Elsewhere()))
    looked.clear()
    for _ in range(2 * inputs.SAMPLED + 1):
        check(tensor, None, None, training=True)
    assert len(looked) == 3
    for _ in range(5):
        check(tensor, None, None, training=False)
    assert len(looked) == 8


def images(dtype: str = "float32", shape=(2, 3, 16, 16)) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(2).normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("name", sorted(IMAGE_MODELS))
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (images("int64"), "images must be floating-point and normalised, got int64; divide by 255"),
        (images("int32").astype("uint8"), "normalised, got uint8"),
        (
            images("float64"),
            r"must be float32 as the model's weights, got float64; cast .*'float32'",
        ),
        (images("float16"), "must be float32 as the model's weights, got float16"),
        (images(shape=(0, 3, 16, 16)), r"at least one image, got shape \[0, 3, 16, 16\]"),
        (images(shape=(2, 3, 16, 17)), r"must have shape \(B, 3, 16, 16\), got \[2, 3, 16, 17\]"),
        (images(shape=(3, 16, 16)), r"must have shape \(B, 3, 16, 16\), got \[3, 16, 16\]"),
        (np.zeros((2, 3, 16, 16), "float32"), r"must be a paddle.Tensor \(B, 3, 16, 16\), got nd"),
    ],
)
def test_what_an_image_model_refuses(name, given, message) -> None:
    model = create_model(name, 3, **IMAGE_MODELS[name])
    with pytest.raises(ValueError, match=message) as caught:
        model(given)
    assert "\n" not in str(caught.value)


def test_a_float32_image_for_a_float64_model(float64) -> None:
    model = create_model("deit_tiny", 3, **IMAGE_MODELS["deit_tiny"])
    with pytest.raises(ValueError, match="must be float64 as the model's weights, got float32"):
        model(images())
    assert model(images("float64")).dtype == paddle.float64


def test_the_published_token_embedding_refuses_them_too() -> None:
    embed = TokenEmbed({"type": "DenseNet"}, 16, embed_dim=8)
    with pytest.raises(ValueError, match="normalised, got int64"):
        embed(images("int64"))


def test_mixed_precision_may_mix_types_of_32_bits_and_less(monkeypatch) -> None:
    def check(given: str, own: paddle.dtype) -> None:
        check_images(images(given), in_chans=3, img_size=16, dtype=own)

    with pytest.raises(ValueError, match="must be float32"):
        check("bfloat16", paddle.float32)
    monkeypatch.setattr(inputs, "is_autocast_enabled", lambda: True)
    check("bfloat16", paddle.float32)
    check("float32", paddle.bfloat16)
    with pytest.raises(ValueError, match="must be float32"):
        check("float64", paddle.float32)


def test_a_traced_model_computes_the_same(tiny_bert) -> None:
    """A graph has no values to look at."""
    model = tiny_bert("bert_base", num_hidden_layers=1)
    model.eval()
    tensors = paddle.to_tensor(ids()), None, paddle.to_tensor(mask())
    expected = model(*tensors)
    traced = paddle.jit.to_static(model, full_graph=True)
    with warnings.catch_warnings():  # 2026-11-22, paddle 3.3.1: its own ones_like asks for a place
        warnings.simplefilter("ignore")
        found = traced(*tensors)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-6)
