"""The search on real trainings of a tiny model; what both commands refuse."""

import csv
import json

import pytest

from sot_paddle.search.training_process import LOG, OUTPUT, _Watched, scores_by_step
from tests.sot_paddle.train import tiny_run
from tests.tools import tool_runs

SPACE = """
command: train_glue
metric: loss
direction: minimize
trials: 2
startup_trials: 1
pruner: median
parameters:
  learning_rate: {kind: log_uniform, low: 1.0e-4, high: 1.0e-2}
"""


@pytest.fixture
def training(tmp_path) -> list[str]:
    data = tiny_run.write_glue(tmp_path)
    model = tiny_run.write_model(tmp_path / "model")
    flags = tiny_run.command(data, model, tmp_path / "out", "--max_steps", "4", "--eval_steps", "2")
    for name in ("--output_dir", "--learning_rate"):
        at = flags.index(name)
        flags[at : at + 2] = []
    return flags


@pytest.mark.long
def test_a_search_runs_real_trainings_and_reads_their_lines(tmp_path, training):
    (tmp_path / "space.yaml").write_text(SPACE, encoding="utf-8")
    out = tmp_path / "out"
    own = ("--space", tmp_path / "space.yaml", "--output_dir", out)
    done = tool_runs.run("search", *own, "--", *training)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("best of 2 trials: loss ")
    with open(out / "trials.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for number, row in enumerate(rows):
        folder = out / "trials" / f"{number:04d}"
        metrics = json.loads((folder / OUTPUT / "metrics.json").read_text(encoding="utf-8"))
        assert metrics["options"]["learning_rate"] == float(row["learning_rate"])
        scores = scores_by_step(metrics, "loss")
        assert list(scores) == [2, 4]
        assert float(row["loss"]) == min(scores.values())
        printed = []  # what the pruner sees meanwhile
        assert not _Watched(folder / LOG, printed.append).is_to_end()
        assert [(one.step, one.steps) for one in printed] == [(2, 4), (4, 4)]
        assert [one.scores["loss"] for one in printed] == pytest.approx(
            list(scores.values()), abs=6e-5
        )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("search", ("--space", "no.yaml", "--output_dir", "o"), "search: cannot read no.yaml"),
        ("search", ("--spaces", "no.yaml"), "search.py: error: "),
        ("sweep", ("--command", "train", "--a", "x=1"), "sweep.py: error: argument --command"),
    ],
)
def test_bad_input_is_one_line_and_status_2(name, arguments, message):
    assert message in tool_runs.refused(name, *arguments)
