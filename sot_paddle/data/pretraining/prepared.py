"""Folders of pre-training data: rows of numbers, whole or not there; pairs; text files.

The numbers of all rows lie one after another in a file, and where each row begins and ends in
another one, in the order in which rows are read: that in which `random.Random(seed).shuffle` puts a
list, or that of the text. Memory holds 16 bytes a row.

Words of pairs are masked anew in every epoch, from draws that are a function of (seed, epoch, row).

Shape legend: S tokens of a row.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle import reading
from sot_paddle.atomic import atomic_directory
from sot_paddle.config import some
from sot_paddle.data.subword import SubwordTokenizer


def text_files(names: Sequence[str]) -> list[Path]:
    """The files that are meant: files as they are, of a folder its ``*.txt`` sorted by name.

    Raises:
        ValueError: one is not there, or a folder has none.
    """
    files: list[Path] = []
    for path in map(Path, names):
        inside = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not inside:
            raise ValueError(f"{path}: no *.txt in this folder")
        files += inside
    for path in files:
        if not path.is_file():
            raise ValueError(f"{path} is missing: give text files, or a folder with *.txt")
    return files


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without white space at their ends or a byte-order mark.

    Raises:
        ValueError: it is no UTF-8; names the file.
    """
    with reading.named_in_refusals(path), open(path, encoding="utf-8-sig", newline="\n") as stream:
        yield from map(str.strip, stream)


_TOGETHER = 256  # lines that are tokenized in one call; an even number


def batches_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lists of lines to tokenize together."""
    lines = iter(lines)
    while batch := list(itertools.islice(lines, _TOGETHER)):
        yield batch


NUMBERS, SPANS = "numbers.bin", "spans.bin"
_CONTENT = "pretraining"


def store_rows(
    folder: Path,
    files: Sequence[Path],
    rows: Iterable[Sequence[int]],
    content: Mapping[str, Any],
    shuffle: Callable[[array], None] | None,
) -> int:
    """Write rows of numbers to a new folder, and return how many there are.

    Args:
        files: what the rows are made from, for a refusal.
        content: what a reader must know, JSON-ready; ``form`` is its kind.
        shuffle: of the order of the rows, called when all are written; None keeps it.

    Raises:
        ValueError: the folder holds files already; there is no row.
    """
    with new_folder(folder, content) as writing:
        ends = array("q", [0])
        with open(writing / NUMBERS, "wb") as stream:
            for row in rows:
                stream.write(np.asarray(row, "<i4").tobytes())
                ends.append(ends[-1] + len(row))
        order = array("q", range(len(ends) - 1))
        if not order:
            names, form = ", ".join(map(str, files)), content["form"]
            raise ValueError(f"{names}: no {form}: docs/text.md says what a text has to be")
        if shuffle is not None:
            shuffle(order)
        spans = np.stack([ends[:-1], ends[1:]], axis=1).astype("<i8")  # (rows, 2)
        spans[order].tofile(writing / SPANS)
    return len(order)


@contextlib.contextmanager
def new_folder(folder: Path, content: Mapping[str, Any]) -> Iterator[Path]:
    """Yield a folder that gets a manifest and its name when the block ends without an exception.

    Raises:
        ValueError: the folder holds files already.
    """
    if names := sorted(path.name for path in folder.iterdir()) if folder.exists() else []:
        raise ValueError(
            f"{folder}: expected a new folder, found {some(names)}; choose another folder"
        )
    with atomic_directory(folder) as writing:
        yield writing
        reading.write_manifest(writing, **{_CONTENT: dict(content)})


def form_of(folder: Path) -> str:
    """The kind of a finished folder, "" for one that is none."""
    if not (folder / reading.MANIFEST).is_file():
        return ""
    content = reading.read_json(folder / reading.MANIFEST).get(_CONTENT)
    return content.get("form", "") if isinstance(content, dict) else ""


class StoredRows:
    """Rows of a prepared folder, read when they are asked for.

    Attributes:
        content: what the folder says of itself, see `store_rows`.
        fingerprint: hash of the folder.

    Raises:
        ValueError: it is not finished, of another form, or a file is missing or damaged.
    """

    def __init__(self, folder: Path, form: str) -> None:
        actual = form_of(folder)
        if actual != form:
            reason = f"holds {actual}" if actual else "is not finished (no manifest.json of one)"
            raise ValueError(
                f"{folder} {reason}, expected prepared {form}: run prepare_pretraining.py"
            )
        for name in reading.listed_files(folder / reading.MANIFEST):
            reading.verify(folder / name)
        self.content = reading.read_json(folder / reading.MANIFEST)[_CONTENT]
        self.vocab_size = self.content["vocab_size"]
        self.fingerprint = reading.sha256_of(folder / reading.MANIFEST)[:32]
        self._numbers = np.memmap(folder / NUMBERS, "<i4", "r")
        self._spans = np.memmap(folder / SPANS, "<i8", "r").reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._spans)

    def row(self, position: int) -> np.ndarray:
        """The int64 numbers of a row."""
        start, end = self._spans[position]
        return self._numbers[start:end].astype(np.int64)


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


PAIRS = "pairs"


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
    content = {"form": PAIRS, "vocab_size": vocab_size}
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


MODEL = "spm.model"


def train_pieces(
    files: Sequence[Path],
    folder: Path,
    *,
    vocab_size: int = 30000,
    sentences: int = 10_000_000,
    **options: Any,
) -> None:
    """Train a SentencePiece model on lines of text, evenly spread; memory goes by their number.

    Args:
        folder: a new one; the model is ``spm.model`` in it.
        sentences: lines to train on at most: each one, or every second, third, ... of the text.
        options: further ones of the library's trainer, such as ``model_type`` (unigram).

    Raises:
        ValueError: text that cannot be used, a size that the text cannot give, or a folder that
            holds files already.

    Source: specs.md E.3.
    """
    import sentencepiece

    count = sum(1 for _ in _texts(files))
    if not count:
        raise ValueError(f"{', '.join(map(str, files))}: no line with text")
    step = -(-count // sentences)
    model = io.BytesIO()
    with new_folder(folder, {}) as writing:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=itertools.islice(_texts(files), 0, None, step),
                model_writer=model,
                vocab_size=vocab_size,
                **{"minloglevel": 2, "num_threads": 1, **options},
            )
        except (RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[-200:]
            raise ValueError(f"no model of {vocab_size} pieces from {files[0]}: {reason}") from None
        (writing / MODEL).write_bytes(model.getvalue())


def _texts(files: Sequence[Path]) -> Iterator[str]:
    """Lines with text."""
    return filter(None, itertools.chain.from_iterable(map(lines_of, files)))
