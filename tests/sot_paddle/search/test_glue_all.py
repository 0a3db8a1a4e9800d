"""All of GLUE with a stand-in for the training; the published tables."""

from __future__ import annotations

import json

import pytest

from sot_paddle.cli import lazy_command
from sot_paddle.search.glue_all import ORDER, SEEDS, TABLES

run_command = lazy_command("glue_all", "sot_paddle.search.glue_all:run_command")


def test_the_tables_are_the_published_ones() -> None:
    assert SEEDS == (42, 97, 834, 622, 329, 75, 213, 101, 123, 57)
    assert ORDER == ("MNLI", "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "QNLI", "RTE", "WNLI")
    assert {frozenset(table) for table in TABLES.values()} == {frozenset(ORDER)}
    for table, task, recipe in (
        ("electra_base", "MNLI", (1e-4, 128, 12121, 1212)),
        ("electra_base", "STS-B", (1e-4, 32, 1836, 183)),
        ("electra", "QNLI", (1e-4, 32, 9835, 983)),
        ("electra", "WNLI", (3e-4, 32, 100, 10)),
        ("stable", "CoLA", (2e-5, 16, 11340, 1134)),
    ):
        assert TABLES[table][task] == recipe


def command(bench, *own: object, training: tuple = ()) -> list[str]:
    given = ["--data_dir", "glue", "--model_name_or_path", "bert", "--output_dir", bench.out]
    return [*map(str, [*given, *own]), "--", *training]


def test_runs_start_from_mnli_and_are_gathered_once(bench, capsys) -> None:
    own = ("--tasks", "RTE,MNLI,CoLA", "--per_device_train_batch_size", 50)
    for repetitions in (1, 2):
        words = command(
            bench, *own, "--repetitions", repetitions, training=("--model_type", "conv-bert")
        )
        assert run_command(words) == 0
    printed = capsys.readouterr().out
    # accuracies 1 - 1e-4 - seed / 100 of the seeds 42 and 97
    assert "| RTE | acc | 2 | 0.3049 | 0.388909 | 0.5799 | 0 |" in printed
    assert (bench.out / "summary.md").read_text("utf-8") in printed
    tests = {path.name: path.read_text() for path in (bench.out / "test_files").iterdir()}
    assert tests == dict.fromkeys(("MNLI.tsv", "CoLA.tsv", "RTE.tsv"), "42")
    runs = {
        name: json.loads(text)["options"] for name, text in bench.contents("metrics.json").items()
    }
    assert runs.keys() == {f"{task}{at}" for task in ("MNLI", "CoLA", "RTE") for at in (0, 1)}
    assert bench.contents("started") == dict.fromkeys(runs, "x")
    assert runs["RTE1"]["model_name_or_path"] == str(bench.out / "MNLI1" / "last")
    assert runs["CoLA1"]["model_name_or_path"] == "bert"
    assert runs["CoLA1"]["data_dir"] == "glue/CoLA"
    assert [runs[f"CoLA{at}"]["seed"] for at in (0, 1)] == [42, 97]
    mnli = runs["MNLI0"]
    assert (mnli["max_steps"], mnli["warmup_steps"], mnli["eval_steps"]) == (12121, 1212, 12121)
    assert (mnli["per_gpu_train_batch_size"], mnli["model_type"]) == (50, "conv-bert")
    assert run_command(command(bench, *own, "--repetitions", 2)) == 2
    assert "was begun with something else: options was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("own", "training", "message"),
    [
        (("--tasks", "RTE,X"), (), "--tasks: unknown 'X'"),
        ((), ("--learning_rate", "1"), "learning_rate is given twice"),
    ],
)
def test_what_cannot_be_run_is_one_line(bench, capsys, own, training, message) -> None:
    assert run_command(command(bench, *own, training=training)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not bench.out.exists()
