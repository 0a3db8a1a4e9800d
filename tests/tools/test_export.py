"""GLUE and digits trained, exported, evaluated and predicted by the tools themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sot_paddle.train import tiny_run
from tests.tools import tool_runs

pytestmark = pytest.mark.slow

Tool = Callable[..., list[str]]
"""Runs a tool, given its name and arguments, that ends well; the lines that it prints."""


def run_without(*packages: str) -> Tool:
    """Runs a tool in a process without some packages."""

    def done(name: str, *arguments: object) -> list[str]:
        seen = tool_runs.run(name, *arguments, without=packages)
        assert seen.returncode == 0, seen.stderr[-3000:]
        return seen.stdout.splitlines()

    return done


@pytest.fixture
def run_here(capsys) -> Tool:
    """Runs a tool in this process."""

    def done(name: str, *arguments: object) -> list[str]:
        assert not tool_runs.load(name).main([*map(str, arguments)])
        return capsys.readouterr().out.splitlines()

    return done


def check_export(done: Tool, folder: Path, out: Path, inputs: object) -> list[dict]:
    """Predict with the training's folder, and the same with ONNX, which needs no Paddle."""
    ours = list(map(json.loads, done("predict", folder, inputs, "--cpu")))
    exported = run_without("torch", "paddle", "paddlenlp")("predict", out, inputs)
    for one, line in zip(ours, exported, strict=True):
        other = json.loads(line)
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
    return ours


@pytest.mark.long
def test_a_trained_glue_folder(tmp_path, run_here):
    done = run_without("torch")
    data = tiny_run.write_glue(tmp_path)
    model = tiny_run.write_model(tmp_path / "model")
    run, out = tmp_path / "run", tmp_path / "export"
    run_here("train_glue", *tiny_run.command(data, model, run, "--do_predict", "--max_steps", "8"))
    printed = done("export", run, out)
    assert [line.split(":")[0] for line in printed] == [
        str(out / name) for name in ("model.json", "model.onnx")
    ]
    table = (data / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("\n".join(row.split("\t", 1)[1] for row in table), encoding="utf-8")
    found = check_export(done, run, out, pairs)
    trained = (run / "RTE.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [f"{one['index']}\t{one['label']}" for one in found] == trained


@pytest.mark.long
def test_trained_digits(tmp_path, run_here):
    run, out = tmp_path / "run", tmp_path / "export"
    config = tool_runs.ROOT / "configs" / "digits" / "sot_digits.yaml"
    flags = ["digits", "--config", config, "--output", run, "--max-steps", "2", "-b", "16"]
    flags += ["--set", "depth=1", "--set", "token_type=patch", "--set", "patch_size=8"]
    seen = tool_runs.run("train_image", *flags, without=("torch",))
    assert seen.returncode == 0, seen.stderr[-3000:]
    assert "train 1433 images, val 364 images" in seen.stderr
    assert (run / "best" / "ema.safetensors").is_file()
    run_here("export", run, out)
    check_export(run_here, run, out, "digits")
    (printed,) = run_without()("eval_image", "digits", "--weights", run, "--workers", "0")
    assert "364 images in" in printed
