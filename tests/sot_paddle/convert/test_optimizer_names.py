"""The order of registration that the tables tell is that of the models themselves."""

import pytest

import sot_torch_ref  # isort: skip (declares the operators that timm and transformers import)
import timm
import transformers

from sot_paddle.convert import build_plan
from sot_paddle.convert.optimizer.optimizer_names import registration_order

SIZES = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 11,  # two digits: numbers are sorted as numbers
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
}


def bert():
    config = transformers.BertConfig(**SIZES, num_labels=3)
    return transformers.BertForSequenceClassification(config)


def reference(name: str, **options):
    text = SIZES if name.startswith("bert") else {}
    return sot_torch_ref.create_model(name, 3, **text, **options)


MODELS = {
    ("bert_hf", "bert_base"): bert,
    ("deit_timm", "deit_tiny"): lambda: timm.create_model("deit_tiny_patch16_224"),
    ("swin_timm", "swin_tiny"): lambda: timm.create_model("swin_tiny_patch4_window7_224"),
    ("sot_torch_ref", "bert_base"): lambda: reference("bert_base"),
    ("sot_torch_ref", "bert_base_mgcrp"): lambda: reference("bert_base_mgcrp", q_dim=5, k_dim=4),
    ("sot_torch_ref", "sot_tiny"): lambda: reference("sot_tiny", dense_norm="bn"),
    ("sot_torch_ref", "deit_tiny_sot"): lambda: reference("deit_tiny_sot"),
    ("sot_torch_ref", "swin_tiny_sot"): lambda: reference("swin_tiny_sot"),
}


@pytest.mark.parametrize(("layout", "name"), list(MODELS))
def test_the_order_is_that_of_the_model(layout, name):
    model = MODELS[layout, name]()
    shapes = {n: tuple(t.shape) for n, t in model.state_dict().items()}
    expected = [n for n, _ in model.named_parameters()]
    for held in (shapes, dict(sorted(shapes.items()))):  # safetensors sorts
        order = registration_order(build_plan(layout, name, held))
        assert [n for n in order if n != "pos_embed" or n in expected] == expected


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("sot_nlp_official_small", "bert_base_mgcrp"),
        ("sot_official_tiny", "sot_tiny"),
        ("sot_official_base", "sot_base"),
    ],
)
def test_the_order_is_that_of_the_original_release(published_state, file, name):
    content = published_state(file)
    tensors = content["tensors"]
    shapes = {one["name"]: tuple(one["shape"]) for one in sorted(tensors, key=lambda t: t["name"])}
    plan = build_plan(content["layout"], name, shapes)
    assert registration_order(plan) == [t["name"] for t in tensors if "param" in t["role"]]
