"""Plans: names, heads, shapes, depths, bijection, there and back."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest

from sot_paddle import convert as weights
from sot_paddle.convert import TABLES, build_plan
from sot_paddle.convert.engine.known_models import MODELS, registry_name
from sot_paddle.convert.engine.naming import TableFile, slots
from sot_paddle.convert.engine.registry import find_table
from tests.sot_paddle.convert.converted import CONSTANTS, assert_comes_back
from tests.sot_paddle.convert.tiny_checkpoints import batch_norm

SIZES = ("tiny", "small", "base")
HEADS = ("pooler", "mgcrp_qk", "mgcrp", "gcp", "gcp_text", "fc", "gap")


def model_for(head: str) -> str:
    return "bert_base" if head in ("pooler", "fc") else "bert_base_mgcrp"


@pytest.mark.parametrize("name", weights.__all__)
def test_every_name_of_the_room_can_be_imported(name):
    assert getattr(weights, name) is not None


@pytest.mark.parametrize("head", HEADS)
def test_there_and_back_is_the_identity_for_every_head(ref_shapes, random_arrays, head):
    shapes = ref_shapes(head)
    arrays = random_arrays(shapes)
    plan = build_plan("sot_torch_ref", model_for(head), shapes)
    back = assert_comes_back(plan, "sot_torch_ref", model_for(head), arrays)
    assert plan.head == back.head == head
    assert plan.absent == back.absent == ()


def test_a_pooling_without_tensors_is_that_of_a_plain_model_too(ref_shapes):
    assert build_plan("sot_torch_ref", "bert_base", ref_shapes("gap")).head == "gap"


def test_values_and_layouts_of_named_tensors_of_text(official_shapes, random_arrays):
    arrays = random_arrays(official_shapes)
    made = build_plan("sot_nlp_official", "bert_base_mgcrp", official_shapes).apply(arrays)
    layer, head = "bert.encoder.layer.1.", "bert.pooler."
    expected = {  # a square weight must be transposed too, an embedding must not
        "bert.embeddings.word_embeddings.weight": arrays["bert.embeddings.word_embeddings.weight"],
        "bert.embeddings.layer_norm.bias": arrays["bert.embeddings.LayerNorm.bias"],
        "bert.encoder.layers.1.self_attn.k_proj.weight": arrays[
            layer + "attention.self.key.weight"
        ].T,
        "bert.encoder.layers.1.self_attn.out_proj.weight": arrays[
            layer + "attention.output.dense.weight"
        ].T,
        "bert.encoder.layers.1.linear2.weight": arrays[layer + "output.dense.weight"].T,
        "bert.encoder.layers.1.norm1.weight": arrays[layer + "attention.output.LayerNorm.weight"],
        "bert.encoder.layers.1.norm2.weight": arrays[layer + "output.LayerNorm.weight"],
        "head.pooling.q_proj.weight": arrays[head + "representation.conv_dr_block.0.0.weight"]
        .squeeze()
        .T,
        "head.pooling.k_norm.running_var": arrays[
            head + "representation.conv_dr_block.1.1.running_var"
        ],
        "head.pooling.norm.weight": arrays[head + "normalization.weight"],
        "head.word_fc.weight": arrays[head + "visual_fc.weight"].T,
        "head.cls_fc.bias": arrays[head + "cls_fc.bias"],
    }
    for name, value in expected.items():
        np.testing.assert_array_equal(made[name], value, err_msg=name)


@pytest.mark.parametrize("layout", TABLES)
def test_a_table_is_a_bijection(layout):
    """No two rows have one name, on either side, whichever head and token embedding is there."""
    for table in TABLES[layout]:
        file = TableFile(table, {}, prefix=table.optional_prefix)
        depths = (1, 2) if table.family == "swin" else (2,)
        for head in table.heads.values():
            for embed in table.embeds.values() or [()]:
                expanded = slots(file, head, embed, depths)
                for names in (chain(*(s.sources for s in expanded)), (s.paddle for s in expanded)):
                    assert max(Counter(names).values()) == 1


@pytest.mark.parametrize("prefix", ["bert.", ""])
@pytest.mark.parametrize("classifier", [True, False])
def test_prefix_and_task_head_are_optional(hf_shapes, prefix, classifier):
    shapes = hf_shapes(prefix, classifier=classifier)
    made = build_plan("bert_hf", "bert_base", shapes)
    assert made.prefix == prefix
    assert made.depth == 2
    assert made.absent == (() if classifier else ("head.cls_fc.weight", "head.cls_fc.bias"))
    back = build_plan("bert_hf", "bert_base", made.destination_shapes, reverse=True, prefix=prefix)
    assert back.destination_shapes == shapes
    usual = build_plan("bert_hf", "bert_base", made.destination_shapes, reverse=True)
    assert usual.prefix == ("bert." if classifier else "")


def test_old_layer_norm_names_are_read_and_new_ones_written(hf_shapes):
    shapes = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): shape
        for name, shape in hf_shapes().items()
    }
    made = build_plan("bert_hf", "bert_base", shapes)
    back = build_plan("bert_hf", "bert_base", made.destination_shapes, reverse=True)
    assert {entry.destination for entry in back.entries} == set(hf_shapes())
    shapes["bert.embeddings.LayerNorm.weight"] = shapes["bert.embeddings.LayerNorm.gamma"]
    with pytest.raises(ValueError, match="doubly mapped: bert.embeddings.layer_norm.weight"):
        build_plan("bert_hf", "bert_base", shapes)


def test_what_is_ignored_has_a_reason(hf_shapes, official_shapes):
    shapes = {**hf_shapes(""), "embeddings.position_ids": (1, 9), "cls.predictions.bias": (23,)}
    ignored = build_plan("bert_hf", "bert_base", shapes).ignored
    assert set(ignored) == {"embeddings.position_ids", "cls.predictions.bias"}
    second = build_plan("bert_hf", "bert_base_mgcrp", shapes)
    names = {"pooler.dense.weight", "pooler.dense.bias", "classifier.weight", "classifier.bias"}
    assert set(second.ignored) == set(ignored) | names
    assert "replaces BERT's pooler" in second.ignored["pooler.dense.weight"]
    assert all(second.ignored.values())
    assert not any(entry.destination.startswith("head.") for entry in second.entries)
    official = build_plan("sot_nlp_official", "bert_base_mgcrp", official_shapes)
    assert [name.rsplit(".", 1)[1] for name in official.ignored] == ["num_batches_tracked"] * 2


def test_absent_head_tensors_are_listed_not_fatal(official_shapes):
    name = "bert.pooler.normalization.weight"
    del official_shapes[name]
    made = build_plan("sot_nlp_official", "bert_base_mgcrp", official_shapes)
    assert made.absent == ("head.pooling.norm.weight",)
    headless = {n: s for n, s in official_shapes.items() if ".pooler." not in n}
    made = build_plan("sot_nlp_official", "bert_base_mgcrp", headless)
    assert len(made.absent) == 15
    back = build_plan("sot_nlp_official", "bert_base_mgcrp", made.destination_shapes, reverse=True)
    assert name in back.absent
    assert back.counters == ()


HEAD = {"head.dense.weight", "head.dense.bias", "head.cls_fc.weight", "head.cls_fc.bias"}
SCORES = {"head.cls_fc.weight", "head.cls_fc.bias"}


@pytest.mark.parametrize(
    ("pooler", "head", "architecture", "said", "absent"),
    [
        (False, "classifier", None, "token classification", HEAD),
        (True, "classifier", "BertForTokenClassification", "token classification", SCORES),
        (True, "classifier", "BertForMultipleChoice", "multiple choice", SCORES),
        (False, "qa_outputs", None, "question answering", HEAD),
        (True, "qa_outputs", "BertForQuestionAnswering", "question answering", SCORES),
        (True, "classifier", "BertForSequenceClassification", "", set()),
        (True, "classifier", "MyOwnBert", "", set()),
    ],
)
def test_the_head_of_another_task_is_named_and_never_loaded(
    hf_shapes, pooler, head, architecture, said, absent
):
    shapes = hf_shapes(pooler=pooler, classifier=False)
    shapes |= {f"{head}.weight": (5, 12), f"{head}.bias": (5,)}
    config = {"architectures": [architecture]} if architecture else {}
    made = build_plan("bert_hf", "bert_base", shapes, config=config)
    assert set(made.absent) == absent
    assert not any(entry.destination in absent for entry in made.entries)
    if said:
        assert set(made.ignored) == {f"{head}.weight", f"{head}.bias"}
        assert all(said in reason for reason in made.ignored.values())
    else:
        assert made.ignored == {}
    second = build_plan("bert_hf", "bert_base_mgcrp", shapes, config=config)
    assert said in second.ignored[f"{head}.weight"]
    assert not any(entry.destination.startswith("head.") for entry in second.entries)


@pytest.mark.parametrize("svpn", [False, True])
def test_the_official_head_of_one_branch(official_shapes, random_arrays, svpn):
    """The text release with ``cov_type="norm"``: its one branch has no index in the names."""
    block = "bert.pooler.representation.conv_dr_block."
    shapes = {n: s for n, s in official_shapes.items() if block not in n}
    shapes |= {f"{block}0.weight": (7, 12, 1, 1), **batch_norm(f"{block}1", 7)}
    shapes["bert.pooler.visual_fc.weight"] = (5, 28)
    if not svpn:
        del shapes["bert.pooler.normalization.weight"]
    arrays = random_arrays(shapes)
    made = build_plan("sot_nlp_official", "bert_base_mgcrp", shapes)
    assert (made.head, made.absent) == ("gcp_text", ())
    found, projection = made.apply(arrays), arrays[f"{block}0.weight"]
    np.testing.assert_array_equal(found["head.pooling.proj.weight"], projection.squeeze().T)
    variance = arrays[f"{block}1.running_var"]
    np.testing.assert_array_equal(found["head.pooling.proj_norm.running_var"], variance)
    assert_comes_back(made, "sot_nlp_official", "bert_base_mgcrp", arrays)


def test_encoder_only_leaves_the_head_out_with_a_reason(ref_shapes, hf_shapes):
    forward = build_plan("sot_torch_ref", "bert_base_mgcrp", ref_shapes("mgcrp_qk"))
    shapes = forward.destination_shapes
    with pytest.raises(ValueError, match="--encoder-only leaves it out"):
        build_plan("bert_hf", "bert_base_mgcrp", shapes, reverse=True)
    made = build_plan("bert_hf", "bert_base_mgcrp", shapes, reverse=True, encoder_only=True)
    expected = hf_shapes("", pooler=False, classifier=False)
    assert {entry.destination for entry in made.entries} == set(expected)
    assert set(made.ignored) == {name for name in shapes if name.startswith("head.")}


def test_apply_to_gradients_is_partial_and_strict(ref_shapes, random_arrays):
    shapes = ref_shapes("mgcrp_qk")
    arrays = random_arrays(shapes, "float64")
    made = build_plan("sot_torch_ref", "bert_base_mgcrp", shapes)
    q_proj = "head.pooling.q_proj.weight"
    gradients = {q_proj: arrays[q_proj]}
    converted = made.apply(gradients, partial=True)
    assert list(converted) == [q_proj]
    np.testing.assert_array_equal(converted[q_proj], arrays[q_proj][:, :, 0, 0].T)
    back = build_plan("sot_torch_ref", "bert_base_mgcrp", made.destination_shapes, reverse=True)
    np.testing.assert_array_equal(back.apply(converted, partial=True)[q_proj], arrays[q_proj])
    with pytest.raises(ValueError, match="missing: bert.embeddings.word_embeddings.weight"):
        made.apply(gradients)
    with pytest.raises(ValueError, match="not in the plan: surprise"):
        made.apply({"surprise": np.ones(1)}, partial=True)
    with pytest.raises(ValueError, match="expected shape .7, 12, 1, 1., got .12, 7"):
        made.apply({q_proj: arrays[q_proj][:, :, 0, 0].T}, partial=True)


@pytest.mark.parametrize(
    ("layout", "model", "options"),
    [
        ("sot_official", "sot_tiny", {}),
        ("sot_official", "sot_base", {"dense_norm": True}),
        ("deit_timm", "deit_tiny", {}),
        ("deit_official", "deit_small", {}),
        ("swin_timm", "swin_tiny", {}),
        ("swin_microsoft", "swin_base", {}),
    ],
)
def test_there_and_back_is_the_identity_for_image_models(
    image_shapes, random_arrays, layout, model, options
):
    shapes = image_shapes(layout, **options)
    arrays = random_arrays(shapes)
    plan = build_plan(layout, model, shapes)
    assert plan.absent == ()
    assert all(name.endswith((*CONSTANTS, "num_batches_tracked")) for name in plan.ignored)
    back = assert_comes_back(plan, layout, model, arrays)
    assert (back.head, back.embed, back.depths) == (plan.head, plan.embed, plan.depths)


@pytest.mark.parametrize("layout", ["swin_timm", "swin_microsoft"])
def test_the_depths_of_the_stages_are_found(toy, layout):
    plan = toy(layout).plan
    assert plan.depths == (1, 2)
    assert plan.depth == 3
    assert {plan.sizes[name] for name in ("H0", "H1")} == {2, 3}
    assert (plan.sizes["C0"], plan.sizes["C1"], plan.sizes["T0"]) == (12, 24, 25)


def test_values_and_layouts_of_named_tensors_of_images(toy):
    arrays = toy("sot_official").arrays
    made = toy("sot_official").plan.apply(arrays)
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


def test_encoder_only_leaves_head_and_tokens_out(toy):
    shapes = toy("sot_official").shapes
    with pytest.raises(ValueError, match="does not hold this"):
        build_plan("deit_timm", "deit_tiny_sot", shapes, reverse=True)
    made = build_plan("deit_timm", "deit_tiny_sot", shapes, reverse=True, encoder_only=True)
    assert {entry.destination for entry in made.entries} < set(toy("deit_timm").arrays)
    outside = {name for name in shapes if name.startswith(("embed.", "head."))}
    assert set(made.ignored) == outside


def test_every_image_model_has_a_layout_and_the_originals_capitals_are_read():
    for model in MODELS:
        assert find_table("sot_torch_ref", model).family == MODELS[model].family
    assert registry_name("SoT_Tiny") == "sot_tiny"
    assert registry_name("SoT_Huge") == "SoT_Huge"


@pytest.mark.parametrize("name", ["nlp_official_small", *(f"official_{s}" for s in SIZES)])
def test_the_published_state_dicts_are_covered(published_state, name):
    content = published_state(f"sot_{name}")
    shapes = {t["name"]: tuple(t["shape"]) for t in content["tensors"]}
    is_text = name.startswith("nlp")
    kind = (
        ("sot_nlp_official", "bert_base_mgcrp") if is_text else ("sot_official", f"sot_{name[9:]}")
    )
    made = build_plan(*kind, shapes, config=content.get("config") if is_text else None)
    assert made.absent == ()
    if is_text:
        assert (made.sizes["q"], made.sizes["k"], made.depth) == (12, 8, 3)
    else:
        assert (made.embed, made.head) == ("densenet", "mgcrp")
        assert made.sizes["R"] == 6 * made.sizes["w"] ** 2
    back = build_plan(*kind, made.destination_shapes, reverse=True)
    assert back.destination_shapes == {n: s for n, s in shapes.items() if "tracked" not in n}
