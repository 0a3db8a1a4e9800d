"""BERT with convolutions: without any it is transformers' BERT.

Its kernels are those of the cases conv_bert_*; the product's layer is held by loops over tokens.
"""

from __future__ import annotations

import torch

from sot_torch_ref import create_model

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
