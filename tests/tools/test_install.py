"""How far an installation is, and what is said when pip fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import tool_runs

SAID = [
    "Looking in indexes: https://pypi.org/simple\n",
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


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A virtual environment with nothing but pip and a module of its own."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (packages(folder) / "own.py").write_text("x = 1\n", encoding="utf-8")
    return folder


def packages(environment: Path) -> Path:
    return next(environment.glob("lib/python*/site-packages"))


def test_a_failure_of_pip_is_shown(environment, tmp_path, capfd):
    tool = tool_runs.load("install")
    pins = tmp_path / "pins.txt"
    pins.write_text("--no-index\nno-such-package-of-ours==1.0\n", encoding="utf-8")
    assert tool.main([str(environment / "bin" / "python"), str(pins)]) == 2
    seen = capfd.readouterr()
    assert seen.out.startswith("setup:   0 of 1 fetched (looking), 0:00")
    assert "No matching distribution found for no-such-package-of-ours==1.0" in seen.err


def test_what_is_installed_is_compiled(environment, tmp_path, capfd):
    """Damaged code in a package, a template say, is left as it is."""
    (pip,) = packages(environment).glob("pip-*.dist-info")
    pins = tmp_path / "pins.txt"
    pins.write_text(pip.stem.replace("-", "==") + "\n", encoding="utf-8")
    (packages(environment) / "template.py").write_text("x = {{ value }\n", encoding="utf-8")
    assert not tool_runs.load("install").main([str(environment / "bin" / "python"), str(pins)])
    seen = capfd.readouterr()
    assert seen.out.splitlines()[-1] == "setup: compiling what was installed"
    assert seen.err == ""
    assert list(packages(environment).glob("__pycache__/own.*.pyc"))
