"""The command: runs from a checkout without frameworks, one line and exit status 2 on errors."""

import json
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors, write_tensors
from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.tools import tool_runs

TINY = ("--layout", "bert_hf", "--model", "bert_base")


@pytest.fixture
def checkpoint(tmp_path):
    """A two-layer BERT without a head, as a file."""
    write_tensors(tmp_path / "a.safetensors", tiny.fill(tiny.encoder_shapes(""), "float64"))
    return tmp_path / "a.safetensors"


@pytest.mark.parametrize(
    ("layout", "model", "shapes", "said"),
    [
        ("bert_hf", "bert_base", tiny.encoder_shapes(""), "37 tensors, bert_base, 2 layers, hid"),
        ("deit_timm", "deit_tiny", tiny.deit(), "32 tensors, deit_tiny, 2 blocks, width 12,"),
    ],
)
def test_there_without_any_framework_and_back(tmp_path, layout, model, shapes, said):
    source = tmp_path / "a.safetensors"
    there, back = tmp_path / "there.pdparams", tmp_path / "back.safetensors"
    write_tensors(source, tiny.fill(shapes, "float64"))
    blocked = ("paddle", "torch", "transformers", "timm", "paddlenlp", "scipy")
    args = ("--layout", layout, "--model", model)
    done = tool_runs.run("convert_weights", *args, source, there, without=blocked)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith(f"wrote {there}: {said}")
    flags = (*args, "--reverse", there, back)
    assert tool_runs.load("convert_weights").main([*map(str, flags)]) == 0
    original, returned = read_tensors(source)[0], read_tensors(back)[0]
    assert set(original) == set(returned)
    for name in original:
        assert original[name].tobytes() == returned[name].tobytes()
        assert returned[name].dtype == np.float64
    assert json.loads(Path(f"{back}.manifest.json").read_text())["reverse"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*TINY, "gone.safetensors", "DST"), "gone.safetensors: no such file"),
        ((*TINY, "--dtype", "int8", "SRC", "DST"), "invalid choice: 'int8'"),
        ((*TINY, "--reverse", "SRC", "DST"), "drop --reverse"),
        ((*TINY, "--ema", "SRC", "DST"), "holds one set of weights; drop --ema"),
    ],
)
def test_a_refusal_is_one_line_and_status_2(tmp_path, checkpoint, arguments, message, capsys):
    dst = tmp_path / "out.safetensors"
    places = {"SRC": checkpoint, "DST": dst}
    given = (places.get(argument, argument) for argument in arguments)
    line = tool_runs.refused_here(capsys, "convert_weights", *given)
    assert line.startswith("convert_weights: error: ")
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors"]


def test_a_torch_file_without_torch_is_one_line(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"x")
    ends = (tmp_path / "a.bin", tmp_path / "b.safetensors")
    line = tool_runs.refused("convert_weights", *TINY, *ends, without=("torch",))
    assert "a.bin: .bin files need torch, which is not installed" in line
