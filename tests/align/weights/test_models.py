"""The tables against the models themselves: names, shapes and nothing left over on either side."""

import pytest

from align.weights import build_plan

TINY = {
    "num_classes": 5,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 23,
    "max_position_embeddings": 9,
    "q_dim": 7,
    "k_dim": 4,
    "head_num_heads": 2,
    "wr_dim": 4,
    "qkv_dim": 3,
}
HEADS = [
    ("bert_base", {}),
    ("bert_large", {"pooling": "gap"}),
    ("bert_base", {"pooling": "fc"}),
    ("bert_base", {"pooling": "layers", "layers": (1, 0)}),
    ("bert_base", {"pooling": "layers", "layer_pooling": "max"}),
    ("bert_base_mgcrp", {}),
    ("bert_large_mgcrp", {"fusion": "concat"}),
    ("bert_base_mgcrp", {"fusion": "word_tokens", "normalization": "epn"}),
    ("bert_base_mgcrp", {"pooling": "gcp"}),
    ("bert_base_mgcrp", {"pooling": "gcp_text"}),
    ("bert_base_mgcrp", {"pooling": "gcp_text", "normalization": "svpn", "vec": "triu"}),
    ("bert_base_mgcrp", {"pooling": "mgcrp", "vec": "triu"}),
    ("bert_base_mgcrp", {"pooling": "mgcrp", "qkv_bias": True}),
    ("bert_base_mgcrp", {"pooling": "mgcrp", "normalization": "ln", "fusion": "sum_loss"}),
    ("bert_base_mgcrp", {"pooling": "mgcrp", "normalization": "sqrt_t", "fusion": "aggre_all"}),
]

VIT = {
    "num_classes": 5,
    "img_size": 32,
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 3,
    "head_num_heads": 2,
    "wr_dim": 4,
}
SWIN = {
    "num_classes": 5,
    "img_size": 32,
    "embed_dim": 12,
    "depths": (1, 2, 1),
    "num_heads": (1, 2, 3),
    "window_size": 4,
    "head_num_heads": 2,
    "wr_dim": 4,
}
IMAGES = [
    ("sot_tiny", {**VIT}),
    ("sot_small", {**VIT, "dense_norm": "bn", "qkv_bias": True}),
    ("sot_base", {**VIT, "token_type": "resnet", "token_dim": 16}),
    ("sot_tiny", {**VIT, "token_type": "resnet", "img_size": 224}),
    ("sot_tiny", {**VIT, "token_type": "inception", "pooling": "gcp"}),
    ("sot_tiny", {**VIT, "token_type": "nonlocal", "pooling": "mgcrp_qk", "q_dim": 7, "k_dim": 4}),
    ("sot_tiny", {**VIT, "token_type": "linear", "normalization": "ln"}),
    ("sot_tiny", {**VIT, "pooling": "none"}),
    ("sot_tiny", {**VIT, "pooling": "fc"}),
    ("deit_tiny", {**VIT}),
    ("deit_small", {**VIT, "pooling": "gap"}),
    ("deit_base", {**VIT, "pooling": "pooler"}),
    ("deit_tiny_sot", {**VIT}),
    ("swin_tiny", {**SWIN}),
    ("swin_base", {**SWIN, "patch_norm": False, "qkv_bias": False}),
    ("swin_tiny", {**SWIN, "pooling": "mgcrp_qk"}),
    ("swin_tiny_sot", {**SWIN}),
    ("swin_base_sot", {**SWIN, "pooling": "gcp"}),
]


@pytest.mark.parametrize(
    ("model", "options"), [*((name, {**TINY, **head}) for name, head in HEADS), *IMAGES], ids=str
)
def test_reference_and_port_have_the_names_and_shapes_of_the_table(model, options):
    theirs = pytest.importorskip("sot_torch_ref").create_model(model, **options)
    ours = pytest.importorskip("sot_paddle").create_model(model, **options)
    theirs, ours = theirs.state_dict(), ours.state_dict()
    torch_shapes = {name: tuple(tensor.shape) for name, tensor in theirs.items()}
    paddle_shapes = {name: tuple(tensor.shape) for name, tensor in ours.items()}
    plan = build_plan("sot_torch_ref", model, torch_shapes)
    assert plan.destination_shapes == paddle_shapes
    back = build_plan("sot_torch_ref", model, paddle_shapes, reverse=True)
    written = back.destination_shapes
    assert written | dict.fromkeys(back.counters, ()) == torch_shapes
