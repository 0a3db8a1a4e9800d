"""Folders of pre-training data: rows of numbers, whole once their manifest is there; text files.

The numbers of all rows lie one after another in a file, and where each row begins and ends in
another one, in the order in which rows are read. Memory holds 16 bytes a row.
"""

from __future__ import annotations

import io
import itertools
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.atomic import write_atomically
from sot_paddle.config import some
from sot_paddle.reading import MANIFEST, entry_of, listed_files, read_json, sha256_of, verify


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
        ValueError: a line is no UTF-8; names file and line.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {number}: expected UTF-8 text: {error}") from None


_TOGETHER = 256  # lines that are tokenized in one call; an even number


def batches_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """Lists of lines to tokenize together."""
    lines = iter(lines)
    while batch := list(itertools.islice(lines, _TOGETHER)):
        yield batch


NUMBERS, SPANS = "numbers.bin", "spans.bin"
_CONTENT = "pretraining"
_LOCK = "run.lock"  # of the command that holds the folder
_UNFINISHED = "unfinished.part"  # stands in a folder whose content may be replaced


def store_rows(
    folder: Path,
    files: Sequence[Path],
    rows: Iterable[Sequence[int]],
    content: Mapping[str, Any],
    shuffle: Callable[[array], None] | None,
) -> int:
    """Write rows of numbers to a new folder, and return how many there are.

    Args:
        folder: new, empty, or what a preparation that was killed has left.
        files: what the rows are made from, for a refusal.
        content: what a reader must know, JSON-ready; ``form`` is its kind.
        shuffle: of the order of the rows, called when all are written; None keeps it.

    Raises:
        ValueError: the folder holds other files or a finished preparation; there is no row.
    """
    begin_preparation(folder)
    ends = array("q", [0])
    with open(folder / NUMBERS, "wb") as stream:
        for row in rows:
            stream.write(np.asarray(row, "<i4").tobytes())
            ends.append(ends[-1] + len(row))
    order = array("q", range(len(ends) - 1))
    if not order:
        names = ", ".join(map(str, files))
        raise ValueError(f"{names}: no {content['form']}: docs/text.md says what a text has to be")
    if shuffle is not None:
        shuffle(order)
    spans = np.stack([ends[:-1], ends[1:]], axis=1).astype("<i8")  # (rows, 2)
    spans[order].tofile(folder / SPANS)
    finish(folder, (NUMBERS, SPANS), content)
    return len(order)


def begin_preparation(folder: Path) -> None:
    """Take a folder that is new, empty, or what a preparation that was killed has left.

    Raises:
        ValueError: it holds other files, or a finished preparation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in folder.iterdir())
    names = [name for name in names if name != _LOCK and not name.startswith(".")]
    if names and _UNFINISHED not in names:
        raise ValueError(
            f"{folder}: expected a new folder, found {some(names)}; choose another folder"
        )
    (folder / _UNFINISHED).touch()


def finish(folder: Path, names: Sequence[str], content: Mapping[str, Any]) -> None:
    """Write the manifest that makes a folder readable; see `store_rows`."""
    paths = {name: folder / name for name in names}
    files = {name: entry_of(path) for name, path in paths.items()}
    manifest = {"files": files, _CONTENT: dict(content)}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    (folder / _UNFINISHED).unlink()


def form_of(folder: Path) -> str:
    """The kind of a finished folder, "" for one that is none."""
    if not (folder / MANIFEST).is_file():
        return ""
    content = read_json(folder / MANIFEST).get(_CONTENT)
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
        for name in listed_files(folder / MANIFEST):
            verify(folder / name)
        self.content = read_json(folder / MANIFEST)[_CONTENT]
        self.vocab_size = self.content["vocab_size"]
        self.fingerprint = sha256_of(folder / MANIFEST)[:32]
        self._numbers = np.memmap(folder / NUMBERS, "<i4", "r")
        self._spans = np.memmap(folder / SPANS, "<i8", "r").reshape(-1, 2)

    def __len__(self) -> int:
        return len(self._spans)

    def numbers(self, position: int) -> np.ndarray:
        """The int64 numbers of a row."""
        start, end = self._spans[position]
        return self._numbers[start:end].astype(np.int64)


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
        folder: of this training alone; the model is ``spm.model`` in it.
        sentences: lines to train on at most: each one, or every second, third, ... of the text.
        options: further ones of the library's trainer, such as ``model_type`` (unigram).

    Raises:
        ValueError: text that cannot be used, a size that the text cannot give, or a folder of
            another training.

    Source: specs.md E.3.
    """
    import sentencepiece

    begin_preparation(folder)
    count = sum(1 for _ in _texts(files))
    if not count:
        raise ValueError(f"{', '.join(map(str, files))}: no line with text")
    step = -(-count // sentences)
    model = io.BytesIO()
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
    write_atomically(folder / MODEL, model.getvalue())
    finish(folder, (MODEL,), {})


def _texts(files: Sequence[Path]) -> Iterator[str]:
    """Lines with text."""
    return filter(None, itertools.chain.from_iterable(map(lines_of, files)))
