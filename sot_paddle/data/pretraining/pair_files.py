"""Text files to pairs of sentences as token ids, shuffled, in a folder that a training reads from.

Stages: pairs in the order of the text (the originals' cached list), lines dealt to buckets that fit
the memory budget, buckets shuffled one after the other (the originals' iterable text file). Each
stage goes on after a kill.

A line that is dealt to a random bucket and shuffled within it may end anywhere with the same
probability. What fits one bucket is shuffled as `random.Random(seed).shuffle` shuffles a list.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.journal import Journal, restored_random
from sot_paddle.data.pretraining.prepared import finish, open_prepared
from sot_paddle.data.pretraining.stored_numbers import NumberFile
from sot_paddle.data.pretraining.text_lines import Place, identity_of, lines_from
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.reading import open_file, shown

FORM = "pairs"
ROWS, STARTS = "pairs.txt", "starts.bin"
BUDGET = 1 << 29
"""Bytes of memory that the shuffle may take, about."""

_CACHED = "cached.part"
_TOGETHER = 256  # lines that are tokenized in one call; an even number
_LONGEST_ROW = 1 << 24
_OVERHEAD = 4  # memory of a line in Python over its bytes in the file, about


def prepare_pairs(
    files: Sequence[Path],
    tokenizer: SubwordTokenizer | None,
    folder: Path,
    *,
    vocab_size: int,
    fingerprint: str = "",
    seed: int = 42,
    budget: int = BUDGET,
    shuffle: bool = True,
    report: Callable[[str], None] = print,
) -> None:
    """Make shuffled pairs; a second call goes on with what a first one began.

    Args:
        files: one sentence a line, consecutive ones are a pair, an odd last one of a file is left
            out; lines of token ids where there is no tokenizer.
        tokenizer: cuts the sentences; None for files of token ids (the originals' iterable text).
        folder: of this preparation alone.
        vocab_size: token ids are below it.
        fingerprint: of the tokenizer.
        seed: of the shuffle.
        budget: memory of the shuffle, in bytes.
        shuffle: False keeps the order.
        report: is told what was done.

    Raises:
        DataError: text that cannot be used, or a folder of another preparation.

    Source: specs.md E.3.
    """
    facts = {"tokenizer": fingerprint, "vocab_size": vocab_size}
    identity = {"files": identity_of(files), "seed": seed, "budget": budget, **facts}
    with contextlib.closing(Journal(folder, {**identity, "shuffle": shuffle})) as journal:
        if journal.stage in ("", "cached"):
            count = _cache(journal, files, tokenizer, vocab_size)
            journal.save("deal", offset=0, count=count, random=random.Random(seed).getstate())
        if journal.stage == "deal":
            buckets = _buckets(journal.file(_CACHED).tell(), budget) if shuffle else 1
            rng = _deal(journal, buckets)
            count = journal.values["count"]
            journal.save("join", bucket=0, count=count, of=buckets, random=rng.getstate())
        if journal.stage == "join":
            _join(journal, shuffle)
            journal.save("joined", count=journal.values["count"])
        if journal.stage == "joined":
            content = {"form": FORM, "rows": journal.values["count"], **facts}
            finish(journal, (ROWS, STARTS), content)
            report(f"{journal.values['count']:,} pairs in {folder}")


def _cache(
    journal: Journal, files: Sequence[Path], tokenizer: SubwordTokenizer | None, vocab_size: int
) -> int:
    values = journal.values or {"place": Place(), "count": 0}
    count, stream = values["count"], journal.file(_CACHED)
    for lines in _batches(files, Place(*values["place"])):
        if tokenizer is None:
            for text, after in lines:
                parsed_row(text, vocab_size, f"{shown(files[after.file])}, line {after.line}")
                stream.write(text.encode() + b"\n")
            count += len(lines)
        else:
            ids = tokenizer.ids([text for text, _ in lines])
            for first, second in zip(ids[::2], ids[1::2], strict=False):
                row, _ = tokenizer.pair(first, second)
                stream.write(" ".join(map(str, row)).encode() + b"\n")
                count += 1
        if journal.due():
            journal.save("cached", place=lines[-1][1], count=count)
    if not count:
        raise DataError(f"{', '.join(map(str, files))}: no pair of lines with text")
    return count


def _batches(files: Sequence[Path], place: Place) -> Iterator[list[tuple[str, Place]]]:
    """Lines with text and the place after each, an even number but at the end of a file."""
    lines = lines_from(files, place)
    for _, of_file in itertools.groupby(lines, lambda line: line[1].file):
        with_text = (line for line in of_file if line[0])
        while batch := list(itertools.islice(with_text, _TOGETHER)):
            yield batch


def parsed_row(text: str, vocab_size: int, where: str) -> np.ndarray:
    """Token ids of a line.

    Raises:
        DataError: it holds something else than ids below ``vocab_size``; begins with ``where``.
    """
    try:
        ids = np.array([int(word) for word in text.split()], np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"{where}: expected token ids, got {text[:40]!r}") from None
    if not len(ids) or ids.min() < 0 or ids.max() >= vocab_size:
        raise DataError(f"{where}: expected token ids from 0 to {vocab_size - 1}")
    return ids


def _buckets(size: int, budget: int) -> int:
    return max(1, -(-size * _OVERHEAD // budget))


def _bucket(index: int) -> str:
    return f"bucket-{index:05d}.part"


def _deal(journal: Journal, buckets: int) -> random.Random:
    """Deal the lines to buckets at random; returns the generator as it stands after them."""
    values = journal.values
    rng, offset, count = restored_random(values["random"]), values["offset"], values["count"]
    if buckets == 1:
        return rng
    streams = [journal.file(_bucket(index)) for index in range(buckets)]
    with open_file(journal.folder / _CACHED) as source:
        source.seek(offset)
        for line in source:
            offset += len(line)
            streams[rng.randrange(buckets)].write(line)
            if journal.due():
                journal.save("deal", offset=offset, count=count, random=rng.getstate())
    return rng


def _join(journal: Journal, shuffle: bool) -> None:
    """Shuffle bucket after bucket, and write them with the places where lines begin."""
    values = journal.values
    rng, buckets = restored_random(values["random"]), values["of"]
    rows, starts = journal.file(ROWS), journal.file(STARTS)
    for index in range(values["bucket"], buckets):
        with open_file(journal.folder / (_CACHED if buckets == 1 else _bucket(index))) as stream:
            lines: Iterable[bytes] = stream
            if shuffle:
                lines = list(stream)
                rng.shuffle(lines)
            place = rows.tell()
            for line in lines:
                starts.write(place.to_bytes(8, "little"))
                rows.write(line)
                place += len(line)
        del lines
        state = {"bucket": index + 1, "count": values["count"], "of": buckets}
        journal.save("join", **state, random=rng.getstate())


class PairRows:
    """The rows of a prepared folder, read when they are asked for.

    Args:
        folder: that `prepare_pairs` finished.

    Attributes:
        vocab_size: token ids are below it.
        tokenizer: fingerprint of the tokenizer, "" where there was none.
        fingerprint: hash of the data.

    Raises:
        DataError: it is not finished, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        content, self.fingerprint = open_prepared(folder, FORM, ("vocab_size",))
        self.vocab_size, self.tokenizer = content["vocab_size"], content["tokenizer"]
        self._bytes = NumberFile(folder / ROWS, "u1")
        self._starts = NumberFile(folder / STARTS, "<i8")

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, position: int) -> np.ndarray:
        """Token ids of a row.

        Raises:
            DataError: the line holds something else.
        """
        start = self._starts[position]
        last = position + 1 == len(self)
        end = len(self._bytes) if last else self._starts[position + 1]
        where = f"{shown(self._bytes.path)}, line {position + 1}"
        if not 0 <= start < end <= len(self._bytes) or end - start > _LONGEST_ROW:
            raise DataError(f"{where}: does not lie where {STARTS} says; prepare it again")
        text = self._bytes.read(start, end - start).tobytes().decode("ascii", "replace")
        return parsed_row(text, self.vocab_size, where)
