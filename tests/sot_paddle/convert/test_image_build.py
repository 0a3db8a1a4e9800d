"""Plans of image models: every layout's names, bijection, options, and every refusal by name."""

import re

import numpy as np
import pytest

from sot_paddle.convert import TABLES, build_plan
from sot_paddle.convert.engine.known_models import MODELS, registry_name
from sot_paddle.convert.engine.registry import find_table, recognise
from tests.sot_paddle.convert.converted import CONSTANTS, assert_comes_back

CASES = [
    ("sot_official", "sot_tiny", {}),
    ("sot_official", "sot_base", {"dense_norm": True}),
    ("deit_timm", "deit_tiny", {}),
    ("deit_official", "deit_small", {}),
    ("swin_timm", "swin_tiny", {}),
    ("swin_microsoft", "swin_base", {}),
]


@pytest.mark.parametrize(("layout", "model", "options"), CASES)
def test_there_and_back_is_the_identity(image_shapes, random_arrays, layout, model, options):
    shapes = image_shapes(layout, **options)
    arrays = random_arrays(shapes)
    plan = build_plan(layout, model, shapes)
    assert plan.absent == ()
    assert all(name.endswith((*CONSTANTS, "num_batches_tracked")) for name in plan.ignored)
    back = assert_comes_back(plan, layout, model, arrays)
    assert (back.head, back.embed, back.depths) == (plan.head, plan.embed, plan.depths)


@pytest.mark.parametrize("layout", ["swin_timm", "swin_microsoft"])
def test_the_depths_of_the_stages_are_found(image_shapes, layout):
    plan = build_plan(layout, "swin_tiny", image_shapes(layout))
    assert plan.depths == (1, 2)
    assert plan.depth == 3
    assert {plan.sizes[name] for name in ("H0", "H1")} == {2, 3}
    assert (plan.sizes["C0"], plan.sizes["C1"], plan.sizes["T0"]) == (12, 24, 25)


def test_values_and_layouts_of_named_tensors(image_shapes, random_arrays):
    arrays = random_arrays(image_shapes("sot_official"))
    made = build_plan("sot_official", "sot_tiny", image_shapes("sot_official")).apply(arrays)
    tokens = "visual_tokens.tokens."
    expected = {
        "embed.stem.conv.weight": arrays[f"{tokens}stem.0.weight"],
        "embed.blocks.2.layers.0.conv1.weight": arrays[f"{tokens}stage.2.denselayer1.conv1.weight"],
        "embed.blocks.4.layers.5.conv2.weight": arrays[f"{tokens}stage.4.denselayer6.conv2.weight"],
        "embed.blocks.3.norm.running_var": arrays[f"{tokens}stage.3.norm.running_var"],
        "embed.blocks.5.conv.weight": arrays[f"{tokens}stage.5.conv.weight"],
        "embed.proj.bias": arrays[f"{tokens}transition.bias"],
        "pos_embed": arrays["pos_embed"],
        "cls_token": arrays["cls_token"],
        "blocks.1.attn.qkv.weight": arrays["blocks.1.attn.qkv.weight"].T,
        "blocks.0.attn.proj.weight": arrays["blocks.0.attn.proj.weight"].T,  # square
        "blocks.0.mlp.fc2.weight": arrays["blocks.0.mlp.fc2.weight"].T,
        "head.pooling.wr.weight": arrays["classifier.representation.wr.weight"].T,
        "head.pooling.norm.weight": arrays["classifier.representation.norm.weight"],
        "head.word_fc.weight": arrays["classifier.visual_fc.weight"].T,
        "head.cls_fc.bias": arrays["classifier.cls_fc.bias"],
    }
    for name, value in expected.items():
        np.testing.assert_array_equal(made[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("layout", "model", "ignored", "absent"),
    [
        ("deit_official", "deit_tiny_sot", 4, ("embed.stem.conv.weight", "head.pooling.wr.weight")),
        ("swin_timm", "swin_tiny_sot", 6, ("embed.proj.weight", "head.word_fc.bias")),
    ],
)
def test_a_plain_checkpoint_gives_our_models_their_backbone(
    image_shapes, layout, model, ignored, absent
):
    shapes = image_shapes(layout)
    plan = build_plan(layout, model, shapes)
    assert len(plan.ignored) == ignored
    assert all(plan.ignored.values())
    assert (plan.embed, plan.head) == ("densenet", "mgcrp")
    assert set(absent) < set(plan.absent)
    assert all(name.startswith(("embed.", "head.")) for name in plan.absent)
    assert not any(e.destination.startswith(("embed.", "head.")) for e in plan.entries)
    assert ("head.cls_fc.weight" in plan.absent) == (model == "deit_tiny_sot")
    full = {**plan.destination_shapes, "head.pooling.wr.weight": (12, 16)}
    full |= {"embed.stem.conv.weight": (64, 3, 3, 3)}
    with pytest.raises(ValueError, match="unmapped: .*--encoder-only leaves it out"):
        build_plan(layout, model, full, reverse=True)


def test_encoder_only_leaves_head_and_tokens_out(image_shapes):
    plan = build_plan("sot_official", "sot_tiny", image_shapes("sot_official"))
    shapes = plan.destination_shapes
    with pytest.raises(ValueError, match="does not hold this"):
        build_plan("deit_timm", "deit_tiny_sot", shapes, reverse=True)
    made = build_plan("deit_timm", "deit_tiny_sot", shapes, reverse=True, encoder_only=True)
    deit = image_shapes("deit_timm")
    assert {entry.destination for entry in made.entries} < set(deit)
    outside = {name for name in shapes if name.startswith(("embed.", "head."))}
    assert set(made.ignored) == outside


STAGE = "visual_tokens.tokens.stage."
UNFIT = [
    ("sot_official", "visual_tokens.surprise", (3,), "unmapped: visual_tokens.surprise"),
    ("sot_official", "pos_embed", (1, 10, 13), "pos_embed (expected (1, "),
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
    ("swin_timm", "patch_embed.norm.bias", None, "missing: {}"),
    (
        *("swin_timm", "layers.1.blocks.1.attn.relative_position_bias_table", (49, 3)),
        "{} (expected (25, 3), got (49, 3)",
    ),
    ("swin_timm", "layers.3.blocks.0.norm1.bias", (96,), "missing: layers.2.blocks.0.norm1.weight"),
    ("swin_timm", "layers.999999999.blocks.0.norm1.bias", (9,), "1000000000 enc"),
]


@pytest.mark.parametrize(("layout", "name", "shape", "message"), UNFIT)
def test_what_does_not_fit_is_refused_by_name(image_shapes, layout, name, shape, message):
    shapes = {**image_shapes(layout), name: shape}
    shapes = {name: shape for name, shape in shapes.items() if shape is not None}
    model = f"{layout.partition('_')[0]}_tiny"
    with pytest.raises(ValueError, match=re.escape(message.format(name))):
        build_plan(layout, model, shapes)


@pytest.mark.parametrize(
    ("asked", "model", "file", "hint"),
    [
        ("swin_timm", "swin_tiny", "swin_microsoft", "these are names of --layout swin_microsoft"),
        ("sot_torch_ref", "sot_tiny", "sot_official", "these are names of --layout sot_official"),
        ("bert_hf", "bert_base", "deit_timm", "these are names of --layout deit_timm"),
    ],
)
def test_a_wrong_layout_is_hinted_at(image_shapes, asked, model, file, hint):
    with pytest.raises(ValueError, match=hint):
        build_plan(asked, model, image_shapes(file))


def test_a_missing_tensor_is_no_sign_of_another_layout_with_the_same_names(image_shapes):
    shapes = image_shapes("deit_official")
    del shapes["norm.bias"]
    with pytest.raises(ValueError, match="^missing: norm.bias$"):
        build_plan("deit_official", "deit_tiny", shapes)


def test_the_wrong_direction_is_seen_where_both_sides_have_the_same_names(image_shapes):
    plan = build_plan("sot_official", "sot_tiny", image_shapes("sot_official"))
    ours = plan.destination_shapes
    back = build_plan("sot_torch_ref", "sot_tiny", ours, reverse=True)
    theirs = back.destination_shapes
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
    ],
)
def test_a_layout_is_for_some_models_only(layout, model, message):
    with pytest.raises(ValueError, match=message):
        build_plan(layout, model, {})


def test_every_image_model_has_a_layout_and_the_originals_capitals_are_read():
    for model in MODELS:
        assert find_table("sot_torch_ref", model).family == MODELS[model].family
    assert registry_name("SoT_Tiny") == "sot_tiny"
    assert registry_name("SoT_Huge") == "SoT_Huge"
    assert set(TABLES) > {layout for layout, _, _ in CASES}


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_the_published_state_dicts_are_covered(published_state, size):
    tensors = published_state(f"sot_official_{size}")["tensors"]
    shapes = {t["name"]: tuple(t["shape"]) for t in tensors}
    made = build_plan("sot_official", f"sot_{size}", shapes)
    assert (made.absent, made.embed, made.head) == ((), "densenet", "mgcrp")
    assert made.sizes["R"] == 6 * made.sizes["w"] ** 2
    back = build_plan("sot_official", f"sot_{size}", made.destination_shapes, reverse=True)
    assert back.destination_shapes == {n: s for n, s in shapes.items() if "tracked" not in n}
