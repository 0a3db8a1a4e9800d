"""Text files to shuffled pairs of sentences, whose words are masked anew in every epoch.

Masks are made from draws that are a function of (seed, epoch, row).

The rows lie on the disk, first in the order of the text (the originals' cached list), then as
`random.Random(seed).shuffle` shuffles a list (the originals' iterable text file). Memory holds 16
bytes a row.

Shape legend: S tokens of a row.
"""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.prepared import begin_preparation, finish, lines_of, open_prepared
from sot_paddle.data.subword import SubwordTokenizer

REPLACED, RANDOM = 0.8, 0.5  # of the chosen words: [MASK]; of the others: random words


@dataclass(frozen=True)
class MaskDraws:
    """What masking a row draws."""

    uniform: np.ndarray  # (3, S) from 0 to 1: whether a token is chosen, is hidden, is replaced
    words: np.ndarray  # (S,) random words


def draws_of(seed: int, epoch: int, row: int, length: int, vocab_size: int) -> MaskDraws:
    """The draws of a row in an epoch, whatever was drawn before."""
    rng = np.random.Generator(np.random.PCG64([seed, epoch, row]))
    return MaskDraws(rng.random((3, length)), rng.integers(0, vocab_size, length))


def masked(
    ids: np.ndarray, draws: MaskDraws, *, share: float, mask_id: int, kept: Collection[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Mask words of a row.

    Args:
        ids: (S,) token ids, padded.
        share: of the tokens that are chosen, each by itself.
        kept: ids that are never chosen (special tokens, padding).

    Returns:
        (S,) ids with words masked, (S,) bool: which words were chosen.

    Source: specs.md E.3.
    """
    chosen = (draws.uniform[0] < share) & ~np.isin(ids, list(kept))
    hidden = chosen & (draws.uniform[1] < REPLACED)
    other = chosen & ~hidden & (draws.uniform[2] < RANDOM)
    return np.where(hidden, mask_id, np.where(other, draws.words, ids)), chosen


FORM = "pairs"
ROWS, STARTS = "pairs.txt", "starts.bin"
_CACHED = "cached.part"
_TOGETHER = 256  # lines that are tokenized in one call; an even number


def prepare_pairs(
    files: Sequence[Path],
    tokenizer: SubwordTokenizer | None,
    folder: Path,
    *,
    vocab_size: int,
    seed: int = 42,
    shuffle: bool = True,
    report: Callable[[str], None] = print,
) -> None:
    """Make shuffled pairs of token ids below ``vocab_size``.

    Args:
        files: one sentence a line, consecutive ones are a pair, an odd last one of a file is left
            out; lines of token ids where there is no tokenizer.
        tokenizer: cuts the sentences; None for files of token ids (the originals' iterable text).

    Raises:
        DataError: text that cannot be used, or a folder of another preparation.

    Source: specs.md E.3.
    """
    begin_preparation(folder)
    starts = array("q", [0])
    with open(folder / _CACHED, "wb") as stream:
        for row in _rows(files, tokenizer, vocab_size):
            starts.append(starts[-1] + stream.write(f"{row}\n".encode()))
    count = len(starts) - 1
    if not count:
        raise DataError(f"{', '.join(map(str, files))}: no pair of lines with text")
    order = array("q", range(count))
    if shuffle:
        random.Random(seed).shuffle(order)
    cached, place = np.memmap(folder / _CACHED, "u1", "r"), 0
    with open(folder / ROWS, "wb") as rows, open(folder / STARTS, "wb") as places:
        for number in order:
            places.write(place.to_bytes(8, "little"))
            place += rows.write(cached[starts[number] : starts[number + 1]])
    finish(folder, (ROWS, STARTS), {"form": FORM, "rows": count, "vocab_size": vocab_size})
    report(f"{count:,} pairs in {folder}")


def _rows(
    files: Sequence[Path], tokenizer: SubwordTokenizer | None, vocab_size: int
) -> Iterator[str]:
    """Lines of token ids in the order of the text."""
    for path in files:
        if tokenizer is None:
            for number, line in enumerate(lines_of(path), 1):
                if line:
                    parsed_row(line, vocab_size, f"{path}, line {number}")
                    yield line
            continue
        texts = filter(None, lines_of(path))
        while batch := list(itertools.islice(texts, _TOGETHER)):
            ids = tokenizer.ids(batch)
            for first, second in zip(ids[::2], ids[1::2], strict=False):
                row, _ = tokenizer.pair(first, second)
                yield " ".join(map(str, row))


def parsed_row(text: str, vocab_size: int, where: str) -> np.ndarray:
    """Token ids of a line; refuses anything but ids below ``vocab_size``."""
    try:
        ids = np.array([int(word) for word in text.split()], np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"{where}: expected token ids, got {text[:40]!r}") from None
    if not len(ids) or ids.min() < 0 or ids.max() >= vocab_size:
        raise DataError(f"{where}: expected token ids from 0 to {vocab_size - 1}")
    return ids


class PairRows:
    """The rows of a prepared folder, read when they are asked for.

    Raises:
        ValueError: the folder is not finished, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        content, self.fingerprint = open_prepared(folder, FORM, ("vocab_size",))
        self.vocab_size, self._path = content["vocab_size"], folder / ROWS
        self._text = np.memmap(self._path, "u1", "r")
        self._starts = np.memmap(folder / STARTS, "<i8", "r")

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, position: int) -> np.ndarray:
        """Token ids of a row."""
        start, end = [*self._starts[position : position + 2], len(self._text)][:2]
        text = self._text[start:end].tobytes().decode()
        return parsed_row(text, self.vocab_size, f"{self._path}, line {position + 1}")
