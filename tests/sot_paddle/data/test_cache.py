"""The feature cache: never stale, never trusted when damaged."""

from __future__ import annotations

import logging
import os

import numpy as np
import pytest

from sot_paddle.data import cache
from sot_paddle.data.cache import cache_key, cached_split, tokenize_split
from sot_paddle.data.tokenizers import WordPieceTokenizer

HEADER = "index\tsentence1\tsentence2\tlabel\n"
TRAIN = HEADER + "0\ta b\tc\tentailment\n1\tcats\tx y.\tnot_entailment\n"


@pytest.fixture
def folder(task_folder):
    return task_folder("RTE", train=TRAIN, dev=TRAIN, test="index\tsentence1\tsentence2\n9\ta\tb\n")


@pytest.fixture
def entries(tmp_path):
    """The cache's folder."""
    return tmp_path / "entries"


def same(left, right) -> bool:
    first, second = left.arrays(), right.arrays()
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and np.array_equal(first[name], second[name])
        for name in first
    )


def test_the_second_time_it_is_read(folder, vocab_file, entries, monkeypatch):
    tokenizer = WordPieceTokenizer(vocab_file)
    computed = {s: cached_split(folder, "rte", s, tokenizer, entries) for s in ("train", "test")}
    assert same(computed["train"], tokenize_split(folder, "rte", "train", tokenizer))
    assert computed["train"].labels.tolist() == [0, 1]
    assert computed["train"].labels.dtype == np.int64
    assert computed["test"].labels is None
    assert computed["test"].indices.tolist() == [9]
    monkeypatch.delattr(cache, "tokenize_split")
    again = WordPieceTokenizer(vocab_file)
    for split, features in computed.items():
        assert same(cached_split(folder, "rte", split, again, entries), features)
    with pytest.raises(NameError):  # a copy under another split
        cached_split(folder, "rte", "dev", again, entries)


def test_every_option_is_in_the_key(folder, vocab_file):
    options = ({}, {"do_lower_case": False}, {"max_length": 64}, {"tie_break": "fast"})
    tokenizers = [WordPieceTokenizer(vocab_file, **given) for given in options]
    assert len({cache_key(folder, "rte", "train", one) for one in tokenizers}) == len(options)


def test_one_changed_byte_of_data_or_vocabulary(folder, vocab_file, entries):
    first = cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    stamp = (folder / "train.tsv").stat()
    (folder / "train.tsv").write_text(TRAIN.replace("a b", "a c"))
    os.utime(folder / "train.tsv", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    second = cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    assert not same(first, second)
    vocab_file.write_text(vocab_file.read_text().replace("\na\nb\n", "\nb\na\n"))
    third = cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    assert not same(second, third)
    assert len(list(entries.iterdir())) == 3


def test_a_damaged_entry_is_rebuilt(folder, vocab_file, entries, caplog):
    tokenizer = WordPieceTokenizer(vocab_file)
    good = cached_split(folder, "rte", "train", tokenizer, entries)
    (path,) = entries.iterdir()
    content = path.read_bytes()
    pickled = entries / "pickled.npz"
    np.savez(pickled, offsets=np.array([object()], dtype=object))
    flipped = content.index(good.input_ids.tobytes()) + 1
    damaged = [content[:-40], b"", b"no zip file", pickled.read_bytes()]
    damaged.append(content[:flipped] + bytes([content[flipped] ^ 1]) + content[flipped + 1 :])
    for changed in damaged:
        path.write_bytes(changed)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert same(cached_split(folder, "rte", "train", tokenizer, entries), good)
        assert caplog.text.count("is damaged") == 1
        assert path.read_bytes() == content
    directory = content.index(b"PK\1\2")
    positions = (*range(0, directory, 47), *range(directory, len(content), 3))
    for position in positions:  # wherever it is: never another number
        changed = bytearray(content)
        changed[position] ^= 0x21
        path.write_bytes(changed)
        assert same(cached_split(folder, "rte", "train", tokenizer, entries), good)


def test_a_folder_that_cannot_be_written(folder, vocab_file, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    tokenizer = WordPieceTokenizer(vocab_file)
    features = cached_split(folder, "rte", "train", tokenizer, tmp_path / "file" / "entries")
    assert len(features) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("no cache: cannot write in")
