import json
from pathlib import Path

import pytest
import torch

from tests.sot_paddle.convert import tiny_checkpoints as tiny
from tests.tools import tool_runs

LAYOUT = ("--layout", "deit_official")
TINY = (*LAYOUT, "--model", "deit_tiny")


@pytest.fixture
def begun(tmp_path) -> Path:
    """One torch file of a tiny DeiT with random weights, after 3 updates of AdamW."""
    arrays = tiny.fill(tiny.deit())
    parameters = {n: torch.nn.Parameter(torch.from_numpy(a)) for n, a in arrays.items()}
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3, weight_decay=0.05)
    for _ in range(3):
        sum((p**2).sum() for p in parameters.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: p.detach() for name, p in parameters.items()}
    path = tmp_path / "begun.pth"
    torch.save({"model": weights, "optimizer": optimizer.state_dict(), "step": 3}, path)
    (tmp_path / "names.json").write_text(json.dumps([list(parameters)]), encoding="utf-8")
    return path


def test_there_without_paddle_and_back(begun, tmp_path, capsys):
    ours, back, names = tmp_path / "ours", tmp_path / "back.pth", tmp_path / "names.json"
    there = ("--from", "torch", begun, "--to", "paddle", ours, "--model", "deit_tiny")
    flags = (*LAYOUT, *there, "--names", names)
    done = tool_runs.run("convert_state", *flags, without=("paddle",), python=("-W", "error"))
    assert done.returncode == 0, done.stderr
    flags = (*LAYOUT, "--from", "paddle", ours, "--to", "torch", back, "--names", names)
    assert tool_runs.load("convert_state").main([*map(str, flags)]) == 0
    for written, said in ((ours, done.stdout), (back, capsys.readouterr().out)):
        assert said.startswith(f"wrote {written}: adamw, 32 weights, 64 moments, after 3")
    first, again = (torch.load(path, weights_only=True) for path in (begun, back))
    assert first["step"] == again["step"]
    for name, tensor in first["model"].items():
        assert torch.equal(again["model"][name], tensor)
    for index, entry in first["optimizer"]["state"].items():
        for key, tensor in entry.items():
            assert torch.equal(again["optimizer"]["state"][index][key], tensor)


def test_a_refusal_is_one_line_and_writes_nothing(begun, tmp_path, capsys):
    """The others: tests/sot_paddle/convert/test_state_command.py."""
    held = torch.load(begun, weights_only=True)
    del held["optimizer"]["state"][5]["exp_avg"]
    torch.save(held, begun)
    target, named = tmp_path / "ours", ("--names", tmp_path / "names.json")
    ends = ("--from", "torch", begun, "--to")
    line = tool_runs.refused_here(capsys, "convert_state", *ends, "paddle", target, *TINY, *named)
    assert line.startswith("convert_state: error: ")
    assert "moment1 is missing: blocks.0.norm1.bias" in line
    assert not target.exists()
