"""The embedded corpus: deterministic, disjoint, in CoLA's format."""

from __future__ import annotations

import hashlib

import pytest

from sot_paddle.data.corpus import SIZES, build_corpus, write_corpus
from sot_paddle.data.corpus_clauses import PHENOMENA
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import read_split


@pytest.fixture(scope="module")
def corpus():
    return build_corpus()


def test_sizes_balance_and_disjoint_splits(corpus):
    assert {split: len(rows) for split, rows in corpus.items()} == SIZES
    texts = [row.text for rows in corpus.values() for row in rows]
    assert len(set(texts)) == len(texts) == 4000
    for rows in corpus.values():
        assert 0.6 <= sum(row.label for row in rows) / len(rows) <= 0.7


def test_every_phenomenon_has_both_labels_in_every_split(corpus):
    assert len(PHENOMENA) == 29
    for rows in corpus.values():
        assert {(row.source, row.label) for row in rows} == {
            (name, label) for name in PHENOMENA for label in (0, 1)
        }


def test_a_sentence_and_its_violation_are_in_the_same_split():
    """Unacceptable sentences follow their partner before the split's own shuffle."""
    small = build_corpus(seed=3, sizes={"one": 200, "two": 200})
    for rows in small.values():
        for name in PHENOMENA:
            counts = [sum(r.source == name and r.label == label for r in rows) for label in (0, 1)]
            assert counts[0] <= counts[1]


def test_sentences_look_like_sentences(corpus):
    for rows in corpus.values():
        for row in rows:
            assert row.text[0].isupper()
            assert row.text[-1] in ".?"
            assert "  " not in row.text
            assert row.text.isascii()


def test_the_seed_decides_everything(corpus):
    assert build_corpus() == corpus
    assert build_corpus(seed=1)["dev"] != corpus["dev"]


def test_the_default_corpus_does_not_change_unnoticed(corpus):
    """Published numbers were measured on these sentences; a new grammar needs new numbers."""
    text = "\n".join(f"{row.label} {row.text}" for rows in corpus.values() for row in rows)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "acb09a15a5478a2f"


def test_written_files_are_read_as_cola(tmp_path, corpus):
    folder = write_corpus(tmp_path / "new")
    assert folder == tmp_path / "new" / "CoLA"
    assert sorted(path.name for path in folder.iterdir()) == ["dev.tsv", "test.tsv", "train.tsv"]
    for split in ("train", "dev"):
        rows = read_split(folder, "cola", split)
        assert [(row.text_a, row.label) for row in rows] == [
            (row.text, row.label) for row in corpus[split]
        ]
    test = read_split(folder, "cola", "test")
    assert [(row.index, row.text_a, row.label) for row in test] == [
        (index, row.text, None) for index, row in enumerate(corpus["test"])
    ]
    first = (folder / "train.tsv").read_bytes()
    stars = [line.split("\t")[1:3] for line in first.decode().splitlines()]
    assert {tuple(pair) for pair in stars} == {("1", ""), ("0", "*")}
    assert write_corpus(tmp_path / "new").joinpath("train.tsv").read_bytes() == first


def test_more_than_the_grammar_has(monkeypatch):
    monkeypatch.setattr("sot_paddle.data.corpus.PHENOMENA", {"one": lambda r: ("a", "b")})
    with pytest.raises(DataError, match="no further sentence of 'one'; ask for a smaller corpus"):
        build_corpus(sizes={"train": 5})
