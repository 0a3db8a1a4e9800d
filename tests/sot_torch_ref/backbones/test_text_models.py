"""RoBERTa and GPT: refusals.

Their plain heads are those of the cases roberta_plain and gpt_plain; a trained folder of the
product scores as transformers' own classifiers do: tests/sot_paddle/train/test_text_backbones.py.
"""

from __future__ import annotations

import pytest
import torch

from sot_torch_ref import create_model

SIZES = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "vocab_size": 30,
    "max_position_embeddings": 12,
}


def test_refusals():
    with pytest.raises(ValueError, match="with S from 1 to 10"):
        create_model("roberta_base", intermediate_size=20, **SIZES)(torch.ones(1, 11).long())
    with pytest.raises(ValueError, match="hidden_act must be one of"):
        create_model("openai_gpt", intermediate_size=48, hidden_act="gelu", **SIZES)
    with pytest.raises(ValueError, match="intermediate_size 4"):
        create_model("openai_gpt", intermediate_size=20, **SIZES)
