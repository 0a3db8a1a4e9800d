"""The benchmark runs and reports; no time is ever judged."""

import importlib.util
import json
import math
from pathlib import Path

import pytest

from align.cases import speed

TOOL = Path(__file__).resolve().parents[2] / "tools" / "bench.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("bench_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_quick_run_measures_every_side(tool, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("SOT_PADDLE_TUNE", raising=False)
    path = tmp_path / "new" / "bench.json"
    assert tool.main(["--quick", "--repeats", "1", "--threads", "1", "--json", str(path)]) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["threads"], found["repeats"]) == (1, 1)
    rows = {(row["workload"], row["mode"]) for row in found["results"]}
    assert rows == {(w.name, mode) for w in speed.TINY_WORKLOADS for mode in speed.MODES}
    for row in found["results"]:
        assert set(row["median_s"]) == set(row["fastest_s"]) == {"paddle", "pytorch", "installed"}
        numbers = [*row["median_s"].values(), *row["fastest_s"].values()]
        numbers += [row["ratio"], row["ratio_as_installed"]]
        assert all(math.isfinite(number) and number > 0 for number in numbers)
    sides = found["environment"]
    assert sides["pytorch"] == {"framework": sides["pytorch"]["framework"], "threads": 1}
    assert sides["paddle"]["tuning"]["OMP_NUM_THREADS"].startswith("1")
    assert sides["paddle"]["tuning"]["FLAGS_use_stride_kernel"].startswith("0")
    assert sides["installed"]["tuning"] == {"SOT_PADDLE_TUNE": "0 (nothing tuned)"}
    assert sides["paddle"]["frameworks_loaded"] == ["paddle"]  # a process of its own
    out = capsys.readouterr().out
    assert "1 threads each, medians of 1 turns" in out
    assert all(workload.name in out for workload in speed.TINY_WORKLOADS)


def test_the_workloads_are_those_of_the_specification():
    assert [(w.model, w.batch, w.length) for w in speed.WORKLOADS] == [
        ("bert_base", 8, 128),
        ("bert_base_mgcrp", 8, 128),
        ("head", 32, 197),
        ("bert_base_mgcrp", 32, 48),
    ]
    assert speed.WORKLOADS[2].channels == 384
    names = [w.name for w in (*speed.WORKLOADS, *speed.TINY_WORKLOADS)]
    assert len(set(names)) == len(names)


def test_a_row_reports_medians_and_ratios():
    turns = {"paddle": [1.0, 3.0, 2.0], "pytorch": [4.0, 4.0, 9.0], "installed": [8.0, 8.0, 8.0]}
    row = speed.SpeedRow("w", "train", turns)
    found = row.to_json()
    assert found["median_s"] == {"paddle": 2.0, "pytorch": 4.0, "installed": 8.0}
    assert found["fastest_s"] == {"paddle": 1.0, "pytorch": 4.0, "installed": 8.0}
    assert (found["ratio"], found["ratio_as_installed"]) == (0.5, 2.0)
    assert found["disturbed"]  # 2 is far above 1
    assert speed.table([row]).splitlines()[1].split() == [
        *("w", "train", "4000.0", "2000.0", "0.50", "0.25", "8000.0", "2.00", "*")
    ]


def test_a_calm_run_has_no_mark():
    row = speed.SpeedRow("w", "train", dict.fromkeys(speed.SIDES, [1.0, 1.1, 1.2]))
    assert not row.disturbed
    assert "*" not in speed.table([row])


def test_the_inputs_are_the_same_on_both_sides_and_valid():
    for workload in (*speed.WORKLOADS, *speed.TINY_WORKLOADS):
        batch, again = speed.inputs(workload), speed.inputs(workload)
        assert all((batch[name] == again[name]).all() for name in batch)
        if workload.model == "head":
            assert batch["tokens"].dtype == "float32"
        else:
            assert batch["input_ids"].max() < workload.options.get("vocab_size", 30522)


def test_the_environment_of_each_side(monkeypatch):
    started = {}

    class Process:
        def __init__(self, command, env, **options):
            started[command[-1]] = env

        def kill(self):
            pass

        def communicate(self):
            pass

    monkeypatch.setattr(speed.subprocess, "Popen", Process)
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "9")
    for side in speed.SIDES:
        with speed.SpeedWorker(side, 3):
            pass
    assert started["paddle"]["OMP_NUM_THREADS"] == started["pytorch"]["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in started["installed"]
    assert "MKL_DEBUG_CPU_TYPE" not in started["installed"]
    assert "MKL_DEBUG_CPU_TYPE" not in started["pytorch"]
    assert started["installed"]["SOT_PADDLE_TUNE"] == "0"


def test_a_side_that_cannot_run_is_one_line_and_exit_status_2(tool, monkeypatch, capsys, tmp_path):
    broken = [speed.Workload("unknown to the workers", "bert_base", 1, 8)]
    monkeypatch.setattr(speed, "TINY_WORKLOADS", broken)
    monkeypatch.setattr(speed, "SIDES", ("pytorch",))
    path = tmp_path / "bench.json"
    assert tool.main(["--quick", "--repeats", "1", "--json", str(path)]) == 2
    out, messages = capsys.readouterr()
    assert out == ""
    last = messages.splitlines()[-1]
    assert last.startswith("bench: error: the pytorch side cannot measure unknown to the workers")
    assert "KeyError" in last
    assert "Traceback" not in messages
    assert not path.exists()


def test_a_folder_in_place_of_the_json_file_is_refused_before_the_work(tool, capsys, tmp_path):
    assert tool.main(["--quick", "--json", str(tmp_path)]) == 2
    assert f"bench: error: cannot write to {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--threads", "--repeats"])
@pytest.mark.parametrize("value", ["0", "-2", "many"])
def test_numbers_below_one_are_refused(tool, flag, value, capsys):
    with pytest.raises(SystemExit) as stop:
        tool.main([flag, value])
    assert stop.value.code == 2
    assert flag in capsys.readouterr().err


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
