"""RoBERTa and GPT against transformers' own classifiers, and the tokens of GPT by hand."""

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
IDS = torch.tensor([[0, 7, 9, 2, 1], [0, 8, 2, 1, 1]])
MASK = (IDS != 1).long()


def test_the_plain_head_of_roberta_is_transformers():
    import transformers

    model = create_model("roberta_base", 3, intermediate_size=20, **SIZES).eval()
    config = transformers.RobertaConfig(
        **SIZES, intermediate_size=20, type_vocab_size=1, layer_norm_eps=1e-5, num_labels=3
    )
    theirs = transformers.RobertaForSequenceClassification(config).eval()
    theirs.roberta.load_state_dict(model.roberta.state_dict())
    names = {"dense": "dense", "cls_fc": "out_proj"}
    for ours, name in names.items():
        getattr(theirs.classifier, name).load_state_dict(getattr(model.head, ours).state_dict())
    with torch.no_grad():
        found, expected = model(IDS, attention_mask=MASK), theirs(IDS, attention_mask=MASK).logits
    torch.testing.assert_close(found, expected)


def test_the_plain_head_of_gpt_is_transformers():
    import transformers

    model = create_model("openai_gpt", 3, intermediate_size=48, **SIZES).eval()
    config = transformers.OpenAIGPTConfig(
        **{"n_embd": 12, "n_layer": 2, "n_head": 3, "vocab_size": 30, "n_positions": 12},
        num_labels=3,
        pad_token_id=1,
    )
    theirs = transformers.OpenAIGPTForSequenceClassification(config).eval()
    theirs.transformer.load_state_dict(model.gpt.state_dict())
    theirs.score.load_state_dict(model.head.cls_fc.state_dict())
    with torch.no_grad():
        found, expected = model(IDS, attention_mask=MASK), theirs(IDS, attention_mask=MASK).logits
    torch.testing.assert_close(found, expected)


def test_the_tokens_of_gpt():
    model = create_model("openai_gpt", intermediate_size=48, **SIZES)
    states = torch.arange(2 * 4 * 3.0).reshape(2, 4, 3)
    features = model.split(states, torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]]))
    torch.testing.assert_close(features.cls, torch.stack([states[0, 2], states[1, 0]]))
    torch.testing.assert_close(features.words[0], states[0, [0, 1, 3]])
    torch.testing.assert_close(features.words[1], states[1, 1:])
    assert features.mask.tolist() == [[True, True, False], [False, False, False]]
    assert model.split(states, None).mask is None


def test_refusals():
    with pytest.raises(ValueError, match="with S from 1 to 10"):
        create_model("roberta_base", intermediate_size=20, **SIZES)(torch.ones(1, 11).long())
    with pytest.raises(ValueError, match="hidden_act must be one of"):
        create_model("openai_gpt", intermediate_size=48, hidden_act="gelu", **SIZES)
    with pytest.raises(ValueError, match="intermediate_size 4"):
        create_model("openai_gpt", intermediate_size=20, **SIZES)
