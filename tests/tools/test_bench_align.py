"""The benchmark of a full-size pair runs and reports; no time is ever judged."""

import json

import pytest

from tests.tools import tool_runs

SPEC = """
import numpy as np

LOSS, OPTIMIZER, STEPS = "mse", "sgd", 1
EPSILON = 1e-5

def torch_module():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))

def paddle_layer():
    from paddle import nn
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3, epsilon=EPSILON))

def inputs():
    return np.random.default_rng(0).normal(size=(5, 4))

def labels():
    return np.zeros((5, 3))
"""


@pytest.fixture(scope="module")
def tool():
    return tool_runs.load("bench_align")


def test_seconds_by_stage_and_peak_memory_are_printed_and_written(tool, capsys, tmp_path):
    spec, out = tmp_path / "tiny.py", tmp_path / "new" / "bench.json"
    spec.write_text(SPEC, encoding="utf-8")
    options = ["--spec", str(spec), "--dtype", "float64", "--json", str(out)]
    assert tool.main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(out.read_text(encoding="utf-8"))
    stages = ("forward float64", "backward float64", "training float64", "total")
    for name in (*stages, "peak memory"):
        assert any(line.startswith(name) for line in lines)
    assert all(found["seconds"][name] > 0 for name in stages)
    assert "training float32" not in found["seconds"]
    assert found["peak_gib"] > 0
    assert found["verdict"].startswith("PASS")


def test_a_pair_that_does_not_align_is_exit_status_1(tool, capsys, tmp_path):
    spec = tmp_path / "tiny.py"
    spec.write_text(SPEC.replace("EPSILON = 1e-5", "EPSILON = 1e-3"), encoding="utf-8")
    assert tool.main(["--spec", str(spec), "--dtype", "float64"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_a_spec_that_cannot_run_is_one_line_and_exit_status_2(capsys, tmp_path):
    line = tool_runs.refused_here(capsys, "bench_align", "--spec", tmp_path / "none.py")
    assert line.startswith("bench_align: error: ")


def test_the_pair_it_measures_is_there_and_full_size(tool):
    text = tool.PAIR.read_text(encoding="utf-8")
    assert "VOCABULARY = 2, 32, 3, 30522" in text
    lines = (tool_runs.ROOT / "tools" / "bench_align.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80
