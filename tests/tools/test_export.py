"""Trained GLUE and digits folders, exported and predicted by the tools themselves."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.sot_paddle.train import tiny_run
from tests.tools import tool_runs


def done(name: str, *arguments: object, without: tuple[str, ...] = ("torch",)) -> list[str]:
    """Lines on stdout of a tool that ends well."""
    seen = tool_runs.run(name, *arguments, without=without)
    assert seen.returncode == 0, seen.stderr[-3000:]
    return seen.stdout.splitlines()


def predictions(*arguments: object, without: tuple[str, ...] = ("torch",)) -> list[dict]:
    return [json.loads(line) for line in done("predict", *arguments, without=without)]


def check_runtimes(folder: Path, out: Path, inputs: object) -> list[dict]:
    """The same from the training's folder, the graph and ONNX, which needs no Paddle."""
    ours = predictions(folder, inputs, "--cpu")
    for found in (
        predictions(out, inputs, "--runtime", "jit", "--cpu"),
        predictions(out, inputs, without=("torch", "paddle", "paddlenlp")),
    ):
        for one, other in zip(ours, found, strict=True):
            assert one["label"] == other["label"]
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
    return ours


@pytest.mark.slow
def test_a_trained_glue_folder(tmp_path):
    data = tiny_run.write_glue(tmp_path)
    model = tiny_run.write_model(tmp_path / "model")
    run, out = tmp_path / "run", tmp_path / "export"
    done("train_glue", *tiny_run.command(data, model, run, "--do_predict", "--max_steps", "8"))
    printed = done("export", run, out)
    assert [line.split(":")[0] for line in printed] == [
        str(out / name) for name in ("model.json", "model.onnx")
    ]
    found = check_runtimes(run, out, data / "test.tsv")
    trained = (run / "RTE.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [f"{one['index']}\t{one['label']}" for one in found] == trained


@pytest.mark.slow
def test_trained_digits(tmp_path):
    run, out = tmp_path / "run", tmp_path / "export"
    config = tool_runs.ROOT / "configs" / "digits" / "sot_digits.yaml"
    flags = ["digits", "--config", config, "--output", run, "--max-steps", "2", "-b", "16"]
    flags += ["--set", "depth=1", "--set", "token_type=patch", "--set", "patch_size=8"]
    done("train_image", *flags)
    done("export", run, out)
    found = check_runtimes(run, out, "digits")
    table = tmp_path / "predictions.csv"
    flags = ("digits", "--weights", run, "--workers", "0", "--predictions", table)
    done("eval_image", *flags)
    with open(table, newline="", encoding="utf-8") as handle:
        evaluated = list(csv.DictReader(handle))
    assert [one["image"] for one in found] == [row["image"] for row in evaluated]
    assert [one["label"] for one in found] == [row["prediction"] for row in evaluated]
