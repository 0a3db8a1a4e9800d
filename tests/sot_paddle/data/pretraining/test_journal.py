"""What a preparation does in a folder that holds something: nothing of it is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.journal import STATE
from sot_paddle.data.pretraining.pair_files import PairRows, prepare_pairs
from sot_paddle.data.pretraining.sentence_sample import MODEL, train_pieces
from sot_paddle.reading import read_object


def prepare(file: Path, folder: Path) -> None:
    prepare_pairs([file], None, folder, vocab_size=100, report=lambda line: None)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "manifest.json", "pairs.txt", "sample.txt"])
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path, name: str) -> None:
    file, folder = tmp_path / "ids.txt", tmp_path / "out"
    file.write_text("1 5 2\n1 8 2\n", "utf-8")
    folder.mkdir()
    (folder / name).write_bytes(b"mine")
    (folder / "run.lock").touch()  # of the command itself
    before = contents(folder)
    with pytest.raises(DataError, match=f"expected an empty folder or .*, found {name}"):
        prepare(file, folder)
    with pytest.raises(DataError, match=f"expected an empty folder or .*, found {name}"):
        train_pieces([file], folder, vocab_size=20, report=lambda line: None)
    assert contents(folder) == before


def test_what_was_refused_at_its_start_may_begin_again_with_other_text(tmp_path) -> None:
    file, folder = tmp_path / "ids.txt", tmp_path / "out"
    file.write_text("1 5 2\n1 x 2\n", "utf-8")
    with pytest.raises(DataError, match="line 2: expected token ids"):
        prepare(file, folder)
    file.write_text("1 5 2\n", "utf-8")
    prepare(file, folder)
    assert len(PairRows(folder)) == 1
    file.write_text("1 5 2\n1 8 2\n", "utf-8")
    with pytest.raises(DataError, match="begun with another files"):
        prepare(file, folder)


def test_the_same_command_does_not_take_a_damaged_file_for_a_good_one(tmp_path) -> None:
    file, folder = tmp_path / "ids.txt", tmp_path / "out"
    file.write_text("1 5 2\n1 8 2\n", "utf-8")
    prepare(file, folder)
    whole = contents(folder)
    prepare(file, folder)
    assert contents(folder) == whole
    for damaged in (whole["pairs.txt"][:-3], whole["pairs.txt"].replace(b"5", b"6")):
        (folder / "pairs.txt").write_bytes(damaged)
        with pytest.raises(DataError, match=r"pairs\.txt: its size .* delete .* run the same"):
            prepare(file, folder)
        with pytest.raises(ValueError, match=r"not that of manifest\.json"):
            PairRows(folder)


def test_a_tokenizer_that_was_deleted_is_trained_again(tmp_path) -> None:
    file, folder = tmp_path / "text.txt", tmp_path / "out"
    file.write_text("a river walks\nover green stone\n" * 20, "utf-8")
    train_pieces([file], folder, vocab_size=18, report=lambda line: None)
    model = (folder / MODEL).read_bytes()
    (folder / MODEL).unlink()
    train_pieces([file], folder, vocab_size=18, report=lambda line: None)
    assert (folder / MODEL).read_bytes() == model


def test_a_tokenizer_of_an_older_version_is_that_of_the_same_command(tmp_path) -> None:
    """Its size and options stood beside the files."""
    file, folder = tmp_path / "text.txt", tmp_path / "out"
    file.write_text("a river walks\nover green stone\n" * 20, "utf-8")
    train_pieces([file], folder, vocab_size=18, report=lambda line: None)
    state = read_object(folder / STATE)
    state["identity"] |= state["values"]
    state["values"] = {}
    (folder / STATE).write_text(json.dumps(state), "utf-8")
    before = contents(folder)
    train_pieces([file], folder, vocab_size=18, report=lambda line: None)
    with pytest.raises(DataError, match="begun with another vocab_size"):
        train_pieces([file], folder, vocab_size=17, report=lambda line: None)
    assert contents(folder) == before
