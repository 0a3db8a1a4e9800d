"""Folders of pre-training data: instances, shuffled pairs, records; also after a kill."""

from __future__ import annotations

import codecs
import json
import random
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining import instance_files
from sot_paddle.data.pretraining.instance_files import (
    InstanceOptions,
    InstanceRows,
    prepare_instances,
)
from sot_paddle.data.pretraining.pair_files import PairRows, draws_of, prepare_pairs
from sot_paddle.data.pretraining.prepared import MODEL, text_files, train_pieces
from sot_paddle.tasks.pretraining import even_batches
from sot_torch_ref.train.instances import make_instances


def quiet(line: str) -> None:
    """Says nothing."""


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
    options = {"dupes": 3, "report": quiet, **more}
    prepare_instances(files, tokenizer or Numbers(), folder, OPTIONS, **options)


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
    with pytest.raises(DataError, match="is not finished"):
        InstanceRows(tmp_path / "out")
    prepare(files, tmp_path / "out")
    for folder in ("out", "whole"):
        names = {path.name for path in (tmp_path / folder).iterdir()}
        assert names == {"instances.bin", "order.bin", "manifest.json"}
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
    prepare_pairs(files, tokenizer, folder, vocab_size=100, report=quiet, **more)
    return (folder / "pairs.txt").read_text("utf-8").splitlines()


def test_pairs_are_shuffled_as_a_list_is_where_they_fit(tmp_path) -> None:
    files, pairs = write_lines(tmp_path)
    assert pairs_of(files, tmp_path / "kept", shuffle=False) == pairs
    expected = list(pairs)
    random.Random(42).shuffle(expected)
    assert pairs_of(files, tmp_path / "out") == expected
    rows = PairRows(tmp_path / "out")
    assert [" ".join(map(str, rows.row(at))) for at in range(len(rows))] == expected


def test_lines_of_ids_are_taken_as_they_are(tmp_path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("1 5 2 7 2\n\n1  8 2\n", "utf-8-sig")  # the mark is no part of a line
    assert pairs_of([file], tmp_path / "out", None, shuffle=False) == ["1 5 2 7 2", "1  8 2"]
    assert PairRows(tmp_path / "out").row(1).tolist() == [1, 8, 2]


def test_draws_depend_on_seed_epoch_and_row() -> None:
    """Shares of masked words, on exchanged draws: tests/parity/test_pretraining.py."""
    first = draws_of(7, 0, 3, 24, 100)
    assert np.array_equal(first.uniform, draws_of(7, 0, 3, 24, 100).uniform)
    for other in ((8, 0, 3), (7, 1, 3), (7, 0, 4)):
        changed = draws_of(*other, 24, 100)
        assert (changed.uniform != first.uniform).all()
        assert (changed.words != first.words).any()


def test_the_last_of_even_batches_is_smaller() -> None:
    assert even_batches(11, 4) == [range(4), range(4, 8), range(8, 11)]


def prepare_ids(file: Path, folder: Path) -> None:
    pairs_of([file], folder, None)


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
    (folder / "run.lock").touch()  # of the command itself
    before = contents(folder)
    with pytest.raises(DataError, match=f"expected a new folder, found {name}"):
        prepare_ids(ids, folder)
    assert contents(folder) == before


def test_a_finished_folder_stays_and_is_compared_with_its_manifest(tmp_path, ids) -> None:
    folder = tmp_path / "out"
    prepare_ids(ids, folder)
    whole = contents(folder)
    assert set(whole) == {"pairs.txt", "starts.bin", "manifest.json"}
    with pytest.raises(DataError, match=r"expected a new folder, found manifest\.json, pairs\.txt"):
        prepare_ids(ids, folder)
    assert contents(folder) == whole
    for damaged in (whole["pairs.txt"][:-3], whole["pairs.txt"].replace(b"5", b"6")):
        (folder / "pairs.txt").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"pairs\.txt.*not that of manifest\.json"):
            PairRows(folder)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"1 5\n1 x 2\n", "line 2: expected token ids, got '1 x 2'"),
        (b"1 5\n\xff\n", "line 2: expected UTF-8 text.* byte 0xff"),
    ],
)
def test_what_did_not_finish_begins_anew_also_with_other_text(tmp_path, ids, content, match):
    folder = tmp_path / "out"
    ids.write_bytes(content)
    with pytest.raises(DataError, match=match):
        prepare_ids(ids, folder)
    with pytest.raises(DataError, match="is not finished"):
        PairRows(folder)
    ids.write_text("1 5 2\n", "utf-8")
    prepare_ids(ids, folder)
    assert len(PairRows(folder)) == 1
    with pytest.raises(DataError, match=r"none\.txt is missing"):
        text_files([str(tmp_path / "none.txt")])


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
    with pytest.raises(DataError, match="no model of 5000 pieces .* value <= "):
        model("large", vocab_size=5000)
    assert model("large") == first  # the size that the text can give


def made_records(count: int = 60) -> list[dict]:
    """What the reference makes, as the Paddle port's files hold it: without weights."""
    made = reference(corpus(2, documents=40), dupes=1)[:count]
    rows = [{name: array.tolist() for name, array in one.items()} for one in made]
    return [{k: v for k, v in row.items() if k != "masked_lm_weights"} for row in rows]


def prepared(folder: Path, *contents: str | bytes) -> InstanceRows:
    folder.mkdir(exist_ok=True)
    files = []
    for index, content in enumerate(contents):
        path = folder / f"{index}.json"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        files.append(path)
    instance_files.prepare_records(files, folder / "out", vocab_size=40, report=quiet)
    return InstanceRows(folder / "out")


def require_same(rows: InstanceRows, made: list[dict]) -> None:
    assert len(rows) == len(made)
    for position, record in enumerate(made):
        used = np.array(record["masked_lm_positions"]) > 0
        for name, values in {**record, "masked_lm_weights": used}.items():
            assert np.array_equal(rows.row(position)[name], np.ravel(values)), (position, name)


def test_records_come_out_as_they_went_in(tmp_path, monkeypatch) -> None:
    made = made_records()
    for record in made[:9]:
        (record["next_sentence_labels"],) = record["next_sentence_labels"]  # a number or a list
    made[5]["masked_lm_weights"] = [float(p > 0) for p in made[5]["masked_lm_positions"]]
    texts = [json.dumps(made[:40]), "\n".join(map(json.dumps, made[40:]))]
    marked = [codecs.BOM_UTF8 + text.encode() for text in texts]
    require_same(prepared(tmp_path / "marked", *marked), made)
    monkeypatch.setattr(instance_files, "_CHUNK", 64)
    require_same(prepared(tmp_path / "indented", json.dumps(made, indent=1)), made)


def changed(**values) -> str:
    good, bad = made_records(2)
    return json.dumps([good, {**bad, **values}])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no record"),
        (json.dumps(made_records(3))[:-1], "record 3: the file is cut off after this record"),
        ('[{"input_ids": {}}]', "record 1: Expecting ',' delimiter"),
        (b"[{\xff}]", "0.json, record 0: 'utf-8' codec can't decode byte 0xff"),
        (changed(input_ids=[40] + [0] * 23), "record 2: token ids must be below 40"),
        (changed(input_mask=[0, 1] * 12), "input_mask must be ones, then zeros"),
        (changed(masked_lm_positions=[23] * 4), "masked_lm_positions must be inside"),
        (changed(masked_lm_ids=[1.5] * 4), "masked_lm_ids must be a list of whole numbers"),
        (changed(masked_lm_weights=[0, 1, 0, 0]), "masked_lm_weights must be ones, then zeros"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, content, said) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        prepared(tmp_path / "in", content)
    assert "\n" not in str(refused.value)
