"""Folders of pre-training data: instances, shuffled pairs; also after a kill."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.data.pretraining.instance_files import (
    InstanceOptions,
    InstanceRows,
    prepare_instances,
)
from sot_paddle.data.pretraining.prepared import (
    MODEL,
    PAIRS,
    StoredRows,
    draws_of,
    prepare_pairs,
    text_files,
    train_pieces,
)
from sot_torch_ref.train.instances import make_instances

SPECIAL = {"first": 1, "separator": 2, "mask": 3}
OPTIONS = InstanceOptions(**SPECIAL, vocab_size=40, max_seq_length=24, max_predictions=4)


class Numbers:
    """A tokenizer whose text is the ids; dies when it was asked often enough."""

    def __init__(self, calls: int = 10**9) -> None:
        self.calls = calls

    def ids(self, texts):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return [[int(word) for word in text.split() if word != "-"] for text in texts]

    def pair(self, first, second):
        return [1, *first, 2, *second, 2], 0


def corpus(seed: int = 0, documents: int = 100) -> list[list[list[int]]]:
    rng = random.Random(seed)
    return [
        [[rng.randint(4, 39) for _ in range(rng.randint(1, 14))] for _ in range(rng.randint(1, 9))]
        for _ in range(documents)
    ]


def write(folder: Path, documents) -> list[Path]:
    """Two files, the cut in the middle of a document; empty documents and a line of no token."""
    text = "\n\n\n".join("\n".join(" ".join(map(str, s)) for s in d) for d in documents)
    lines = ("\n- \n" + text).split("\n")
    half = len(lines) // 2
    for name, part in (("a.txt", lines[:half]), ("b.txt", lines[half:])):
        (folder / name).write_text("\n".join(part) + "\n" * (name == "a.txt"), encoding="utf-8")
    return text_files([str(folder)])


def prepare(files, folder, tokenizer=None, **more) -> None:
    prepare_instances(files, tokenizer or Numbers(), folder, OPTIONS, **{"dupes": 3, **more})


def reference(documents, dupes: int = 3, **more):
    names = {"cls": 1, "sep": 2, "mask": 3, "vocab_size": 40, "max_seq_length": 24}
    return make_instances(documents, **names, max_predictions=4, dupe_factor=dupes, **more)


def test_the_instances_are_those_of_the_reference_in_its_order(tmp_path) -> None:
    files = write(tmp_path, corpus())
    prepare(files, tmp_path / "out")
    rows, expected = InstanceRows(tmp_path / "out"), reference(corpus())
    assert len(rows) == len(expected) > 300
    for position, instance in enumerate(expected):
        found = rows.row(position)
        assert found.keys() == instance.keys()
        for name, array in instance.items():
            assert np.array_equal(found[name], array), (position, name)
    other = reference(corpus(), seed=1)[0]
    assert any((other[name] != array).any() for name, array in rows.row(0).items())


def test_a_preparation_that_was_killed_ends_with_the_same_files(tmp_path) -> None:
    files = write(tmp_path, corpus())
    prepare(files, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        prepare(files, tmp_path / "out", Numbers(calls=1))
    with pytest.raises(ValueError, match="is not finished"):
        InstanceRows(tmp_path / "out")
    prepare(files, tmp_path / "out")
    for folder in ("out", "whole"):
        names = {path.name for path in (tmp_path / folder).iterdir()}
        assert names == {"numbers.bin", "spans.bin", "manifest.json"}
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def lines(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randint(3, 99) for _ in range(rng.randint(1, 9))] for _ in range(count)]


def write_lines(folder: Path) -> tuple[list[Path], list[str]]:
    """Two files, the first with an odd number of lines and empty ones; the pairs of both."""
    files, pairs = [folder / "a.txt", folder / "b.txt"], []
    for file, rows in zip(files, (lines(701), lines(600, 1)), strict=True):
        texts = [" ".join(map(str, row)) for row in rows]
        file.write_text("\n\n".join(texts[:300]) + "\n" + "\n".join(texts[300:]), "utf-8")
        firsts, seconds = texts[::2], texts[1::2]
        pairs += [f"1 {a} 2 {b} 2" for a, b in zip(firsts, seconds, strict=False)]
    return files, pairs


def pairs_of(files, folder, tokenizer=Numbers(), **more):  # noqa: B008
    count = prepare_pairs(files, tokenizer, folder, vocab_size=100, **more)
    rows = StoredRows(folder, PAIRS)
    assert len(rows) == count
    return [" ".join(map(str, rows.row(at))) for at in range(count)]


def test_pairs_are_shuffled_as_a_list_is_where_they_fit(tmp_path) -> None:
    files, pairs = write_lines(tmp_path)
    assert pairs_of(files, tmp_path / "kept", shuffle=False) == pairs
    expected = list(pairs)
    random.Random(42).shuffle(expected)
    assert pairs_of(files, tmp_path / "out") == expected


def test_lines_of_ids_are_taken_as_they_are(tmp_path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("1 5 2 7 2\n\n1  8 2\n", "utf-8-sig")  # the mark is no part of a line
    assert pairs_of([file], tmp_path / "out", None, shuffle=False) == ["1 5 2 7 2", "1 8 2"]


def test_draws_depend_on_seed_epoch_and_row() -> None:
    """Shares of masked words, on exchanged draws: tests/parity/test_pretraining.py."""
    first = draws_of(7, 0, 3, 24, 100)
    assert np.array_equal(first.uniform, draws_of(7, 0, 3, 24, 100).uniform)
    for other in ((8, 0, 3), (7, 1, 3), (7, 0, 4)):
        changed = draws_of(*other, 24, 100)
        assert (changed.uniform != first.uniform).all()
        assert (changed.words != first.words).any()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def ids(tmp_path) -> Path:
    """A file of token ids."""
    (tmp_path / "ids.txt").write_text("1 5 2\n1 8 2\n", "utf-8")
    return tmp_path / "ids.txt"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "manifest.json"])
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path, ids, name) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / name).write_bytes(b"mine")
    before = contents(folder)
    with pytest.raises(ValueError, match=f"expected a new folder, found {name}"):
        pairs_of([ids], folder, None)
    assert contents(folder) == before


def test_a_finished_folder_stays_and_is_compared_with_its_manifest(tmp_path, ids) -> None:
    folder = tmp_path / "out"
    pairs_of([ids], folder, None)
    whole = contents(folder)
    assert set(whole) == {"numbers.bin", "spans.bin", "manifest.json"}
    with pytest.raises(ValueError, match=r"expected a new folder, found manifest\.json, numbers"):
        pairs_of([ids], folder, None)
    assert contents(folder) == whole
    for damaged in (whole["numbers.bin"][:-4], whole["numbers.bin"].replace(b"\x05", b"\x06")):
        (folder / "numbers.bin").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"numbers\.bin.*not that of manifest\.json"):
            StoredRows(folder, PAIRS)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"1 5\n1 x 2\n", "line 2: expected token ids from 0 to 99, got '1 x 2'"),
        (b"1 5\n\xff\n", r"ids\.txt: .*utf-8.* byte 0xff"),
    ],
)
def test_what_did_not_finish_begins_anew_also_with_other_text(tmp_path, ids, content, match):
    folder = tmp_path / "out"
    ids.write_bytes(content)
    with pytest.raises(ValueError, match=match):
        pairs_of([ids], folder, None)
    with pytest.raises(ValueError, match="is not finished"):
        StoredRows(folder, PAIRS)
    ids.write_text("1 5 2\n", "utf-8")
    pairs_of([ids], folder, None)
    assert len(StoredRows(folder, PAIRS)) == 1
    with pytest.raises(ValueError, match=r"none\.txt is missing"):
        text_files([str(tmp_path / "none.txt")])


def test_pieces_are_trained_on_lines_that_are_evenly_spread(tmp_path) -> None:
    text = tmp_path / "text.txt"
    lines = [f"river {'stone ' * (at % 5)}green {'walks' * (at % 3)}" for at in range(400)]
    text.write_text("\n\n".join(lines), "utf-8")
    (tmp_path / "fourth.txt").write_text("\n".join(lines[::4]), "utf-8")

    def model(name: str, file: Path = text, **options) -> bytes:
        train_pieces([file], tmp_path / name, **{"vocab_size": 20, **options})
        return (tmp_path / name / MODEL).read_bytes()

    fourth = model("fourth", tmp_path / "fourth.txt")
    assert model("spread", sentences=130) == fourth
    assert model("whole") != fourth
    with pytest.raises(ValueError, match="no model of 5000 pieces .* value <= "):
        model("large", vocab_size=5000)
    assert model("large", sentences=100) == fourth  # the size that the text can give
