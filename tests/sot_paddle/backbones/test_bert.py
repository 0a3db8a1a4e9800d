"""BERT: corrections to paddlenlp's encoder, masks, and independence of padding.

Every layer is compared with transformers' by the cases bert_plain and bert_plain_eval.

Dims: B 3, S 6, C 12, 3 attention heads, 2 layers, 30 token ids, 16 positions.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.backbones.text import ACTIVATION_FUNCTIONS
from sot_paddle.config import ACTIVATIONS

B, S, PAD = 3, 6, 0
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
    *((pooling, "aggre_all") for pooling in ("mgcrp", "mgcrp_qk", "gap", "gcp", "gcp_text")),
    ("mgcrp", "concat"),
    ("mgcrp_qk", "sum_loss"),
    ("gcp", "word_tokens"),
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
    for other in (logits_and_gradients(model, 11, train), logits_and_gradients(model, 9, train)):
        assert set(other) == set(short)
        for name, array in short.items():
            scale = max(1.0, np.abs(array).max())
            np.testing.assert_allclose(
                other[name] / scale, array / scale, rtol=0, atol=1e-11, err_msg=name
            )
    # what stands at the padded places does not matter either
    wild = logits_and_gradients(model, 9, train, filler=5)
    np.testing.assert_allclose(wild["logits"], short["logits"], rtol=0, atol=1e-11)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("pooling", ["mgcrp", "mgcrp_qk", "gap", "gcp", "gcp_text"])
def test_quirk_published_heads_depend_on_padding(float64, tiny_bert, pooling, train) -> None:
    model = tiny_bert(pooling=pooling)
    widen(model)
    short, long = (logits_and_gradients(model, length, train)["logits"] for length in (6, 11))
    assert np.abs(short - long).max() > 1e-4


def test_every_named_activation_has_a_function() -> None:
    assert tuple(ACTIVATION_FUNCTIONS) == ACTIVATIONS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": [B, 17]}, r"between 1 and 16 tokens, .*\[3, 17\]"),
        ({"input_ids": [B, 0]}, r"between 1 and .*got shape \[3, 0\]"),
        ({"input_ids": [B, 1]}, r"pools words and got none: tokens of shape \[3, 0, 12\]; pass"),
        ({"input_ids": [0, S]}, r"at least one sequence, got shape \[0, 6\]; leave an empty"),
        ({"input_ids": [S]}, r"must be \(B, S\) .*got shape \[6\]"),
        ({"attention_mask": [B, 1]}, r"attention_mask must have the shape .*\[3, 6\], got \[3, 1"),
        ({"attention_mask": [B, 5]}, "attention_mask must have the shape of input_ids"),
        ({"attention_mask": [1, S]}, "attention_mask must have the shape of input_ids"),
        ({"token_type_ids": [B, 1]}, "token_type_ids must have the shape of input_ids"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(tiny_bert, changes: dict, message: str) -> None:
    inputs = {} if "input_ids" in changes else batch()
    inputs |= {name: paddle.ones(shape, dtype="int64") for name, shape in changes.items()}
    with pytest.raises(ValueError, match=message):
        tiny_bert()(**inputs)
