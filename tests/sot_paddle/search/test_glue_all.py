"""All of GLUE with a stand-in for the training command; the published tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sot_paddle.search.glue_all import markdown
from sot_paddle.search.glue_all_command import run_command
from sot_paddle.search.glue_recipes import ORDER, SEEDS, TABLES, Recipe, seed_of

STANDIN = """
import argparse, json
from pathlib import Path
parser = argparse.ArgumentParser()
for name in ("task_name", "model_name_or_path", "seed", "output_dir", "max_steps"):
    parser.add_argument("--" + name)
options, rest = parser.parse_known_args()
out = Path(options.output_dir)
out.mkdir(parents=True, exist_ok=True)
score = float(options.seed) / 1000
mnli = {"test_matched": "MNLI-m.tsv", "test_diagnostic": "AX.tsv"}
files = mnli if options.task_name == "MNLI" else {"test": options.task_name + ".tsv"}
for file in files.values():
    (out / file).write_text(options.seed)
given = {**vars(options), "rest": rest}
(out / "metrics.json").write_text(json.dumps({"metric": "acc", "finished": True,
    "last": {"acc": score}, "predictions": files, "given": given}))
with open(out / "started", "a") as stream:
    stream.write("x")
"""


def published(table: str, task: str) -> tuple:
    recipe = TABLES[table][task]
    return recipe.learning_rate, recipe.batch_size, recipe.max_steps, recipe.warmup_steps


def test_the_tables_are_the_published_ones() -> None:
    assert SEEDS == (42, 97, 834, 622, 329, 75, 213, 101, 123, 57)
    assert ORDER == ("MNLI", "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "QNLI", "RTE", "WNLI")
    for table in TABLES.values():
        assert set(table) == set(ORDER)
        assert all(isinstance(recipe, Recipe) for recipe in table.values())
    assert published("electra_base", "MNLI") == (1e-4, 128, 12121, 1212)
    assert published("electra_base", "STS-B") == (1e-4, 32, 1836, 183)
    assert published("electra", "QNLI") == (1e-4, 32, 9835, 983)
    assert published("electra", "WNLI") == (3e-4, 32, 100, 10)
    assert published("stable", "CoLA") == (2e-5, 16, 11340, 1134)
    assert (seed_of(2, 42), seed_of(2, 7)) == (834, 841)


def test_runs_start_from_mnli_and_are_gathered_once(tmp_path, capsys) -> None:
    tools, out = tmp_path / "tools", tmp_path / "out"
    tools.mkdir()
    (tools / "train_glue.py").write_text(STANDIN, "utf-8")
    given = ["--data_dir", "glue", "--model_name_or_path", "bert", "--output_dir", str(out)]
    given += ["--tasks", "RTE,MNLI,CoLA", "--per_device_train_batch_size", "50"]
    for repetitions in ("1", "2"):
        command = [*given, "--repetitions", repetitions, "--", "--model_type", "conv-bert"]
        assert run_command(command, tools) == 0
    printed = capsys.readouterr().out
    assert "| RTE | acc | 2 | 0.0695 | 0.0389 | 0.0970 | 1 |" in printed
    assert (out / "summary.md").read_text("utf-8") in printed
    tests = {path.name: path.read_text() for path in (out / "test_files").iterdir()}
    assert tests == dict.fromkeys(("MNLI-m.tsv", "AX.tsv", "CoLA.tsv", "RTE.tsv"), "97")
    runs = {
        f"{task}{at}": json.loads((out / f"{task}{at}" / "run" / "metrics.json").read_text())[
            "given"
        ]
        for task in ("MNLI", "CoLA", "RTE")
        for at in (0, 1)
    }
    assert all((out / name / "run" / "started").read_text() == "x" for name in runs)
    assert runs["RTE1"]["model_name_or_path"] == str(out / "MNLI1" / "run" / "last")
    assert runs["CoLA1"]["model_name_or_path"] == "bert"
    assert [runs[f"CoLA{at}"]["seed"] for at in (0, 1)] == ["42", "97"]
    assert runs["MNLI0"]["max_steps"] == "12121"
    rest = runs["MNLI0"]["rest"]
    assert rest[rest.index("--eval_steps") + 1] == "12121"  # the last weights predict
    assert rest[rest.index("--per_gpu_train_batch_size") + 1] == "50"
    assert rest[-2:] == ["--model_type", "conv-bert"]


def test_the_table_says_how_many_runs_a_mean_is_of() -> None:
    row = {"metric": "corr", "mean": 0.5, "std": None, "best_run": 1}
    assert "| corr | 1 of 2 | 0.5000 |" in markdown({"STS-B": {**row, "values": [None, 0.5]}})
    assert "| corr | 2 | 0.5000 |" in markdown({"STS-B": {**row, "values": [0.5, 0.5]}})


@pytest.mark.parametrize(
    "more", [["--tasks", "RTE,X"], ["--repetitions", "11"], ["--", "--learning_rate", "1"]]
)
def test_what_cannot_be_run_is_one_line(more, tmp_path: Path, capsys) -> None:
    given = ["--data_dir", "glue", "--model_name_or_path", "bert", "--output_dir"]
    given += [str(tmp_path / "out")]
    assert run_command([*given, *more], tmp_path) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()
