"""The benchmark runs and reports; no time is ever judged."""

import json
import math

import pytest

from tests.tools import tool_runs


@pytest.fixture(scope="module")
def tool():
    return tool_runs.load("bench")


@pytest.mark.slow
def test_a_quick_run_measures_every_side(tool, capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("SOT_PADDLE_TUNE", raising=False)
    path = tmp_path / "new" / "bench.json"
    assert tool.main(["--quick", "--repeats", "1", "--threads", "1", "--json", str(path)]) == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["threads"], found["repeats"]) == (1, 1)
    rows = {(row["workload"], row["mode"]) for row in found["results"]}
    assert rows == {(w.name, mode) for w in tool.TINY_WORKLOADS for mode in tool.MODES}
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
    assert sides["installed"]["native_operators"] == "not used: SOT_PADDLE_NATIVE=0"
    assert sides["paddle"]["native_operators"] != "not asked for"
    assert sides["paddle"]["frameworks_loaded"] == ["paddle"]  # a process of its own
    out = capsys.readouterr().out
    assert "1 threads each, medians of 1 turns" in out
    assert all(workload.name in out for workload in tool.TINY_WORKLOADS)


def test_a_row_reports_medians_and_ratios(tool):
    turns = {"paddle": [1.0, 3.0, 2.0], "pytorch": [4.0, 4.0, 9.0], "installed": [8.0, 8.0, 8.0]}
    row = tool.Row("w", "train", turns)
    found = row.to_json()
    assert found["median_s"] == {"paddle": 2.0, "pytorch": 4.0, "installed": 8.0}
    assert found["fastest_s"] == {"paddle": 1.0, "pytorch": 4.0, "installed": 8.0}
    assert (found["ratio"], found["ratio_as_installed"]) == (0.5, 2.0)
    assert found["disturbed"]  # 2 is far above 1
    assert tool.table([row]).splitlines()[1].split() == [
        *("w", "train", "4000.0", "2000.0", "0.50", "0.25", "8000.0", "2.00", "*")
    ]


def test_a_side_that_cannot_run_is_one_line_and_exit_status_2(tool, monkeypatch, capsys, tmp_path):
    broken = [tool.Workload("unknown to the workers", "bert_base", 1, 8)]
    monkeypatch.setattr(tool, "TINY_WORKLOADS", broken)
    monkeypatch.setattr(tool, "SIDES", ("pytorch",))
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
