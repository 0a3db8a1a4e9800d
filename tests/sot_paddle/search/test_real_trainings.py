"""Every command that searches and sweeps run, for real; a search that is killed in a trial."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sot_paddle.search import study
from sot_paddle.search.trainings import COMMANDS, all_options
from tests.sot_paddle.train import tiny_run

ROOT = Path(__file__).resolve().parents[3]
SPACE = """
command: train_glue
metric: loss
direction: minimize
trials: 3
pruner: median
parameters:
  learning_rate: {kind: log_uniform, low: 1.0e-4, high: 1.0e-2}
"""
GIVEN = {
    "train_adapter": "--task_name RTE --states here",
    "train_glue": "--task_name RTE --data_dir here --model_name_or_path there",
    "train_image": "digits --model sot_tiny",
    "train_text": "--task_name IMDB --data_dir here --model_name_or_path there",
    "train_squad": "--model_name_or_path there",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_tool_that_takes_what_its_runs_are_given(name):
    assert (ROOT / "tools" / f"{name}.py").is_file()
    options = all_options(name, GIVEN[name].split(), {"seed": 3})
    flags = [options.get(flag, True) for flag in ("do_train", "do_eval")]  # images have none
    assert (options["seed"], flags) == (3, [True, True])
    assert "output_dir" not in options


def scores(folder: Path) -> dict[int, float]:
    content = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    return {int(step): row["loss"] for step, row in content["evaluations"].items()}


@pytest.mark.long
def test_a_search_that_is_killed_ends_as_a_whole_one(tmp_path, monkeypatch):
    monkeypatch.setenv("SOT_PADDLE_NATIVE", "0")  # in both processes
    data, model = tiny_run.write_glue(tmp_path), tiny_run.write_model(tmp_path / "model")
    flags = tiny_run.command(data, model, tmp_path, "--max_steps", "60")
    flags += ["--eval_steps", "20", "--save_steps", "10"]
    for name in ("--output_dir", "--learning_rate"):
        at = flags.index(name)
        flags[at : at + 2] = []
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")

    def words(out: Path) -> list[str]:
        own = ("--space", tmp_path / "space.yaml", "--output_dir", out)
        return [*map(str, own), "--", *flags]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert study.run_command(words(whole)) == 0
    tool = [sys.executable, str(ROOT / "tools" / "search.py"), *words(killed)]
    with subprocess.Popen(tool, cwd=ROOT) as process:
        deadline = time.monotonic() + 200
        while not list((killed / "trials" / "0001").glob("checkpoint-*")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert not (killed / "trials" / "0001" / "metrics.json").exists()
    assert study.run_command(words(killed)) == 0
    assert (killed / "trials.csv").read_bytes() == (whole / "trials.csv").read_bytes()
    with open(whole / "trials.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for number, row in enumerate(rows):
        found = scores(whole / "trials" / f"{number:04d}")
        assert list(found) == [20, 40, 60]
        assert float(row["loss"]) == min(found.values())
        assert found == scores(killed / "trials" / f"{number:04d}")
