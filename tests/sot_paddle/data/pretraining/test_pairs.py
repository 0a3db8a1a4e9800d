"""Pairs of lines: order and shuffle; words masked when a row is read."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.data.pretraining.masking import draws_of
from sot_paddle.data.pretraining.pair_files import PairRows, prepare_pairs
from sot_paddle.tasks.pretraining import EvenBatches


class Numbers:
    """A tokenizer whose text is the ids."""

    def ids(self, texts):
        return [[int(word) for word in text.split()] for text in texts]

    def pair(self, first, second):
        return [1, *first, 2, *second, 2], 0


def lines(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randint(3, 99) for _ in range(rng.randint(1, 9))] for _ in range(count)]


def write(folder: Path) -> tuple[list[Path], list[str]]:
    """Two files, the first with an odd number of lines and empty ones; the pairs of both."""
    files, pairs = [folder / "a.txt", folder / "b.txt"], []
    for file, rows in zip(files, (lines(701), lines(600, 1)), strict=True):
        texts = [" ".join(map(str, row)) for row in rows]
        file.write_text("\n\n".join(texts[:300]) + "\n" + "\n".join(texts[300:]), "utf-8")
        firsts, seconds = texts[::2], texts[1::2]
        pairs += [f"1 {a} 2 {b} 2" for a, b in zip(firsts, seconds, strict=False)]
    return files, pairs


def prepare(files, folder, tokenizer=Numbers(), **more):  # noqa: B008
    prepare_pairs(files, tokenizer, folder, vocab_size=100, report=lambda line: None, **more)
    return (folder / "pairs.txt").read_text("utf-8").splitlines()


def test_pairs_are_shuffled_as_a_list_is_where_they_fit(tmp_path) -> None:
    files, pairs = write(tmp_path)
    assert prepare(files, tmp_path / "kept", shuffle=False) == pairs
    expected = list(pairs)
    random.Random(42).shuffle(expected)
    assert prepare(files, tmp_path / "out") == expected
    rows = PairRows(tmp_path / "out")
    assert [" ".join(map(str, rows.row(at))) for at in range(len(rows))] == expected


@pytest.mark.parametrize("tokenizer", [Numbers(), None])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, tokenizer) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("5\n6\n", "utf-8-sig")
    expected = ["1 5 2 6 2"] if tokenizer else ["5", "6"]
    assert prepare([file], tmp_path / "out", tokenizer, shuffle=False) == expected


def test_lines_of_ids_are_taken_as_they_are(tmp_path) -> None:
    file = tmp_path / "ids.txt"
    file.write_text("1 5 2 7 2\n\n1  8 2\n", "utf-8")
    assert prepare([file], tmp_path / "out", None, shuffle=False) == ["1 5 2 7 2", "1  8 2"]
    assert PairRows(tmp_path / "out").row(1).tolist() == [1, 8, 2]


def test_draws_depend_on_seed_epoch_and_row() -> None:
    """Shares of masked words, on exchanged draws: tests/parity/test_pretraining.py."""
    first = draws_of(7, 0, 3, 24, 100)
    assert np.array_equal(first.uniform, draws_of(7, 0, 3, 24, 100).uniform)
    for other in ((8, 0, 3), (7, 1, 3), (7, 0, 4)):
        changed = draws_of(*other, 24, 100)
        assert (changed.uniform != first.uniform).all()
        assert (changed.words != first.words).any()


def test_even_batches_are_those_of_a_list() -> None:
    batches, whole = EvenBatches(11, 4), [range(4), range(4, 8), range(8, 11)]
    assert list(batches) == whole
    assert list(batches[1:]) == whole[1:]
    assert list(batches[1:][1:]) == whole[2:]
    assert (len(batches), len(batches[3:]), batches[2]) == (3, 0, whole[2])
    with pytest.raises(IndexError):
        batches[3]
