"""Plans: names, heads, shapes, bijection, and every refusal by name."""

import re
from collections import Counter
from itertools import chain

import numpy as np
import pytest

from sot_paddle import convert as weights
from sot_paddle.convert import TABLES, build_plan
from sot_paddle.convert.engine.naming import TableFile, slots
from tests.sot_paddle.convert.converted import assert_comes_back
from tests.sot_paddle.convert.tiny_checkpoints import batch_norm

HEADS = ("pooler", "mgcrp_qk", "mgcrp", "gcp", "gcp_text", "fc", "gap")


def model_for(head: str) -> str:
    return "bert_base" if head in ("pooler", "fc", "gap") else "bert_base_mgcrp"


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


def test_values_and_layouts_of_named_tensors(official_shapes, random_arrays):
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bert.surprise": (3,)}, "unmapped: bert.surprise"),
        ({"bert.encoder.layer.1.output.dense.bias": None}, "missing: bert.encoder.layer.1.output"),
        ({"bert.encoder.layer.7.output.dense.bias": (12,)}, "missing: bert.encoder.layer.2."),
        ({"bert.encoder.layer.999.output.dense.bias": (12,)}, "1000 encoder layers expected"),
        ({"bert.encoder.layer.01.output.dense.bias": (12,)}, "unmapped: bert.encoder.layer.01."),
        ({"embeddings.LayerNorm.bias": (12,)}, "unmapped: embeddings.LayerNorm.bias"),
        (
            {"bert.encoder.layer.0.output.dense.weight": (20, 12)},
            "wrong shape: bert.encoder.layer.0.output.dense.weight (expected (12, 20), got (20,",
        ),
        ({"bert.embeddings.LayerNorm.bias": (12, 1)}, "wrong shape: bert.embeddings.LayerNorm."),
        ({"classifier.weight": (4, 13)}, "classifier.weight (expected ("),
    ],
)
def test_what_does_not_fit_is_refused_by_name(hf_shapes, change, message):
    shapes = {**hf_shapes(), **change}
    shapes = {name: shape for name, shape in shapes.items() if shape is not None}
    with pytest.raises(ValueError, match=re.escape(message)):
        build_plan("bert_hf", "bert_base", shapes)


def test_the_product_of_q_and_k_is_checked(official_shapes):
    official_shapes["bert.pooler.visual_fc.weight"] = (5, 29)
    with pytest.raises(ValueError, match=re.escape("visual_fc.weight (expected (5, 28), got (5,")):
        build_plan("sot_nlp_official", "bert_base_mgcrp", official_shapes)


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
        (
            "sot_nlp_official",
            "bert_base",
            None,
            False,
            "this layout holds mgcrp_qk, gcp_text: choose",
        ),
        ("bert_hf", "bert_base", "mgcrp", True, "head is 'mgcrp', but model 'bert_base' has"),
        ("bert_hf", "bert_base_mgcrp", "mgcrp_qk", True, "unmapped: head.pooling.q_proj.weight"),
        ("sot_nlp_official", "bert_base_mgcrp", "gcp", True, "'gcp'; this layout holds mgcrp_qk"),
    ],
)
def test_a_head_that_cannot_be_is_refused(ref_shapes, layout, model, head, reverse, message):
    shapes = ref_shapes(head) if head else ref_shapes("mgcrp_qk")
    if reverse:
        shapes = build_plan("sot_torch_ref", model_for(head), shapes).destination_shapes
    with pytest.raises(ValueError, match=re.escape(message)):
        build_plan(layout, model, shapes, reverse=reverse)


def test_two_heads_in_one_file_are_refused(ref_shapes):
    shapes = {**ref_shapes("mgcrp"), **ref_shapes("gcp")}
    with pytest.raises(ValueError, match="two heads: mgcrp and gcp"):
        build_plan("sot_torch_ref", "bert_base_mgcrp", shapes)


def test_encoder_only_leaves_the_head_out_with_a_reason(ref_shapes, hf_shapes):
    forward = build_plan("sot_torch_ref", "bert_base_mgcrp", ref_shapes("mgcrp_qk"))
    shapes = forward.destination_shapes
    with pytest.raises(ValueError, match="--encoder-only leaves it out"):
        build_plan("bert_hf", "bert_base_mgcrp", shapes, reverse=True)
    made = build_plan("bert_hf", "bert_base_mgcrp", shapes, reverse=True, encoder_only=True)
    expected = hf_shapes("", pooler=False, classifier=False)
    assert {entry.destination for entry in made.entries} == set(expected)
    assert set(made.ignored) == {name for name in shapes if name.startswith("head.")}


def test_hints_name_the_right_layout_and_direction(hf_shapes, official_shapes):
    with pytest.raises(ValueError, match="these are names of --layout sot_nlp_official"):
        build_plan("bert_hf", "bert_base", official_shapes)
    with pytest.raises(ValueError, match="PyTorch names of layout bert_hf: drop --reverse"):
        build_plan("bert_hf", "bert_base", hf_shapes(""), reverse=True)
    paddle = build_plan("bert_hf", "bert_base", hf_shapes()).destination_shapes
    with pytest.raises(ValueError, match="these are Paddle names: add --reverse"):
        build_plan("bert_hf", "bert_base", paddle)


def test_unknown_layout_and_model_and_empty_file():
    with pytest.raises(ValueError, match="unknown layout 'hf'; expected one of bert_hf, rob"):
        build_plan("hf", "bert_base", {})
    with pytest.raises(ValueError, match="unknown model 'bert'; expected one of bert_base, bert_b"):
        build_plan("bert_hf", "bert", {})
    with pytest.raises(ValueError, match="missing: embeddings.word_embeddings.weight"):
        build_plan("bert_hf", "bert_base", {})
    embeddings = {"word": (7, 4), "position": (5, 4), "token_type": (2, 4)}
    shapes = {f"embeddings.{name}_embeddings.weight": s for name, s in embeddings.items()}
    shapes.update({"embeddings.LayerNorm.weight": (4,), "embeddings.LayerNorm.bias": (4,)})
    with pytest.raises(ValueError, match="holds no encoder layer"):
        build_plan("bert_hf", "bert_base", shapes)


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


def test_the_published_state_dict_is_covered(published_state, random_arrays):
    content = published_state("sot_nlp_official_small")
    shapes = {t["name"]: tuple(t["shape"]) for t in content["tensors"]}
    made = build_plan("sot_nlp_official", "bert_base_mgcrp", shapes, config=content["config"])
    assert made.absent == ()
    assert (made.sizes["q"], made.sizes["k"], made.depth) == (12, 8, 3)
    assert_comes_back(made, "sot_nlp_official", "bert_base_mgcrp", random_arrays(shapes))
