"""BERT with convolutions: without any it is transformers' BERT; its scores by loops over tokens."""

from __future__ import annotations

import itertools

import pytest
import torch

from sot_torch_ref import create_model
from sot_torch_ref.backbones.conv_bert import ConvEncoderConfig, SelfAttention

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 10,
    "pad_token_id": 0,
}
IDS = torch.tensor([[5, 7, 9, 2, 0, 0], [6, 8, 2, 4, 3, 0]])
MASK = (IDS != 0).long()
NAMES = (
    ("encoder.layer", "layers"),
    ("attention.self.query", "self_attn.query.linear"),
    ("attention.self.key", "self_attn.key.linear"),
    ("attention.self.value", "self_attn.value.linear"),
    ("attention.output.dense", "self_attn.out"),
    ("attention.output.LayerNorm", "attention_LayerNorm"),
    ("intermediate.dense", "linear1"),
    ("output.dense", "linear2"),
    ("output.LayerNorm", "output_LayerNorm"),
)


def test_without_convolutions_it_is_bert():
    bert = create_model("bert_base", **SIZES).eval()
    model = create_model("conv_bert_base", embedding_size=12, **SIZES).eval()
    state = {}
    for name, tensor in bert.state_dict().items():
        for theirs, ours in NAMES:
            name = name.replace(theirs, ours)
        state[name.replace("bert.", "conv_bert.", 1)] = tensor
    model.load_state_dict({n: a for n, a in state.items() if "position_ids" not in n})
    types = torch.tensor([[0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]])
    with torch.no_grad():
        torch.testing.assert_close(model(IDS, types, MASK), bert(IDS, types, MASK))
        torch.testing.assert_close(model(IDS), bert(IDS))


def test_scores_by_hand():
    config = ConvEncoderConfig(**SIZES, attention_kernel="qk_convfixed_convq_convk 2")
    layer = SelfAttention(config).double()
    torch.nn.init.normal_(layer.convfixed)
    query, key = torch.randn(2, 1, 6, 12, dtype=torch.float64)
    scores = layer.scores(query, key)
    q, k = query.view(6, 4, 3), key.view(6, 4, 3)
    for h, i, j in itertools.product(range(4), range(6), range(6)):
        ahead, back = max(-2, min(2, j - i)) + 2, max(-2, min(2, i - j)) + 2
        dots = q[i, h] @ k[j, h] + q[i, h] @ layer.convq[:, ahead] + k[j, h] @ layer.convk[:, back]
        expected = dots / 3**0.5 + layer.convfixed[0, h, 0, ahead]
        torch.testing.assert_close(scores[0, h, i, j], expected)


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        ("dot_product", {"query", "key"}),
        ("convfixed 2", set()),
        ("convq 2", {"query"}),
        ("convk 2", {"key"}),
        ("convolution 2", {"query", "key"}),
    ],
)
def test_unused_projections_are_not_made(kernel, names):
    layer = SelfAttention(ConvEncoderConfig(**SIZES, attention_kernel=kernel))
    assert {name for name in ("query", "key") if hasattr(layer, name)} == names
