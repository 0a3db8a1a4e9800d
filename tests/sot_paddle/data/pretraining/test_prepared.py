"""The folder of a preparation: nothing of others is lost, what was killed begins anew."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.pair_files import PairRows, prepare_pairs
from sot_paddle.data.pretraining.piece_training import MODEL, train_pieces
from sot_paddle.data.pretraining.text_lines import text_files


def quiet(line: str) -> None:
    """Says nothing."""


def prepare(file: Path, folder: Path, vocab_size: int = 100) -> None:
    prepare_pairs([file], None, folder, vocab_size=vocab_size, report=quiet)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def ids(tmp_path) -> Path:
    """A file of token ids."""
    (tmp_path / "ids.txt").write_text("1 5 2\n1 8 2\n", "utf-8")
    return tmp_path / "ids.txt"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "manifest.json", "pairs.txt"])
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path, ids, name) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(b"mine")
    (folder / "run.lock").touch()  # of the command itself
    before = contents(folder)
    with pytest.raises(DataError, match=f"expected an empty folder or .*, found {name}"):
        prepare(ids, folder)
    with pytest.raises(DataError, match=f"expected an empty folder or .*, found {name}"):
        train_pieces([ids], folder, vocab_size=20, report=quiet)
    assert contents(folder) == before


def test_a_finished_folder_stays_and_belongs_to_its_command(tmp_path, ids) -> None:
    folder = tmp_path / "out"
    prepare(ids, folder)
    whole = contents(folder)
    assert set(whole) == {"pairs.txt", "starts.bin", "manifest.json", "command.json"}
    prepare(ids, folder)
    with pytest.raises(DataError, match="made with another vocab_size"):
        prepare(ids, folder, 99)
    assert contents(folder) == whole
    for damaged in (whole["pairs.txt"][:-3], whole["pairs.txt"].replace(b"5", b"6")):
        (folder / "pairs.txt").write_bytes(damaged)
        for read in (lambda: prepare(ids, folder), lambda: PairRows(folder)):
            with pytest.raises(ValueError, match=r"pairs\.txt.*not that of manifest\.json"):
                read()
    ids.write_text("1 5 2\n", "utf-8")
    with pytest.raises(DataError, match="made with another files"):
        prepare(ids, folder)


def test_what_did_not_finish_begins_anew_also_with_other_text(tmp_path, ids) -> None:
    folder = tmp_path / "out"
    ids.write_text("1 5 2\n1 x 2\n", "utf-8")
    with pytest.raises(DataError, match="line 2: expected token ids"):
        prepare(ids, folder)
    with pytest.raises(DataError, match="is not finished"):
        PairRows(folder)
    ids.write_text("1 5 2\n", "utf-8")
    prepare(ids, folder)
    assert len(PairRows(folder)) == 1


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("none.txt", None, r"none\.txt is missing"),
        ("folder", None, r"no \*\.txt in this folder"),
        ("a.txt", b"1 5\n1 x 2\n", "line 2: expected token ids, got '1 x 2'"),
        ("a.txt", b"1 100\n", "line 1: expected token ids from 0 to 99"),
        ("a.txt", b"1 5\n\xff\n", "line 2: expected UTF-8 text.* byte 0xff"),
        ("a.txt", b"\n \n", "no pair of lines with text"),
    ],
)
def test_text_that_cannot_be_used(tmp_path, name, content, match) -> None:
    (tmp_path / "folder").mkdir()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match):
        prepare(*text_files([str(tmp_path / name)]), tmp_path / "out")


def test_pieces_are_trained_on_a_drawn_sample(tmp_path) -> None:
    text = tmp_path / "text.txt"
    lines = [f"river {'stone ' * (at % 5)}green {'walks' * (at % 3)}" for at in range(400)]
    text.write_text("\n\n".join(lines), "utf-8")

    def model(name: str, **options) -> bytes:
        given = {"vocab_size": 20, "sentences": 50, "report": quiet, **options}
        train_pieces([text], tmp_path / name, **given)
        return (tmp_path / name / MODEL).read_bytes()

    first = model("first")
    assert model("again") == first
    assert model("other", seed=1) != first
    assert model("whole", sentences=400) == model("more", sentences=10**7) != first
    with pytest.raises(DataError, match="no model of 5000 pieces .* value <= "):
        model("large", vocab_size=5000)
    assert model("large") == first  # the size that the text can give
    with pytest.raises(DataError, match="made with another vocab_size"):
        model("first", vocab_size=19)


def test_a_model_of_pieces_is_there_whole_or_not_at_all(tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("river stone green walks\n" * 50, "utf-8")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # bytes; the model is larger
    try:
        with pytest.raises(OSError, match="File too large"):
            train_pieces([text], tmp_path / "out", vocab_size=18, report=quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert set(contents(tmp_path / "out")) == {"command.json"}
