"""BERT with heads at toy size: refusals.

Dims: B 2, S 7, C 12, L 2, heads 3, MLP 20, vocabulary 31, K 3."""

import pytest
import torch
from torch import nn

from sot_torch_ref import create_model

B, S, C, LAYERS, K = 2, 7, 12, 2, 3
TINY = {
    "vocab_size": 31,
    "hidden_size": C,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.0,
    "q_dim": 6,
    "k_dim": 5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "qkv_dim": 5,
    "initializer_range": 0.3,
}

pytestmark = pytest.mark.usefixtures("float64")


def tiny(name: str = "bert_base_mgcrp", **keys: object) -> nn.Module:
    return create_model(name, num_classes=K, **{**TINY, **keys})


def batch(length: int = S) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two sentences of 6 and 4 tokens, padded with zeros to ``length``."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 31, (B, 6), generator=generator)
    types = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    pad = (0, length - 6)
    return tuple(nn.functional.pad(value, pad) for value in (ids * mask, types, mask))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hidden_size": 13}, "multiple of num_attention_heads, got 13 and 3"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer"),
        ({"hidden_act": "swish"}, "hidden_act must be one of"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps must be a number above 0"),
        ({"hidden_dropout_prob": -0.1}, "hidden_dropout_prob must be a number in"),
        ({"attention_probs_dropout_prob": 1}, "attention_probs_dropout_prob must be a number in"),
        ({"pad_token_id": 31}, "pad_token_id must be an integer from 0 to 30, got 31"),
        ({"pad_token_id": None}, "pad_token_id must be an integer"),
        ({"freeze_encoder": "no"}, "freeze_encoder must be True or False"),
        ({"initializer_range": 0}, "initializer_range must be a number above 0"),
    ],
)
def test_configuration_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**keys)


def test_input_refusals() -> None:
    model = tiny()
    ids, types, mask = batch()
    with pytest.raises(ValueError, match="S from 1 to 16"):
        model(torch.ones(B, 17, dtype=torch.long))
    with pytest.raises(ValueError, match="input_ids must have shape"):
        model(ids[0])
    with pytest.raises(ValueError, match="attention_mask must have the shape of input_ids"):
        model(ids, types, mask[:, 1:])
    with pytest.raises(ValueError, match="token_type_ids must have the shape"):
        model(ids, types[:1])
    for pooling in ("mgcrp_qk", "mgcrp", "gap"):
        with pytest.raises(ValueError, match="at least one word token"):
            tiny(pooling=pooling)(ids[:, :1])
