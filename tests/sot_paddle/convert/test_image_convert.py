"""Files of image models there and back: containers, averages, sizes, classes, notes."""

import argparse
import json

import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.convert import convert_file

CONSTANTS = ("relative_position_index", "attn_mask")


def draw(image_shapes, random_arrays, layout: str, dtype: str = "float32", **options):
    """Random arrays of a layout, counters and constants as a fresh model has them."""
    arrays = random_arrays(image_shapes(layout, **options), dtype)
    for name in arrays:
        if name.endswith("num_batches_tracked"):
            arrays[name] = np.zeros((), np.int64)
        elif name.endswith("relative_position_index"):
            arrays[name] = arrays[name].astype(np.int64)
    return arrays


@pytest.fixture
def drawn(image_shapes, random_arrays):
    return lambda layout, *args, **options: draw(
        image_shapes, random_arrays, layout, *args, **options
    )


@pytest.mark.parametrize(
    ("layout", "model", "keys"),
    [
        ("sot_official", "sot_tiny", ["state_dict", "state_dict_ema"]),
        ("deit_official", "deit_tiny", ["model"]),
        ("swin_microsoft", "swin_tiny", ["model"]),
        ("deit_timm", "deit_tiny", []),
        ("swin_timm", "swin_tiny", []),
    ],
)
def test_torch_files_come_back_where_the_original_looks(tmp_path, drawn, layout, model, keys):
    torch = pytest.importorskip("torch")
    arrays = {n: a for n, a in drawn(layout).items() if not n.endswith(CONSTANTS)}
    write_tensors(tmp_path / "a.safetensors", arrays)
    convert_file(tmp_path / "a.safetensors", tmp_path / "b.safetensors", layout, model)
    made = convert_file(tmp_path / "b.safetensors", tmp_path / "c.pth", layout, model, reverse=True)
    content = torch.load(tmp_path / "c.pth", weights_only=True)
    assert not keys or list(content) == keys
    assert any("written under" in note for note in made.notes) == bool(keys)
    for state in [content[key] for key in keys] or [content]:
        assert set(state) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(state[name].numpy(), array)
    size = (tmp_path / "c.pth").stat().st_size
    assert size < 1.5 * (tmp_path / "a.safetensors").stat().st_size  # stored once
    convert_file(tmp_path / "c.pth", tmp_path / "d.safetensors", layout, model)
    assert (tmp_path / "d.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.fixture
def training_file(tmp_path, drawn):
    """A checkpoint as the original's training writes it, DataParallel and averages included."""
    torch = pytest.importorskip("torch")
    arrays = drawn("sot_official")
    averaged = {n: a + 1 if a.ndim else a for n, a in arrays.items()}
    content = {
        "epoch": 3,
        "arch": "SoT_Tiny",
        "state_dict": {f"module.{n}": torch.tensor(a) for n, a in arrays.items()},
        "optimizer": {"state": {0: {"step": 7}}, "param_groups": []},
        "version": 2,
        "args": argparse.Namespace(model="SoT_Tiny", lr=1e-3),
        "state_dict_ema": {n: torch.tensor(a) for n, a in averaged.items()},
        "metric": 80.3,
    }
    torch.save(content, tmp_path / "model_best.pth.tar")
    return tmp_path / "model_best.pth.tar", arrays, averaged


@pytest.mark.parametrize("ema", [False, True])
def test_averaged_weights_are_taken_when_asked_for(tmp_path, training_file, ema):
    path, arrays, averaged = training_file
    dst = tmp_path / "there.safetensors"
    made = convert_file(path, dst, "sot_official", "sot_tiny", ema=ema)
    tensors, _ = read_tensors(dst)
    expected = averaged if ema else arrays
    np.testing.assert_array_equal(tensors["cls_token"], expected["cls_token"])
    key = "state_dict_ema" if ema else "state_dict"
    said = "\n".join(made.notes)
    assert f"the state dict under the key {key!r} is used" in said
    passed = "under 'state_dict_ema' are passed over (--ema, or leaving --no-ema out, takes them)"
    assert (passed in said) != ema
    assert ("every name begins with 'module.': stripped" in said) != ema


@pytest.mark.parametrize("wrapping", ["module._orig_mod.", "_orig_mod.module."])
def test_a_model_wrapped_twice_is_unwrapped_in_either_order(tmp_path, drawn, wrapping):
    torch = pytest.importorskip("torch")
    arrays = drawn("deit_official")
    state = {f"{wrapping}{name}": torch.tensor(array) for name, array in arrays.items()}
    torch.save({"model": state}, tmp_path / "a.pth")
    made = convert_file(
        tmp_path / "a.pth", tmp_path / "b.safetensors", "deit_official", "deit_tiny"
    )
    tensors, _ = read_tensors(tmp_path / "b.safetensors")
    np.testing.assert_array_equal(tensors["cls_token"], arrays["cls_token"])
    assert sum(f"every name begins with {wrapping!r}: stripped" in note for note in made.notes) == 1


def test_averages_that_are_not_there_are_refused(tmp_path, drawn):
    torch = pytest.importorskip("torch")
    state = {n: torch.tensor(a) for n, a in drawn("deit_official").items()}
    torch.save({"model": state}, tmp_path / "a.pth")
    torch.save({"model_ema": state}, tmp_path / "b.pth")
    write_tensors(tmp_path / "c.safetensors", drawn("deit_official"))
    args = (tmp_path / "x.safetensors", "deit_official", "deit_tiny")
    with pytest.raises(ValueError, match=r"no averaged weights, .*; it holds model \(32 tensors"):
        convert_file(tmp_path / "a.pth", *args, ema=True)
    with pytest.raises(
        ValueError, match="averaged weights only .model_ema.*--ema, or leaving --no-ema out"
    ):
        convert_file(tmp_path / "b.pth", *args)
    with pytest.raises(ValueError, match="one set of weights; drop --ema"):
        convert_file(tmp_path / "c.safetensors", *args, ema=True)
    with pytest.raises(ValueError, match="--ema is for the way to Paddle"):
        convert_file(tmp_path / "c.safetensors", *args, ema=True, reverse=True)
    assert not args[0].exists()


def test_summary_and_metadata_say_what_was_done(tmp_path, drawn):
    write_tensors(tmp_path / "a.safetensors", drawn("swin_microsoft"))
    dst = tmp_path / "there"
    made = convert_file(tmp_path / "a.safetensors", dst, "swin_microsoft", "swin_tiny_sot")
    lines = made.summary().splitlines()
    assert lines[0].endswith("1+2 blocks, width 12, embedding densenet, head mgcrp")
    assert any("relative_position_index" in line and "window size" in line for line in lines)
    assert any("patch_embed.proj.weight" in line and "replaces" in line for line in lines)
    assert any("left at initialisation: embed.* (55 tensors)" in line for line in lines)
    config = json.loads((dst / "config.json").read_text())
    assert config == {
        "model": "swin_tiny_sot",
        "embed_dim": 12,
        "depths": [1, 2],
        "num_heads": [2, 3],
        "qkv_bias": True,
    }
    _, metadata = read_tensors(dst / "model.safetensors")
    assert (metadata["layout"], metadata["embed"]) == ("swin_microsoft", "densenet")
    assert json.loads(metadata["config"]) == config
    manifest = json.loads((dst / "manifest.json").read_text())
    assert (manifest["depths"], manifest["num_attention_heads"]) == ([1, 2], None)
