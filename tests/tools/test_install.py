"""How far an installation is, and what is said when pip fails."""

from __future__ import annotations

import importlib.util
import venv
from pathlib import Path

import pytest

from tests.tools import tool_runs

SAID = [
    "Looking in indexes: https://packages.example/simple\n",
    "Collecting paddlepaddle==3.3.1 (from -r requirements.txt (line 4))\n",
    "  Downloading paddlepaddle-3.3.1-cp311-cp311-manylinux1_x86_64.whl (194.8 MB)\n",
    "Processing /wheels/numpy-1.26.4-cp311-cp311-manylinux_2_17_x86_64.whl (from -r r (line 8))\n",
]


def test_a_line_of_progress():
    tool = tool_runs.load("install")
    assert tool.progress([], 9, 0, 3.2) == "setup:   0 of 9 fetched (looking), 0:03"
    assert (
        tool.progress(SAID[:3], 9, 0, 65) == "setup:   1 of 9 fetched (paddlepaddle==3.3.1), 1:05"
    )
    assert tool.progress(SAID, 9, 0, 65) == "setup:   2 of 9 fetched (numpy-1.26.4), 1:05"
    assert tool.progress(SAID, 9, 4, 660) == "setup:   4 of 9 installed, 11:00"


def test_pins_are_counted(tmp_path):
    (tmp_path / "a.txt").write_text("# one\nnumpy==1.26.4\n\nml_dtypes==0.5.4\n", "utf-8")
    (tmp_path / "b.txt").write_text("PyYAML==6.0.3\n", encoding="utf-8")
    tool = tool_runs.load("install")
    assert tool.pins([tmp_path / "a.txt", tmp_path / "b.txt"]) == 3


@pytest.fixture
def environment(tmp_path) -> Path:
    """A virtual environment that finds the pip of this one: to install its own takes seconds."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    where_pip_is = Path(importlib.util.find_spec("pip").origin).parents[1]
    (packages / "pip.pth").write_text(f"{where_pip_is}\n", encoding="utf-8")
    return folder


def test_a_failure_of_pip_is_shown(environment, tmp_path, capfd):
    tool = tool_runs.load("install")
    pins = tmp_path / "pins.txt"
    pins.write_text("--no-index\nno-such-package-of-ours==1.0\n", encoding="utf-8")
    assert tool.main([str(environment / "bin" / "python"), str(pins)]) == 2
    seen = capfd.readouterr()
    assert seen.out.startswith("setup:   0 of 1 fetched (looking), 0:00")
    assert "No matching distribution found for no-such-package-of-ours==1.0" in seen.err
