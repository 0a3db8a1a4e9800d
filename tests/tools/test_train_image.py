import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "train_image.py"
NO_TORCH = """
import importlib.machinery, runpy, sys
finder = importlib.machinery.PathFinder
found = finder.find_spec
finder.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.argv = {argv!r}
runpy.run_path({tool!r}, run_name="__main__")
"""


def _run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.slow
def test_the_digits_are_trained_and_evaluated_without_torch(tmp_path):
    out = tmp_path / "out"
    flags = ["digits", "--config", str(ROOT / "configs" / "digits" / "sot_digits.yaml")]
    flags += ["--output", str(out), "--max-steps", "2", "-b", "16", "--set", "depth=1"]
    flags += ["--set", "token_type=patch", "--set", "patch_size=8"]
    code = NO_TORCH.format(argv=[str(TOOL), *flags], tool=str(TOOL))
    done = _run("-c", code)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1433 training and 364 validation images of 10 classes, 32 pixels" in done.stderr
    assert (out / "best" / "ema.safetensors").is_file()
    seen = _run(
        str(ROOT / "tools" / "eval_image.py"), "digits", "--weights", str(out), "--workers", "0"
    )
    assert seen.returncode == 0, seen.stderr[-3000:]
    assert "364 images in" in seen.stdout
    assert len([line for line in seen.stdout.splitlines() if line[:1].isdigit()]) == 10


def test_a_refusal_is_one_line(tmp_path):
    done = _run(str(TOOL), str(tmp_path), "--model", "SoT_Tinny", "--output", str(tmp_path / "o"))
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("train_image: unknown image model 'SoT_Tinny'; did you mean")
    assert not (tmp_path / "o").exists()


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
