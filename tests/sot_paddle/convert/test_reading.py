"""Checkpoints fitted to a model of given shapes: what is taken, resampled, dropped and said."""

import json
import logging

import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert import build_plan, convert_file
from sot_paddle.convert.formats.checkpoint_reading import read_as_paddle, read_for_model
from sot_paddle.convert.formats.source import open_source
from sot_paddle.resampling import resample_bias_table, resample_position_embedding


@pytest.fixture
def saved(tmp_path, image_shapes, random_arrays):
    """Write a random checkpoint of a layout; returns its file, arrays and Paddle shapes."""

    def write(layout: str, model: str):
        arrays = random_arrays(image_shapes(layout))
        path = tmp_path / f"{layout}.safetensors"
        write_tensors(path, arrays)
        plan = build_plan(layout, model, image_shapes(layout))
        return path, arrays, plan.destination_shapes

    return write


@pytest.mark.parametrize(
    ("layout", "model"),
    [
        ("sot_official", "sot_tiny"),
        ("deit_official", "deit_tiny"),
        ("swin_timm", "swin_tiny"),
        ("swin_microsoft", "swin_tiny"),
    ],
)
def test_the_layout_is_found_and_everything_taken(saved, tmp_path, layout, model):
    path, _, shapes = saved(layout, model)
    fitted = read_for_model(path, model, shapes)
    named = read_for_model(path, model, shapes, layout=layout)
    convert_file(path, tmp_path / "there.pdparams", layout, model)
    tensors, _ = read_tensors(tmp_path / "there.pdparams")
    assert fitted.fresh == ()
    assert (fitted.averaged, fitted.metadata) == (None, {})  # other people's metadata say nothing
    assert set(fitted.arrays) == set(named.arrays) == set(tensors) == set(shapes)
    for name in tensors:
        np.testing.assert_array_equal(fitted.arrays[name], tensors[name])
        np.testing.assert_array_equal(named.arrays[name], tensors[name])
    assert any(note.startswith("layout ") for note in fitted.notes)
    again = read_for_model(tmp_path / "there.pdparams", model, shapes)
    assert set(again.arrays) == set(shapes)
    assert again.notes == ()
    assert json.loads(again.metadata["config"])["qkv_bias"] == any("qkv.bias" in n for n in shapes)
    with pytest.raises(ValueError, match="in Paddle's names already; leave the layout"):
        read_for_model(tmp_path / "there.pdparams", model, shapes, layout=layout)


@pytest.mark.parametrize("head", ["classifier", "qa_outputs"])
def test_a_training_is_told_of_the_head_of_another_task(
    tmp_path, hf_shapes, random_arrays, caplog, head
):
    shapes = hf_shapes("bert.", pooler=False, classifier=False)
    arrays = random_arrays({**shapes, f"{head}.weight": (5, 12), f"{head}.bias": (5,)})
    path = tmp_path / "m.safetensors"
    write_tensors(path, arrays)
    with caplog.at_level(logging.WARNING, logger="sot_paddle.convert.formats.checkpoint_reading"):
        found = read_as_paddle(open_source(path), "bert_base")
    assert not any(name.startswith("head.") for name in found)
    (line,) = caplog.messages
    assert f"left out: {head}.weight, {head}.bias (head of " in line
    write_tensors(path, random_arrays(hf_shapes()))
    caplog.clear()
    assert "head.cls_fc.weight" in read_as_paddle(open_source(path), "bert_base")
    assert caplog.messages == []


def test_positions_and_classifiers_are_fitted_to_the_model(saved):
    path, arrays, shapes = saved("deit_timm", "deit_tiny")
    wanted = {
        **shapes,
        "pos_embed": (1, 17, 12),
        "head.cls_fc.weight": (12, 7),
        "head.cls_fc.bias": (7,),
    }
    fitted = read_for_model(path, "deit_tiny", wanted)
    expected = resample_position_embedding(arrays["pos_embed"], 16)
    np.testing.assert_array_equal(fitted.arrays["pos_embed"], expected)
    assert fitted.fresh == ("head.cls_fc.weight", "head.cls_fc.bias")
    assert set(fitted.arrays) == set(shapes) - set(fitted.fresh)
    said = "\n".join(fitted.notes)
    assert "learned positions of 9 tokens to 16" in said
    assert "a classifier of 5 classes, and 7 are wanted" in said
    assert "left at initialisation: head.cls_fc.weight, head.cls_fc.bias (2 tensors)" in said


def test_bias_tables_are_fitted_to_the_models_windows(saved):
    path, arrays, shapes = saved("swin_microsoft", "swin_tiny")
    name = "stages.1.blocks.1.attn.relative_position_bias_table"
    fitted = read_for_model(path, "swin_tiny", {**shapes, name: (49, 3)})
    old = arrays["layers.1.blocks.1.attn.relative_position_bias_table"]
    np.testing.assert_array_equal(fitted.arrays[name], resample_bias_table(old, 4))
    assert any("windows of 3 to windows of 4" in note for note in fitted.notes)


def test_another_head_and_another_embedding_stay_fresh_as_a_whole(saved):
    path, _, shapes = saved("sot_official", "sot_tiny")
    tokens = {n: s for n, s in shapes.items() if n.startswith("embed.")}
    rest = {n: s for n, s in shapes.items() if n not in tokens}
    linear = {"embed.proj.weight": (12, 3, 4, 4), "embed.proj.bias": (12,)}
    fitted = read_for_model(path, "sot_tiny", {**rest, **linear})
    assert set(fitted.fresh) == set(linear)
    assert any("the model has another token embedding" in note for note in fitted.notes)

    layer_norm = {**shapes, "head.pooling.norm.bias": (4,)}  # weight means another thing now
    fitted = read_for_model(path, "sot_tiny", layer_norm)
    assert set(fitted.fresh) == {n for n in layer_norm if n.startswith("head.")}
    wider = {**shapes, "head.pooling.wr.weight": (12, 24)}
    fitted = read_for_model(path, "sot_tiny", wider)
    assert set(fitted.fresh) == {n for n in shapes if n.startswith("head.")}
    assert any("the model's head has another head.pooling.wr" in note for note in fitted.notes)


def test_a_backbone_that_does_not_fit_is_refused(saved, tmp_path):
    path, _, shapes = saved("deit_timm", "deit_tiny")
    for change, message in (
        ({"blocks.2.norm1.weight": (12,)}, "lacks blocks.2.norm1.weight: build"),
        ({"blocks.1.norm2.bias": None}, "has what the model lacks: blocks.1.norm2.bias: build"),
        ({"blocks.0.mlp.fc1.weight": (12, 24)}, "a backbone of another size"),
        ({"pos_embed": (1, 10, 16)}, r"pos_embed has shape .1, 10, 12., the model wants"),
        ({"pos_embed": (1, 9, 12)}, "8 tokens are no square grid"),
    ):
        wanted = {n: s for n, s in {**shapes, **change}.items() if s is not None}
        with pytest.raises(ValueError, match=message):
            read_for_model(path, "deit_tiny", wanted)
    with pytest.raises(ValueError, match="layout 'deit_timm' is for deit_tiny"):
        read_for_model(path, "sot_tiny", shapes)
    write_tensors(tmp_path / "odd.safetensors", {"stem.weight": np.ones(3)})
    with pytest.raises(ValueError, match="names of no known layout .first: 'stem.weight'"):
        read_for_model(tmp_path / "odd.safetensors", "deit_tiny", shapes)
    with pytest.raises(ValueError, match="unmapped: stem.weight; missing: cls_token"):
        read_for_model(tmp_path / "odd.safetensors", "deit_tiny", shapes, layout="deit_timm")


def test_averaged_weights_are_preferred_unless_refused(tmp_path, image_shapes, random_arrays):
    torch = pytest.importorskip("torch")
    arrays = random_arrays(image_shapes("sot_official"))
    state = {n: torch.tensor(a) for n, a in arrays.items()}
    averaged = {n: t + 1 for n, t in state.items()}
    torch.save({"state_dict": state, "state_dict_ema": averaged}, tmp_path / "a.pth.tar")
    plan = build_plan("sot_official", "sot_tiny", image_shapes("sot_official"))
    shapes = plan.destination_shapes
    for ema, moved in ((None, 1), (True, 1), (False, 0)):
        fitted = read_for_model(tmp_path / "a.pth.tar", "sot_tiny", shapes, ema=ema)
        assert fitted.averaged is bool(moved)
        np.testing.assert_array_equal(fitted.arrays["cls_token"], arrays["cls_token"] + moved)
        key = "state_dict_ema" if moved else "state_dict"
        assert f"a.pth.tar: the state dict under the key {key!r} is used" in fitted.notes


def test_a_file_without_metadata_is_told_by_its_shapes(tmp_path, saved, random_arrays):
    _, _, shapes = saved("deit_timm", "deit_tiny")
    arrays = random_arrays(shapes)
    write_tensors(tmp_path / "ours.safetensors", arrays)
    fitted = read_for_model(tmp_path / "ours.safetensors", "deit_tiny", shapes)
    assert fitted.notes == ()
    plan = build_plan("sot_torch_ref", "deit_tiny", shapes, reverse=True)
    write_tensors(tmp_path / "reference.safetensors", plan.apply(arrays))
    returned = read_for_model(tmp_path / "reference.safetensors", "deit_tiny", shapes)
    assert returned.notes == ("layout sot_torch_ref: 32 tensors converted",)
    for name, array in arrays.items():
        np.testing.assert_array_equal(fitted.arrays[name], array)
        np.testing.assert_array_equal(returned.arrays[name], array)
