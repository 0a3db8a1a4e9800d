import json
from pathlib import Path

import pytest

from tests.tools import tool_runs

pytestmark = pytest.mark.slow


def _rows(source: Path, folder: Path, counts: dict[str, int]) -> Path:
    """The first rows of the real files, so that the test is short."""
    target = folder / source.name
    target.mkdir()
    for name, count in counts.items():
        lines = (source / name).read_bytes().split(b"\n")
        (target / name).write_bytes(b"\n".join(lines[:count]) + b"\n")
    return target


@pytest.mark.parametrize(
    ("task", "q_dim", "words", "apart"),
    [("RTE", 56, {"entailment", "not_entailment"}, True), ("CoLA", 96, {"0", "1"}, False)],
)
def test_the_source_commands_run_on_the_real_checkpoint(
    tmp_path, real_checkpoint, shared_file, capsys, task, q_dim, words, apart
):
    """One of them in a process of its own, without torch."""
    counts = {"train.tsv": 33, "dev.tsv": 9, "test.tsv": 8}
    data = _rows(shared_file(f"data/{task}"), tmp_path, counts)
    before = {path: path.stat().st_mtime_ns for path in real_checkpoint.rglob("*")}
    flags = ["--model_type", "bert", "--model_name_or_path", str(real_checkpoint)]
    flags += ["--task_name", task, "--do_lower_case", "--do_train", "--do_eval", "--do_predict"]
    flags += ["--data_dir", str(data), "--max_seq_length", "128"]
    flags += ["--per_gpu_train_batch_size", "4", "--learning_rate", "2e-5"]
    flags += ["--num_train_epochs", "10", "--output_dir", str(tmp_path / "OUTPUT")]
    flags += ["--eval_all_checkpoints", "--max_steps", "2", "--cache_dir", str(tmp_path / "cache")]
    if apart:
        done = tool_runs.run("train_glue", *flags, without=("torch",))
        status, said = done.returncode, done.stderr
    else:
        status, said = tool_runs.load("train_glue").main(flags), capsys.readouterr().err
    assert status == 0, said[-3000:]
    metrics = json.loads((tmp_path / "OUTPUT" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["finished"]
    assert metrics["train"]["steps"] == 2
    assert "tensors from" in said
    assert f"q_dim {q_dim}" in said
    rows = (tmp_path / "OUTPUT" / f"{task}.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "index\tprediction"
    assert [row.split("\t")[0] for row in rows[1:]] == [str(index) for index in range(7)]
    assert {row.split("\t")[1] for row in rows[1:]} <= words
    assert {path: path.stat().st_mtime_ns for path in real_checkpoint.rglob("*")} == before


def test_a_hub_name_that_is_not_local_is_refused_in_one_line(tmp_path):
    line = tool_runs.refused(
        *("train_glue", "--task_name", "RTE", "--data_dir", tmp_path),
        *("--output_dir", tmp_path / "o"),
        *("--model_name_or_path", "bert-base-cased-not-here", "--do_train"),
    )
    assert line.startswith("train_glue: ")
    assert "give the folder as --model_name_or_path" in line
    assert not (tmp_path / "o").exists()
