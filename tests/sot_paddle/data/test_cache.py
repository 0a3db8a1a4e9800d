"""The feature cache: never stale, never trusted when damaged, never in the data folder."""

from __future__ import annotations

import io
import logging
import os

import numpy as np
import pytest

from sot_paddle.data import cache
from sot_paddle.data.cache import cache_key, cached_split, tokenize_split
from sot_paddle.data.errors import DataError
from sot_paddle.data.tokenization import WordPieceTokenizer

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


def forbid_computing(monkeypatch) -> None:
    def never(*arguments):
        raise AssertionError("the features were computed again")

    monkeypatch.setattr(cache, "tokenize_split", never)


def test_the_second_time_it_is_read(folder, vocab_file, entries, monkeypatch):
    tokenizer = WordPieceTokenizer(vocab_file)
    computed = {s: cached_split(folder, "rte", s, tokenizer, entries) for s in ("train", "test")}
    assert same(computed["train"], tokenize_split(folder, "rte", "train", tokenizer))
    assert computed["train"].labels.tolist() == [0, 1]
    assert computed["train"].labels.dtype == np.int64
    assert computed["test"].labels is None
    assert computed["test"].indices.tolist() == [9]
    forbid_computing(monkeypatch)
    again = WordPieceTokenizer(vocab_file)
    for split, features in computed.items():
        assert same(cached_split(folder, "rte", split, again, entries), features)
    with pytest.raises(AssertionError, match="computed again"):  # a copy under another split
        cached_split(folder, "rte", "dev", again, entries)


@pytest.mark.parametrize(
    "options", [{"do_lower_case": False}, {"max_length": 64}, {"tie_break": "fast"}]
)
def test_every_option_is_in_the_key(folder, vocab_file, options):
    before = cache_key(folder, "rte", "train", WordPieceTokenizer(vocab_file))
    assert cache_key(folder, "rte", "train", WordPieceTokenizer(vocab_file, **options)) != before


def test_one_changed_byte_of_data_or_vocabulary_or_code(folder, vocab_file, entries, monkeypatch):
    first = cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    changed = TRAIN.replace("a b", "a c")
    stamp = (folder / "train.tsv").stat()
    (folder / "train.tsv").write_text(changed)
    os.utime(folder / "train.tsv", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    second = cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    assert not same(first, second)
    vocab_file.write_text(vocab_file.read_text().replace("\na\nb\n", "\nb\na\n"))
    third = cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    assert not same(second, third)
    assert len(list(entries.iterdir())) == 3
    key = cache_key(folder, "rte", "train", WordPieceTokenizer(vocab_file))
    monkeypatch.setattr(cache, "CODE", cache.CODE[:-1])
    assert cache_key(folder, "rte", "train", WordPieceTokenizer(vocab_file)) != key


def test_the_code_list_names_every_module_that_computes_features():
    """A module that one of them imports, and that decides a result, must be in the key."""
    from pathlib import Path

    package = Path(cache.__file__).parent
    imported = set()
    for module in cache.CODE:
        for line in (package / module).read_text().splitlines():
            words = line.split()
            if words[:1] == ["from"] and words[1].startswith("sot_paddle.data."):
                imported.add(words[1].rpartition(".")[2] + ".py")
    assert imported - set(cache.CODE) == {"errors.py"}


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "empty", "other"])
def test_a_damaged_entry_is_rebuilt_with_a_message(folder, vocab_file, entries, damage, caplog):
    tokenizer = WordPieceTokenizer(vocab_file)
    good = cached_split(folder, "rte", "train", tokenizer, entries)
    (path,) = entries.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(content[:-40])
    elif damage == "flip":
        content[content.index(good.input_ids.tobytes()) + 1] ^= 1
        path.write_bytes(content)
    elif damage == "other":  # a whole entry, under a wrong name
        cached_split(folder, "rte", "test", tokenizer, entries)
        (other,) = set(entries.iterdir()) - {path}
        path.write_bytes(other.read_bytes())
    else:
        path.write_bytes(b"" if damage == "empty" else b"not a zip file")
    with caplog.at_level(logging.WARNING):
        assert same(cached_split(folder, "rte", "train", tokenizer, entries), good)
    assert caplog.text.count("is damaged") == 1
    caplog.clear()
    assert same(cached_split(folder, "rte", "train", tokenizer, entries), good)
    assert not caplog.text


def test_an_entry_with_a_pickle_is_not_opened(folder, vocab_file, entries, caplog):
    tokenizer = WordPieceTokenizer(vocab_file)
    good = cached_split(folder, "rte", "train", tokenizer, entries)
    (path,) = entries.iterdir()
    np.savez(path, offsets=np.array([object()], dtype=object))
    assert same(cached_split(folder, "rte", "train", tokenizer, entries), good)
    assert "is damaged" in caplog.text
    stream = io.BytesIO()
    np.savez(stream, offsets=np.array([object()], dtype=object))
    key = cache_key(folder, "rte", "train", tokenizer)
    path.write_bytes(stream.getvalue() + cache._stamp(key, stream.getvalue()))  # forged
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cached_split(folder, "rte", "train", tokenizer, entries)


def test_every_single_flipped_byte_is_noticed(folder, vocab_file, entries, caplog):
    tokenizer = WordPieceTokenizer(vocab_file)
    good = cached_split(folder, "rte", "test", tokenizer, entries)
    (path,) = entries.iterdir()
    content = path.read_bytes()
    for position in range(0, len(content), 37):
        changed = bytearray(content)
        changed[position] ^= 0x21
        path.write_bytes(changed)
        caplog.clear()
        assert same(cached_split(folder, "rte", "test", tokenizer, entries), good)
        assert "is damaged" in caplog.text


def test_a_folder_that_cannot_be_written(folder, vocab_file, tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("")
    tokenizer = WordPieceTokenizer(vocab_file)
    features = cached_split(folder, "rte", "train", tokenizer, blocked / "entries")
    assert len(features) == 2
    (record,) = caplog.records
    assert record.getMessage().startswith("no cache: cannot write in")


def test_nothing_is_written_in_the_data_folder(folder, vocab_file, entries, caplog):
    before = sorted(folder.rglob("*"))
    tokenizer = WordPieceTokenizer(vocab_file)
    cached_split(folder, "rte", "train", tokenizer, entries)
    cached_split(folder, "rte", "train", tokenizer, folder / "cache")
    assert "lies in the data folder" in caplog.text
    assert sorted(folder.rglob("*")) == before


def test_a_file_that_changes_while_it_is_read(folder, vocab_file, entries, monkeypatch):
    real = cache.tokenize_split

    def slow(*arguments):
        features = real(*arguments)
        (folder / "train.tsv").write_text(TRAIN + "2\tx\ty\tentailment\n")
        return features

    monkeypatch.setattr(cache, "tokenize_split", slow)
    with pytest.raises(DataError, match="changed while being read"):
        cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)
    assert not entries.exists()


def test_bad_data_is_refused_as_without_a_cache(folder, vocab_file, entries):
    (folder / "train.tsv").write_text("")
    with pytest.raises(DataError, match="train.tsv is empty"):
        cached_split(folder, "rte", "train", WordPieceTokenizer(vocab_file), entries)


def test_regression_labels_are_float32(task_folder, vocab_file):
    columns = ["index", "sentence1", "sentence2", "score"]
    folder = task_folder("STS-B", train="\t".join(columns) + "\n0\ta\tb\t2.500\n")
    features = tokenize_split(folder, "sts-b", "train", WordPieceTokenizer(vocab_file))
    assert features.labels.dtype == np.float32
    assert features.labels.tolist() == [2.5]
