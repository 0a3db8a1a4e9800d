"""The tool itself: a real run in its own process, a refusal of one line, and its size."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "visualize.py"


def _run(*flags: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(TOOL), *map(str, flags)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def _tiny_models():
    path = ROOT / "tests" / "sot_paddle" / "explain" / "tiny_models.py"
    spec = importlib.util.spec_from_file_location("tiny_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_trained_folder_and_the_digits(tmp_path):
    folder = _tiny_models().write_image_model(tmp_path / "model")
    done = _run(folder, "digits", "--target", "bee", "--no-ema", "--out", tmp_path / "out", "--cpu")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [
        *(str(tmp_path / "out" / name) for name in ("images.png", "images.html"))
    ]
    assert done.stderr.splitlines()[0] == "1 of 10: digit 0"
    assert (tmp_path / "out" / "images.html").read_text(encoding="utf-8").count("<img") == 40


def test_a_refusal_is_one_line(tmp_path):
    done = _run(tmp_path / "none", "a.png", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"visualize: {tmp_path / 'none'} holds no trained model: give the folder that "
        "tools/train_image.py or tools/train_glue.py wrote, or its best"
    ]
    assert not (tmp_path / "out").exists()


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
