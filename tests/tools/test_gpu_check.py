import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("gpu_check_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so(tool, capsys, monkeypatch):
    from sot_paddle.train import gpu_check

    monkeypatch.setattr(gpu_check, "device_lines", list)
    assert tool.main([]) == 0
    assert capsys.readouterr().out.startswith("gpu-check: skipped, there is no GPU here")
    assert tool.main(["--require-gpu"]) == 2


def test_one_failure_fails_the_whole(tool, capsys, monkeypatch):
    from sot_paddle.train import gpu_check

    monkeypatch.setattr(gpu_check, "device_lines", lambda: ["stamp", "gpu:0 x"])
    monkeypatch.setattr(gpu_check, "prepare", lambda folder: ())
    monkeypatch.setattr(gpu_check, "checks", lambda folder, flags, gpus: list(range(gpus + 2)))
    monkeypatch.setattr(gpu_check, "run_check", lambda check, say: check != 1)
    assert tool.main([]) == 1
    assert "gpu-check: 2 of 3 passed" in capsys.readouterr().out
    monkeypatch.setattr(gpu_check, "run_check", lambda check, say: True)
    assert tool.main([]) == 0


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
