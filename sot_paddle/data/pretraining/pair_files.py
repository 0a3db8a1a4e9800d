"""Text files to shuffled pairs of sentences, whose words are masked anew in every epoch.

Masks are made from draws that are a function of (seed, epoch, row).

Rows are read in the order in which `random.Random(seed).shuffle` puts a list (the originals'
iterable text file), or in that of the text (their cached list).

Shape legend: S tokens of a row.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.data.pretraining.prepared import batches_of, lines_of, store_rows
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


def prepare_pairs(
    files: Sequence[Path],
    tokenizer: SubwordTokenizer | None,
    folder: Path,
    *,
    vocab_size: int,
    seed: int = 42,
    shuffle: bool = True,
) -> int:
    """Make shuffled pairs of token ids below ``vocab_size``, and return how many there are.

    Args:
        files: one sentence a line, consecutive ones are a pair, an odd last one of a file is left
            out; lines of token ids where there is no tokenizer.
        tokenizer: cuts the sentences; None for files of token ids (the originals' iterable text).

    Raises:
        ValueError: text that cannot be used, or a folder that holds files already.

    Source: specs.md E.3.
    """
    rows = _id_rows(files, vocab_size) if tokenizer is None else _pair_rows(files, tokenizer)
    content = {"form": FORM, "vocab_size": vocab_size}
    return store_rows(
        folder, files, rows, content, random.Random(seed).shuffle if shuffle else None
    )


def _id_rows(files: Sequence[Path], vocab_size: int) -> Iterator[list[int]]:
    """The token ids of each line."""
    for path in files:
        for number, line in enumerate(lines_of(path), 1):
            try:
                ids = [int(word) for word in line.split()]
            except ValueError:
                ids = [vocab_size]
            if ids and not 0 <= min(ids) <= max(ids) < vocab_size:
                raise ValueError(
                    f"{path}, line {number}: expected token ids from 0 to {vocab_size - 1}, got "
                    f"{line[:40]!r}"
                )
            if ids:
                yield ids


def _pair_rows(files: Sequence[Path], tokenizer: SubwordTokenizer) -> Iterator[list[int]]:
    """The row of each two consecutive lines with text."""
    for path in files:
        for texts in batches_of(filter(None, lines_of(path))):
            ids = tokenizer.ids(texts)
            for first, second in zip(ids[::2], ids[1::2], strict=False):
                yield tokenizer.pair(first, second)[0]
