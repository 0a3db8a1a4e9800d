"""What a plan refuses, by name: tensors, shapes, heads, models, layouts, directions."""

import re

import pytest

from sot_paddle.convert import build_plan
from sot_paddle.convert.engine.registry import recognise
from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.sot_paddle.convert.test_build import model_for

LAYER, STAGE = "bert.encoder.layer.", "visual_tokens.tokens.stage."
UNFIT = [
    ("bert_hf", "bert.surprise", (3,), "unmapped: {}"),
    ("bert_hf", f"{LAYER}1.output.dense.bias", None, "missing: {}"),
    ("bert_hf", f"{LAYER}7.output.dense.bias", (12,), f"missing: {LAYER}2."),
    ("bert_hf", f"{LAYER}999.output.dense.bias", (12,), "1000 encoder layers expected"),
    ("bert_hf", f"{LAYER}01.output.dense.bias", (12,), "unmapped: {}"),
    ("bert_hf", "embeddings.LayerNorm.bias", (12,), "unmapped: {}"),
    ("bert_hf", f"{LAYER}0.output.dense.weight", (20, 12), "{} (expected (12, 20), got (20, 12)"),
    ("bert_hf", "bert.embeddings.LayerNorm.bias", (12, 1), "wrong shape: {}"),
    ("bert_hf", "classifier.weight", (4, 13), "{} (expected ("),
    ("sot_nlp_official", "bert.pooler.visual_fc.weight", (5, 29), "{} (expected (5, 28), got (5,"),
    ("sot_official", "visual_tokens.surprise", (3,), "unmapped: {}"),
    ("sot_official", "pos_embed", (1, 10, 13), "{} (expected (1, "),
    ("sot_official", f"{STAGE}2.denselayer6.conv1.weight", None, "missing: {}"),
    ("sot_official", f"{STAGE}2.denselayer7.conv1.weight", (32, 224, 1, 1), "unmapped: {}"),
    (
        *("sot_official", f"{STAGE}0.denselayer2.conv1.weight", (32, 81, 1, 1)),
        "{} (expected (32, 80, 1, 1), got (32, 81, 1, 1)",
    ),
    (
        *("sot_official", f"{STAGE}0.denselayer1.norm1.weight", (64,)),
        f"missing: {STAGE}0.denselayer1.norm1.bias",
    ),
    ("deit_timm", "blocks.1.attn.qkv.bias", None, "missing: {}"),
    ("deit_timm", "dist_token", (1, 1, 12), "unmapped: {}"),
    ("deit_timm", "blocks.0.attn.qkv.weight", (12, 36), "{} (expected (36, 12), got (12, 36))"),
    ("deit_official", "norm.bias", None, "missing: {}"),  # and no word of deit_timm: it has it too
    ("swin_timm", "patch_embed.norm.bias", None, "missing: {}"),
    (
        *("swin_timm", "layers.1.blocks.1.attn.relative_position_bias_table", (49, 3)),
        "{} (expected (25, 3), got (49, 3)",
    ),
    ("swin_timm", "layers.3.blocks.0.norm1.bias", (96,), "missing: layers.2.blocks.0.norm1.weight"),
    ("swin_timm", "layers.999999999.blocks.0.norm1.bias", (9,), "1000000000 enc"),
]


@pytest.mark.parametrize(("layout", "name", "shape", "message"), UNFIT)
def test_what_does_not_fit_is_refused_by_name(layout, name, shape, message):
    shapes = {**tiny.LAYOUTS[layout](), name: shape}
    shapes = {name: shape for name, shape in shapes.items() if shape is not None}
    with pytest.raises(ValueError, match=re.escape(message.format(name))) as caught:
        build_plan(layout, tiny.MODELS[layout], shapes)
    assert "names of --layout" not in str(caught.value)


def test_config_sizes_are_held_against_the_tensors(hf_shapes, hf_config):
    assert build_plan("bert_hf", "bert_base", hf_shapes(), config=hf_config).sizes["V"] == 23
    with pytest.raises(ValueError, match="word_embeddings.weight .expected .24, 12.*config.json"):
        build_plan("bert_hf", "bert_base", hf_shapes(), config={**hf_config, "vocab_size": 24})
    with pytest.raises(ValueError, match="missing: bert.encoder.layer.2"):
        build_plan("bert_hf", "bert_base", hf_shapes(), config={"num_hidden_layers": 3})
    with pytest.raises(ValueError, match="unmapped: bert.encoder.layer.1"):
        build_plan("bert_hf", "bert_base", hf_shapes(), config={"num_hidden_layers": 1})


@pytest.mark.parametrize(
    ("layout", "model", "head", "reverse", "message"),
    [
        ("sot_torch_ref", "bert_base", "mgcrp_qk", False, "head is 'mgcrp_qk', but model 'bert_b"),
        ("sot_torch_ref", "bert_base_mgcrp", "pooler", False, "--model bert_base or bert_large"),
        ("sot_nlp_official", "bert_base", "mgcrp_qk", False, "holds mgcrp_qk, gcp_text: choose"),
        ("bert_hf", "bert_base", "mgcrp", True, "head is 'mgcrp', but model 'bert_base' has"),
        ("bert_hf", "bert_base_mgcrp", "mgcrp_qk", True, "unmapped: head.pooling.q_proj.weight"),
        ("sot_nlp_official", "bert_base_mgcrp", "gcp", True, "'gcp'; this layout holds mgcrp_qk"),
    ],
)
def test_a_head_that_cannot_be_is_refused(ref_shapes, layout, model, head, reverse, message):
    shapes = ref_shapes(head)
    if reverse:
        shapes = build_plan("sot_torch_ref", model_for(head), shapes).destination_shapes
    with pytest.raises(ValueError, match=re.escape(message)):
        build_plan(layout, model, shapes, reverse=reverse)


def test_a_tensor_of_a_head_without_a_row_is_named_alone(ref_shapes):
    """Names of the encoder and of the head begin otherwise, as they should."""
    shapes = {**ref_shapes("gap"), "head.pooling.power": (5,)}
    with pytest.raises(ValueError, match=r"unmapped: head\.pooling\.power$"):
        build_plan("sot_torch_ref", "bert_base_mgcrp", shapes)


def test_two_heads_in_one_file_are_refused(ref_shapes):
    shapes = {**ref_shapes("mgcrp"), **ref_shapes("gcp")}
    with pytest.raises(ValueError, match="two heads: mgcrp and gcp"):
        build_plan("sot_torch_ref", "bert_base_mgcrp", shapes)


@pytest.mark.parametrize(
    ("asked", "model", "file"),
    [
        ("bert_hf", "bert_base", "sot_nlp_official"),
        ("swin_timm", "swin_tiny", "swin_microsoft"),
        ("sot_torch_ref", "sot_tiny", "sot_official"),
        ("bert_hf", "bert_base", "deit_timm"),
    ],
)
def test_a_wrong_layout_is_hinted_at(asked, model, file):
    with pytest.raises(ValueError, match=f"these are names of --layout {file}"):
        build_plan(asked, model, tiny.LAYOUTS[file]())


def test_the_wrong_direction_is_hinted_at(toy, hf_shapes):
    with pytest.raises(ValueError, match="PyTorch names of layout bert_hf: drop --reverse"):
        build_plan("bert_hf", "bert_base", hf_shapes(""), reverse=True)
    with pytest.raises(ValueError, match="these are Paddle names: add --reverse"):
        build_plan("bert_hf", "bert_base", toy("bert_hf").shapes)
    ours = toy("sot_official").shapes  # both sides have the same names
    theirs = build_plan("sot_torch_ref", "sot_tiny", ours, reverse=True).destination_shapes
    assert recognise(ours) == ("sot_torch_ref", "paddle")
    assert recognise(theirs) == ("sot_torch_ref", "torch")
    with pytest.raises(ValueError, match="wrong shape: .*these are Paddle names: add --reverse"):
        build_plan("sot_torch_ref", "sot_tiny", ours)
    with pytest.raises(ValueError, match="wrong shape: .*drop --reverse"):
        build_plan("sot_torch_ref", "sot_tiny", theirs, reverse=True)


@pytest.mark.parametrize(
    ("layout", "model", "message"),
    [
        ("deit_timm", "sot_tiny", "layout 'deit_timm' is for deit_tiny, deit_small, .* 'sot_tiny'"),
        ("deit_timm", "bert_base", "not for 'bert_base'; its layouts are bert_hf, sot_nlp"),
        ("bert_hf", "swin_tiny", "its layouts are sot_torch_ref, swin_timm, swin_microsoft"),
        ("sot_official", "sot_huge", "unknown model 'sot_huge'; expected one of bert_base"),
        ("hf", "bert_base", "unknown layout 'hf'; expected one of bert_hf, rob"),
        ("bert_hf", "bert_base", "missing: embeddings.word_embeddings.weight"),
    ],
)
def test_a_layout_is_for_some_models_only_and_a_file_is_not_empty(layout, model, message):
    with pytest.raises(ValueError, match=message):
        build_plan(layout, model, {})


def test_a_file_without_a_layer_is_refused(hf_shapes):
    shapes = {name: shape for name, shape in hf_shapes().items() if ".layer." not in name}
    with pytest.raises(ValueError, match="holds no encoder layer"):
        build_plan("bert_hf", "bert_base", shapes)
