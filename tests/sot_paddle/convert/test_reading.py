"""Checkpoints of image models: read, resized, averaged, and written as the originals write them."""

import argparse
import json
import logging

import numpy as np
import pytest
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert import build_plan, convert_file
from sot_paddle.convert.formats.checkpoint_reading import read_for_model
from sot_paddle.convert.formats.source import open_source, read_as_paddle
from sot_paddle.resampling import resample_position_embedding
from tests.sot_paddle.convert.converted import CONSTANTS, assert_same_file


@pytest.mark.parametrize("layout", ["sot_official", "deit_official", "swin_timm", "swin_microsoft"])
def test_the_layout_is_found_and_everything_taken(toy, layout):
    given = toy(layout)
    fitted = read_for_model(given.path, given.model, given.shapes)
    named = read_for_model(given.path, given.model, given.shapes, layout=layout)
    tensors, _ = read_tensors(given.converted)
    assert fitted.fresh == ()
    assert (fitted.averaged, fitted.metadata) == (None, {})  # other people's metadata say nothing
    assert set(fitted.arrays) == set(named.arrays) == set(tensors) == set(given.shapes)
    for name in tensors:
        np.testing.assert_array_equal(fitted.arrays[name], tensors[name])
        np.testing.assert_array_equal(named.arrays[name], tensors[name])
    assert any(note.startswith("layout ") for note in fitted.notes)
    again = read_for_model(given.converted, given.model, given.shapes)
    assert (set(again.arrays), again.notes) == (set(given.shapes), ())
    has_bias = any("qkv.bias" in name for name in given.shapes)
    assert json.loads(again.metadata["config"])["qkv_bias"] == has_bias
    with pytest.raises(ValueError, match="in Paddle's names already; leave the layout"):
        read_for_model(given.converted, given.model, given.shapes, layout=layout)


@pytest.mark.parametrize("head", ["classifier", "qa_outputs"])
def test_a_training_is_told_of_the_head_of_another_task(
    tmp_path, toy, hf_shapes, random_arrays, caplog, head
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
    caplog.clear()
    assert "head.cls_fc.weight" in read_as_paddle(open_source(toy("bert_hf").path), "bert_base")
    assert caplog.messages == []


def test_positions_and_classifiers_are_fitted_to_the_model(toy):
    deit = toy("deit_timm")
    scores = {"head.cls_fc.weight": (12, 7), "head.cls_fc.bias": (7,)}
    wanted = {**deit.shapes, **scores, "pos_embed": (1, 17, 12)}
    fitted = read_for_model(deit.path, "deit_tiny", wanted)
    expected = resample_position_embedding(deit.arrays["pos_embed"], 16)
    np.testing.assert_array_equal(fitted.arrays["pos_embed"], expected)
    assert fitted.fresh == tuple(scores)
    assert set(fitted.arrays) == set(deit.shapes) - set(fitted.fresh)
    said = "\n".join(fitted.notes)
    assert "learned positions of 9 tokens to 16" in said
    assert "a classifier of 5 classes, and 7 are wanted" in said
    assert "left at initialisation: head.cls_fc.weight, head.cls_fc.bias (2 tensors)" in said


def test_another_head_and_another_embedding_stay_fresh_as_a_whole(toy):
    sot = toy("sot_official")
    rest = {n: s for n, s in sot.shapes.items() if not n.startswith("embed.")}
    linear = {"embed.proj.weight": (12, 3, 4, 4), "embed.proj.bias": (12,)}
    fitted = read_for_model(sot.path, "sot_tiny", {**rest, **linear})
    assert set(fitted.fresh) == set(linear)
    assert any("the model has another token embedding" in note for note in fitted.notes)
    layer_norm = {**sot.shapes, "head.pooling.norm.bias": (4,)}  # weight means another thing now
    fitted = read_for_model(sot.path, "sot_tiny", layer_norm)
    assert set(fitted.fresh) == {n for n in layer_norm if n.startswith("head.")}
    wider = {**sot.shapes, "head.pooling.wr.weight": (12, 24)}
    fitted = read_for_model(sot.path, "sot_tiny", wider)
    assert set(fitted.fresh) == {n for n in sot.shapes if n.startswith("head.")}
    assert any("the model's head has another head.pooling.wr" in note for note in fitted.notes)


def test_a_backbone_that_does_not_fit_is_refused(toy, tmp_path):
    deit = toy("deit_timm")
    for change, message in (
        ({"blocks.2.norm1.weight": (12,)}, "lacks blocks.2.norm1.weight: build"),
        ({"blocks.1.norm2.bias": None}, "has what the model lacks: blocks.1.norm2.bias: build"),
        ({"blocks.0.mlp.fc1.weight": (12, 24)}, "a backbone of another size"),
        ({"pos_embed": (1, 10, 16)}, r"pos_embed has shape .1, 10, 12., the model wants"),
        ({"pos_embed": (1, 9, 12)}, "8 tokens are no square grid"),
    ):
        wanted = {n: s for n, s in {**deit.shapes, **change}.items() if s is not None}
        with pytest.raises(ValueError, match=message):
            read_for_model(deit.path, "deit_tiny", wanted)
    with pytest.raises(ValueError, match="layout 'deit_timm' is for deit_tiny"):
        read_for_model(deit.path, "sot_tiny", deit.shapes)
    write_tensors(tmp_path / "odd.safetensors", {"stem.weight": np.ones(3)})
    with pytest.raises(ValueError, match="names of no known layout .first: 'stem.weight'"):
        read_for_model(tmp_path / "odd.safetensors", "deit_tiny", deit.shapes)
    with pytest.raises(ValueError, match="unmapped: stem.weight; missing: cls_token"):
        read_for_model(tmp_path / "odd.safetensors", "deit_tiny", deit.shapes, layout="deit_timm")


def test_a_file_without_metadata_is_told_by_its_shapes(tmp_path, toy, random_arrays):
    shapes = toy("deit_timm").shapes
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


@pytest.mark.parametrize(
    ("layout", "keys"),
    [
        ("sot_official", ["state_dict", "state_dict_ema"]),
        ("deit_official", ["model"]),
        ("swin_microsoft", ["model"]),
        ("swin_timm", []),
    ],
)
def test_torch_files_come_back_where_the_original_looks(tmp_path, toy, layout, keys):
    given = toy(layout)
    arrays = {n: a for n, a in given.arrays.items() if not n.endswith(CONSTANTS)}
    path = tmp_path / "c.pth"
    made = convert_file(given.converted, path, layout, given.model, reverse=True)
    content = torch.load(path, weights_only=True)
    assert not keys or list(content) == keys
    assert any("written under" in note for note in made.notes) == bool(keys)
    for state in [content[key] for key in keys] or [content]:
        assert set(state) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(state[name].numpy(), array)
    assert path.stat().st_size < 1.5 * given.path.stat().st_size  # stored once
    convert_file(path, tmp_path / "d.safetensors", layout, given.model)
    assert_same_file(tmp_path / "d.safetensors", read_tensors(given.converted)[0])


@pytest.mark.parametrize("ema", [False, True, None])
def test_averaged_weights_are_taken_when_asked_for(tmp_path, toy, ema):
    """A checkpoint as the original's training writes it, DataParallel and averages included."""
    sot, path, dst = toy("sot_official"), tmp_path / "best.pth.tar", tmp_path / "there.safetensors"
    content = {
        "epoch": 3,
        "state_dict": {f"module.{n}": torch.tensor(a) for n, a in sot.arrays.items()},
        "optimizer": {"state": {0: {"step": 7}}, "param_groups": []},
        "args": argparse.Namespace(model="SoT_Tiny", lr=1e-3),
        "state_dict_ema": {n: torch.tensor(a + 1 if a.ndim else a) for n, a in sot.arrays.items()},
        "metric": 80.3,
    }
    torch.save(content, path)
    is_averaged, key = ema is not False, "state_dict" if ema is False else "state_dict_ema"
    fitted = read_for_model(path, "sot_tiny", sot.shapes, ema=ema)  # None: where there are any
    assert fitted.averaged is is_averaged
    expected = sot.arrays["cls_token"] + is_averaged
    np.testing.assert_array_equal(fitted.arrays["cls_token"], expected)
    assert f"best.pth.tar: the state dict under the key {key!r} is used" in fitted.notes
    if ema is None:
        return
    said = "\n".join(convert_file(path, dst, "sot_official", "sot_tiny", ema=ema).notes)
    np.testing.assert_array_equal(read_tensors(dst)[0]["cls_token"], expected)
    assert f"the state dict under the key {key!r} is used" in said
    passed = "under 'state_dict_ema' are passed over (--ema, or leaving --no-ema out, takes them)"
    assert (passed in said) != ema
    assert ("every name begins with 'module.': stripped" in said) != ema


def test_averages_that_are_not_there_are_refused(tmp_path, toy):
    deit = toy("deit_official")
    state = {n: torch.tensor(a) for n, a in deit.arrays.items()}
    torch.save({"model": state}, tmp_path / "a.pth")
    torch.save({"model_ema": state}, tmp_path / "b.pth")
    args = (tmp_path / "x.safetensors", "deit_official", "deit_tiny")
    with pytest.raises(ValueError, match=r"one entry of averaged .* got 0 of model \(32 tensors"):
        convert_file(tmp_path / "a.pth", *args, ema=True)
    with pytest.raises(ValueError, match="got 0 of model_ema .* or change --ema"):
        convert_file(tmp_path / "b.pth", *args)
    with pytest.raises(ValueError, match="one set of weights; drop --ema"):
        convert_file(deit.path, *args, ema=True)
    with pytest.raises(ValueError, match="--ema is for the way to Paddle"):
        convert_file(deit.path, *args, ema=True, reverse=True)
    assert not args[0].exists()


def test_summary_and_metadata_say_what_was_done(tmp_path, toy):
    dst = tmp_path / "there"
    made = convert_file(toy("swin_microsoft").path, dst, "swin_microsoft", "swin_tiny_sot")
    lines = made.summary().splitlines()
    assert lines[0].endswith("1+2 blocks, width 12, embedding densenet, head mgcrp")
    assert any("relative_position_index" in line and "window size" in line for line in lines)
    assert any("patch_embed.proj.weight" in line and "replaces" in line for line in lines)
    assert any("left at initialisation: embed.* (55 tensors)" in line for line in lines)
    config = json.loads((dst / "config.json").read_text())
    options = {"model": "swin_tiny_sot", "embed_dim": 12, "depths": [1, 2], "num_heads": [2, 3]}
    assert config == {**options, "qkv_bias": True}
    _, metadata = read_tensors(dst / "model.safetensors")
    assert (metadata["layout"], metadata["embed"]) == ("swin_microsoft", "densenet")
    assert json.loads(metadata["config"]) == config
    manifest = json.loads((dst / "manifest.json").read_text())
    assert (manifest["depths"], manifest["num_attention_heads"]) == ([1, 2], None)
