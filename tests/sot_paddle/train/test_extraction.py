"""tools/extract_hidden_states.py on a tiny encoder: what is stored, refusals."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from sot_paddle.command_line import parse
from sot_paddle.data.stored import states
from sot_paddle.data.stored.layout import stored_split
from sot_paddle.data.stored.states import StateReader, glue_states
from sot_paddle.tasks.state_options import ExtractConfig
from sot_paddle.train.adapter_command import load_frozen
from tests.sot_paddle.train.run_output import in_process


@pytest.fixture
def store(tiny_folders, encoder, tmp_path, capfd):
    """Run the command into ``tmp_path/states``: (status, what it said)."""

    def run(*more: str, data: Path = tiny_folders[0]) -> tuple[int, str]:
        task = () if "--task_name" in more else ("--task_name", "RTE", "--data_dir", str(data))
        files = ("--model_name_or_path", str(encoder), "--output_dir", str(tmp_path / "states"))
        capfd.readouterr()
        words = [*task, *files, "--max_seq_length", "20", *more]
        status = in_process("extract_hidden_states")(words)
        out, err = capfd.readouterr()
        return status, out + err

    return run


def test_what_is_stored_are_the_encoder_s_states(store, tiny_folders, encoder, tmp_path) -> None:
    status, said = store("--dtype", "float16", "--batch_size", "3")
    assert status == 0, said
    assert "RTE train: 22 rows x 3 states x 20 tokens x 12 in float16: 0.0 GB" in said
    options = ["--task_name", "RTE", "--model_name_or_path", str(encoder), "--output_dir", "x"]
    options += ["--max_seq_length", "20"]
    frozen = load_frozen(parse(ExtractConfig, options))
    assert not frozen.model.training
    assert all(parameter.stop_gradient for parameter in frozen.model.parameters())
    for split, rows in (("train", 22), ("dev", 7)):
        reader = StateReader(tmp_path / "states", stored_split("RTE", split))
        live, indices = glue_states(frozen, tiny_folders[0], "RTE", split)
        assert len(reader) == len(live) == rows
        for first in range(0, rows, 3):  # a row's last bits may depend on the rows of its batch
            batch = range(first, min(first + 3, rows))
            expected = live.states(batch).astype("float16")
            np.testing.assert_array_equal(reader.states(batch), expected)
        np.testing.assert_array_equal(reader.labels[0], live.labels[0])
        np.testing.assert_array_equal(indices, np.arange(rows))
        assert reader.origin == live.origin


def test_a_stopped_run_leaves_no_file_and_a_finished_split_stays(store, tmp_path, monkeypatch):
    made, hidden_states = [], states.hidden_states

    def stop(model, inputs):
        made.append(len(inputs["input_ids"]))
        if len(made) == 3:
            raise KeyboardInterrupt
        return hidden_states(model, inputs)

    monkeypatch.setattr(states, "hidden_states", stop)
    assert store("--splits", "train", "--batch_size", "4")[0] == 130
    assert not list((tmp_path / "states").glob("*.h5"))
    status, said = store("--splits", "train", "--batch_size", "4")
    assert status == 0, said
    assert made[3:] == [4, 4, 4, 4, 4, 2]
    status, said = store("--splits", "train")
    assert "RTE train: its 22 rows are there" in said
    status, said = store("--splits", "train", "--dtype", "float16")
    assert (status, "holds float32 of another model or other data" in said) == (2, True)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--task_name", "SQuAD", "--splits", "dev"), "SQuAD dev needs --predict_file"),
        (("--splits", "test"), "no hidden states are stored of split 'test'"),
        (("--max_seq_length", "64"), "has positions for 40 tokens, asked for 64"),
        (("--task_name", "CoLA"), "CoLA needs --data_dir"),
    ],
)
def test_a_refusal_is_one_line(store, flags, message) -> None:
    status, said = store(*flags)
    lines = [line for line in said.splitlines() if line.startswith("extract_hidden_states: ")]
    assert (status, len(lines)) == (2, 1), said
    assert message in lines[0]


def test_files_of_others_are_not_replaced(store, tmp_path) -> None:
    path = tmp_path / "states" / stored_split("RTE", "train").states.file
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        file["mine"] = [1.0]
    before = path.read_bytes()
    status, said = store()
    assert (status, "is not there" in said) == (2, True), said
    assert path.read_bytes() == before


def test_published_lengths_are_the_defaults() -> None:
    given = ["--model_name_or_path", "x", "--output_dir", "y", "--task_name"]
    names = ("rte", "CoLA", "squad", "WNLI")
    lengths = {name: parse(ExtractConfig, [*given, name]).length for name in names}
    assert lengths == {"rte": 219, "CoLA": 64, "squad": 384, "WNLI": 128}
