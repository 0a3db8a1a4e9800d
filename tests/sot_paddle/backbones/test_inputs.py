"""Inputs that a model takes and refuses; BERT's masks, and independence of padding.

Dims: B 3, S 6, C 12, 2 layers, 30 token ids, 2 types, 16 positions; images (2, 3, 16, 16).
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import create_model
from sot_paddle.backbones import inputs
from sot_paddle.backbones.inputs import check_images

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


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "int64")


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": ids().astype("float32")}, "input_ids must be int64 or int32, got float32"),
        ({"token_type_ids": with_value(0 * ids(), 2)}, "type_vocab_size - 1 = 1, got .* 0 to 2;"),
        ({"attention_mask": with_value(mask(), 2)}, "got values from 0 to 2; pass 1 for every"),
        ({"input_ids": ones(B, 17)}, r"between 1 and 16 tokens, .*\[3, 17\]"),
        ({"input_ids": ones(B, 1)}, r"pools words and got none: .*shape \[3, 0, 12\]; pass"),
        ({"input_ids": ones(S)}, r"must be \(B, S\), .*got shape \[6\]"),
        ({"attention_mask": ones(B, 1)}, r"must have the shape .*\[3, 6\], got \[3, 1"),
        ({"token_type_ids": ones(B, 1)}, "token_type_ids must have the shape of input_ids"),
        ({"input_ids": with_value(ids(), -1)}, "0 to vocab_size - 1 = 29, got .* the tokenizer"),
        ({"input_ids": with_value(ids(), 30)}, "0 to vocab_size - 1 = 29, got .* the tokenizer"),
        ({"attention_mask": with_value(1.0 * mask(), 0.5)}, "must hold 1 .valid. and 0 .padding."),
        ({"attention_mask": with_value(1.0 * mask(), np.nan)}, "must hold 1 .valid. and 0 .pad"),
        ({"attention_mask": additive(-1e4)}, "that is an additive mask, .* pass the mask it was"),
        ({"attention_mask": additive(-np.inf)}, "that is an additive mask, .* pass the mask it"),
    ],
)
def test_what_a_text_model_refuses(tiny_bert, train, changes, message) -> None:
    model = tiny_bert()
    model.train() if train else model.eval()
    arrays = {"input_ids": ids(), **changes}
    with pytest.raises(ValueError, match=message) as caught:
        model(**{key: paddle.to_tensor(value) for key, value in arrays.items()})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_masks_of_zeros_and_ones_of_any_type_are_one_mask(tiny_bert, dtype) -> None:
    model = tiny_bert(mask_padding=True)
    model.eval()
    scores = [
        model(paddle.to_tensor(ids()), attention_mask=paddle.to_tensor(mask().astype(kind)))
        for kind in ("int64", dtype)
    ]
    np.testing.assert_array_equal(scores[0].numpy(), scores[1].numpy())


def images(dtype: str = "float32", shape=(2, 3, 16, 16)) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(2).normal(size=shape)).astype(dtype)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (images("int64"), "must be normalised and float32 as the .* weights, got int64; .* 255"),
        (images("float64"), "float32 as the model's weights, got float64; cast .*'float32'"),
        (images(shape=(0, 3, 16, 16)), r"B at least 1, got \[0, 3, 16, 16\]"),
        (images(shape=(2, 3, 16, 17)), r"shape \(B, 3, 16, 16\), B at .*, got \[2, 3, 16, 17\]"),
        (np.zeros((2, 3, 16, 16), "float32"), r"must be a paddle.Tensor \(B, 3, 16, 16\), got nd"),
    ],
)
def test_what_an_image_model_refuses(given, message) -> None:
    for name, options in IMAGE_MODELS.items():
        with pytest.raises(ValueError, match=message) as caught:
            create_model(name, 3, **options)(given)
        assert "\n" not in str(caught.value)


def test_mixed_precision_may_mix_types_of_32_bits_and_less(monkeypatch) -> None:
    def check(given: str, own: paddle.dtype) -> None:
        check_images(images(given), in_chans=3, img_size=16, dtype=own)

    check("float64", paddle.float64)
    for given, own in (("bfloat16", paddle.float32), ("float32", paddle.float64)):
        with pytest.raises(ValueError, match=f"and {str(own).removeprefix('paddle.')}"):
            check(given, own)
    monkeypatch.setattr(inputs, "is_autocast_enabled", lambda: True)
    check("bfloat16", paddle.float32)
    check("float32", paddle.bfloat16)
    with pytest.raises(ValueError, match="and float32"):
        check("float64", paddle.float32)


PAD = 0
LENGTHS = (6, 3, 4)


def batch(length: int = S, *, filler: int = PAD, seed: int = 3) -> dict[str, paddle.Tensor]:
    """Three sequences of 6, 3 and 4 tokens, padded to ``length``."""
    rng = np.random.default_rng(seed)
    ids = np.full((B, length), filler)
    types, mask = np.zeros((B, length), "int64"), np.zeros((B, length), "int64")
    for row, count in enumerate(LENGTHS):
        ids[row, :count] = rng.integers(1, 30, count)
        types[row, count // 2 : count] = 1
        mask[row, :count] = 1
    arrays = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


@paddle.no_grad()
def widen(model) -> None:
    """Weights of unit scale, so that every part of the encoder shows in the output."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            paddle.assign(parameter * 10.0, output=parameter)
        elif name.endswith("bias"):
            paddle.assign(parameter + 0.1 * paddle.randn(parameter.shape), output=parameter)


def loss_of(logits) -> paddle.Tensor:
    parts = logits if isinstance(logits, tuple) else (logits,)
    return sum((part**2 * paddle.arange(1, 4).astype(part.dtype)).sum() for part in parts)


PADDED_CASES = [
    *((pooling, "sum_fc") for pooling in ("mgcrp", "mgcrp_qk", "gap", "gcp", "gcp_text")),
    ("gap", "aggre_all"),
    ("mgcrp", "concat"),
    ("mgcrp_qk", "sum_loss"),
]


def logits_and_gradients(model, length: int, train: bool, **options) -> dict[str, np.ndarray]:
    model.train() if train else model.eval()
    for parameter in model.parameters():
        parameter.clear_gradient(False)  # by position: Paddle ignores the keyword
    statistics = {n: b.numpy() for n, b in model.named_buffers()}
    logits, taps = model(**batch(length, **options), return_taps=True)
    loss_of(logits).backward()
    found = {"logits": taps["logits"].numpy()}
    found |= {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    found |= {n: b.numpy() for n, b in model.named_buffers()}
    for name, buffer in model.named_buffers():
        paddle.assign(paddle.to_tensor(statistics[name]), output=buffer)
    return found


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("pooling", "fusion"), PADDED_CASES)
def test_mask_padding_makes_results_independent_of_padding(
    float64, tiny_bert, pooling: str, fusion: str, train: bool
) -> None:
    model = tiny_bert(pooling=pooling, fusion=fusion, mask_padding=True)
    widen(model)
    short = logits_and_gradients(model, 6, train)
    assert len(short) > 30
    other = logits_and_gradients(model, 11, train)
    assert set(other) == set(short)
    for name, array in short.items():
        scale = max(1.0, np.abs(array).max())
        np.testing.assert_allclose(
            other[name] / scale, array / scale, rtol=0, atol=1e-11, err_msg=name
        )
    # what stands at the padded places does not matter either
    wild = logits_and_gradients(model, 9, train, filler=5)
    np.testing.assert_allclose(wild["logits"], short["logits"], rtol=0, atol=1e-11)


@pytest.mark.parametrize("pooling", ["mgcrp", "mgcrp_qk", "gap", "gcp", "gcp_text"])
def test_quirk_published_heads_depend_on_padding(float64, tiny_bert, pooling) -> None:
    model = tiny_bert(pooling=pooling)
    widen(model)
    short, long = (logits_and_gradients(model, length, True)["logits"] for length in (6, 11))
    assert np.abs(short - long).max() > 1e-4
