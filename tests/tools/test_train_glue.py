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


def test_the_source_command_runs_on_the_real_checkpoint(tmp_path, real_checkpoint, shared_file):
    """In a process of its own, without torch."""
    counts = {"train.tsv": 9, "dev.tsv": 5, "test.tsv": 4}
    data = _rows(shared_file("data/RTE"), tmp_path, counts)
    before = {path: path.stat().st_mtime_ns for path in real_checkpoint.rglob("*")}
    flags = ["--model_type", "bert", "--model_name_or_path", str(real_checkpoint)]
    flags += ["--task_name", "RTE", "--do_lower_case", "--do_train", "--do_eval", "--do_predict"]
    flags += ["--data_dir", str(data), "--max_seq_length", "128"]
    flags += ["--per_gpu_train_batch_size", "4", "--learning_rate", "2e-5"]
    flags += ["--num_train_epochs", "10", "--output_dir", str(tmp_path / "OUTPUT")]
    flags += ["--eval_all_checkpoints", "--max_steps", "2", "--cache_dir", str(tmp_path / "cache")]
    done = tool_runs.run("train_glue", *flags, without=("torch",))
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = json.loads((tmp_path / "OUTPUT" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["finished"]
    assert metrics["train"]["steps"] == 2
    assert "tensors from" in done.stderr
    assert "q_dim 56" in done.stderr
    rows = (tmp_path / "OUTPUT" / "RTE.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "index\tprediction"
    assert [row.split("\t")[0] for row in rows[1:]] == ["0", "1", "2"]
    assert {row.split("\t")[1] for row in rows[1:]} <= {"entailment", "not_entailment"}
    assert {path: path.stat().st_mtime_ns for path in real_checkpoint.rglob("*")} == before
