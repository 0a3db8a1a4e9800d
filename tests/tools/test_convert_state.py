import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sot_paddle.checkpoint import read_tensors, write_tensors

BLOCKED = """
import runpy, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "{}":
            raise ModuleNotFoundError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "convert_state.py"


def _tool():
    spec = importlib.util.spec_from_file_location("convert_state_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _only_line(text: str) -> str:
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


@pytest.fixture
def begun(tmp_path) -> Path:
    """One torch file of a tiny DeiT with random weights, after 3 updates of AdamW."""
    rng = np.random.default_rng(0)
    wide, mlp, classes = 12, 20, 3
    shapes = {
        "cls_token": (1, 1, wide),
        "pos_embed": (1, 10, wide),
        "patch_embed.proj.weight": (wide, 3, 4, 4),
        "patch_embed.proj.bias": (wide,),
    }
    block = {"norm1": (wide,), "attn.qkv": (3 * wide, wide), "attn.proj": (wide, wide)}
    block |= {"norm2": (wide,), "mlp.fc1": (mlp, wide), "mlp.fc2": (wide, mlp)}
    names = {f"blocks.0.{name}": shape for name, shape in block.items()}
    for name, shape in {**names, "norm": (wide,), "head": (classes, wide)}.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    parameters = {
        n: torch.nn.Parameter(torch.from_numpy(rng.random(s, np.float32)))
        for n, s in shapes.items()
    }
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3, weight_decay=0.05)
    for _ in range(3):
        sum((p**2).sum() for p in parameters.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: p.detach() for name, p in parameters.items()}
    path = tmp_path / "begun.pth"
    torch.save({"model": weights, "optimizer": optimizer.state_dict(), "step": 3}, path)
    return path


def test_there_and_back_by_the_command_line_without_paddle(begun, tmp_path):
    start = [sys.executable, "-W", "error", "-c", BLOCKED.format("paddle"), str(TOOL)]
    start += ["--layout", "deit_official"]
    ours, back = tmp_path / "ours", tmp_path / "back.pth"
    for flags in (
        ["--from", "torch", str(begun), "--to", "paddle", str(ours), "--model", "deit_tiny"],
        ["--from", "paddle", str(ours), "--to", "torch", str(back), "--like", str(begun)],
    ):
        done = subprocess.run(
            [*start, *flags], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"wrote {flags[5]}: adamw, 20 weights, 40 moments, after 3")
    first, again = (torch.load(path, weights_only=True) for path in (begun, back))
    assert first["step"] == again["step"]
    for name, tensor in first["model"].items():
        assert torch.equal(again["model"][name], tensor)
    for index, entry in first["optimizer"]["state"].items():
        for key, tensor in entry.items():
            assert torch.equal(again["optimizer"]["state"][index][key], tensor)


def test_a_refusal_is_one_line_and_writes_nothing(begun, tmp_path, capsys):
    tool = _tool()
    held = torch.load(begun, weights_only=True)
    del held["optimizer"]["state"][5]["exp_avg"]
    torch.save(held, begun)
    target = tmp_path / "ours"
    flags = ["--from", "torch", str(begun), "--to", "paddle", str(target)]
    flags += ["--layout", "deit_official", "--model", "deit_tiny"]
    assert tool.main(flags) == 2
    line = _only_line(capsys.readouterr().err)
    assert line.startswith("convert_state: error: ")
    assert "moment1 is missing: blocks.0.norm1.bias" in line
    assert not target.exists()
    assert tool.main([*flags[:4], "torch", *flags[5:]]) == 2
    assert "expected torch and paddle" in _only_line(capsys.readouterr().err)


def test_without_torch_the_refusal_says_so(begun, tmp_path):
    flags = ["--from", "torch", str(begun), "--to", "paddle", str(tmp_path / "ours")]
    flags += ["--layout", "deit_official", "--model", "deit_tiny"]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED.format("torch"), str(TOOL), *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "needs torch" in _only_line(done.stderr)


def test_a_converted_folder_without_its_state_is_refused(begun, tmp_path, capsys):
    ours = tmp_path / "ours"
    flags = ["--layout", "deit_official", "--model", "deit_tiny"]
    assert _tool().main(["--from", "torch", str(begun), "--to", "paddle", str(ours), *flags]) == 0
    arrays, metadata = read_tensors(ours / "model.safetensors")
    (tmp_path / "bare").mkdir()
    write_tensors(tmp_path / "bare" / "model.safetensors", arrays, metadata)
    capsys.readouterr()
    ends = ["--from", "paddle", str(tmp_path / "bare"), "--to", "torch", str(tmp_path / "b.pth")]
    assert _tool().main([*ends, *flags]) == 2
    assert "expected the state of an optimizer" in _only_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "the following arguments are required"),
        (["--from", "torch"], "expected 2 arguments"),
        (["--optimizer", "lion"], "invalid choice"),
    ],
)
def test_wrong_options_are_one_line(flags, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        _tool().main(flags)
    assert stopped.value.code == 2
    assert message in _only_line(capsys.readouterr().err)


def test_help_shows_examples_and_the_exit_status(capsys):
    with pytest.raises(SystemExit) as stopped:
        _tool().main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "--like RUN" in shown
    assert "Exit status: 0 done, 2 refused" in shown


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
