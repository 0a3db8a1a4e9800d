"""The training commands that searches and sweeps run: what each is given, and two for real."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from sot_paddle.command_line import parse
from sot_paddle.search import search_command, sweep_command
from sot_paddle.search.space import COMMANDS
from sot_paddle.train import (
    adapter_command,
    document_command,
    image_flags,
    squad_command,
    text_command,
)
from tests.sot_paddle.train import state_files, tiny_run

ROOT = Path(__file__).resolve().parents[3]
RECORDS = {
    "train_adapter": (adapter_command.COMMAND, ("--task_name", "RTE", "--states", "here")),
    "train_glue": (
        text_command.COMMAND,
        ("--task_name", "RTE", "--data_dir", "here", "--model_name_or_path", "there"),
    ),
    "train_image": (image_flags.TRAINING, ("digits", "--model", "sot_tiny")),
    "train_text": (
        document_command.COMMAND,
        ("--task_name", "IMDB", "--data_dir", "d", "--model_name_or_path", "there"),
    ),
    "train_squad": (squad_command.COMMAND, ("--model_name_or_path", "there")),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_a_tool_that_takes_what_its_runs_are_given(name):
    command, flags = RECORDS[name]
    assert (ROOT / "tools" / command.program).name == f"{name}.py"
    assert (ROOT / "tools" / f"{name}.py").is_file()
    given = (*COMMANDS[name], *flags, "--output_dir", "out", "--set", "seed=3")
    config = parse(command, given)
    assert (config.output_dir, config.seed, config.do_train) == ("out", 3, True)
    assert getattr(config, "do_eval", True)
    assert dataclasses.is_dataclass(config)


@pytest.mark.long
def test_a_search_and_a_sweep_train_for_real(tmp_path, capsys):
    encoder = state_files.write_encoder(tmp_path / "tiny")
    squad = [
        *("--max_seq_length", 24, "--doc_stride", 5, "--model_name_or_path", encoder),
        *("--train_file", state_files.write_squad(tmp_path / "train.json", questions=4)),
        *("--predict_file", state_files.write_squad(tmp_path / "dev.json", questions=3)),
        *("--max_steps", 2, "--no_cuda"),
    ]
    space = tmp_path / "space.yaml"
    space.write_text(
        "command: train_squad\nmetric: f1\ndirection: maximize\nparameters:\n"
        "  learning_rate: {kind: log_uniform, low: 1.0e-4, high: 1.0e-2}\n",
        encoding="utf-8",
    )
    own = ["--space", space, "--output_dir", tmp_path / "search", "--trials", 1, "--"]
    assert search_command.run_command([*map(str, [*own, *squad])], ROOT / "tools") == 0
    assert "best of 1 trials: f1 " in capsys.readouterr().out

    glue = tiny_run.write_glue(tmp_path / "glue")
    own = ["--command", "train_adapter", "--a", "adapter_dim=4", "--seeds", 3]
    own += ["--output_dir", tmp_path / "sweep", "--", "--task_name", "RTE", "--data_dir", glue]
    own += ["--model_name_or_path", encoder, "--max_seq_length", 20, "--max_steps", 2, "--no_cuda"]
    assert sweep_command.run_command([*map(str, own)], ROOT / "tools") == 0
    found = json.loads((tmp_path / "sweep" / "summary.json").read_text(encoding="utf-8"))
    assert (found["metric"], found["seeds"]) == ("acc", [3])
