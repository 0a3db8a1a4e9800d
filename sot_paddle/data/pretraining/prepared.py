"""Folders of pre-training data, whole once their manifest is there; text files and their pieces."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.config import some
from sot_paddle.data.errors import DataError
from sot_paddle.reading import (
    MANIFEST,
    entry_of,
    field_of,
    listed_files,
    read_json,
    sha256_of,
    verify,
)


def text_files(names: Sequence[str]) -> list[Path]:
    """The files that are meant: files as they are, of a folder its ``*.txt`` sorted by name.

    Raises:
        DataError: one is not there, or a folder has none.
    """
    files: list[Path] = []
    for path in map(Path, names):
        inside = sorted(path.glob("*.txt")) if path.is_dir() else [path]
        if not inside:
            raise DataError(f"{path}: no *.txt in this folder")
        files += inside
    for path in files:
        if not path.is_file():
            raise DataError(f"{path} is missing: give text files, or a folder with *.txt")
    return files


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without white space at their ends or a byte-order mark.

    Raises:
        DataError: a line is no UTF-8; names file and line.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                raise DataError(f"{path}, line {number}: expected UTF-8 text: {error}") from None


_CONTENT = "pretraining"
_LOCK = "run.lock"  # of the command that holds the folder
_UNFINISHED = "unfinished.part"  # stands in a folder whose content may be replaced


def begin_preparation(folder: Path) -> None:
    """Take a folder that is new, empty, or what a preparation that was killed has left.

    Raises:
        DataError: it holds other files, or a finished preparation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(path.name for path in folder.iterdir())
    names = [name for name in names if name != _LOCK and not name.startswith(".")]
    if names and _UNFINISHED not in names:
        raise DataError(
            f"{folder}: expected a new folder, found {some(names)}; choose another folder"
        )
    (folder / _UNFINISHED).touch()


def finish(folder: Path, names: Sequence[str], content: Mapping[str, Any]) -> None:
    """Write the manifest that makes a folder readable, and remove its ``*.part``.

    Args:
        content: what a reader must know, JSON-ready; ``form`` is its kind.
    """
    paths = {name: folder / name for name in names}
    files = {name: entry_of(path) for name, path in paths.items()}
    manifest = {"files": files, _CONTENT: dict(content)}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    for part in folder.glob("*.part"):
        part.unlink()


def form_of(folder: Path) -> str:
    """The kind of a finished folder, "" for one that is none."""
    if not (folder / MANIFEST).is_file():
        return ""
    content = read_json(folder / MANIFEST).get(_CONTENT)
    return content.get("form", "") if isinstance(content, dict) else ""


def open_prepared(folder: Path, form: str, counts: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    """What a finished folder says of itself, its files compared with the manifest, and a hash.

    ``counts`` are keys that hold a number. A ValueError says that it is not finished, of another
    form, or that a file is missing, cut off or changed.
    """
    actual = form_of(folder)
    if actual != form:
        reason = f"holds {actual}" if actual else "is not finished (no manifest.json of one)"
        raise DataError(f"{folder} {reason}, expected prepared {form}: run prepare_pretraining.py")
    path = folder / MANIFEST
    content = read_json(path)[_CONTENT]
    for key in counts:
        field_of(content, key, int, str(path))
    for name in listed_files(folder):
        verify(folder / name)
    return content, sha256_of(path)[:32]


MODEL = "spm.model"


def train_pieces(
    files: Sequence[Path],
    folder: Path,
    *,
    vocab_size: int = 30000,
    sentences: int = 10_000_000,
    seed: int = 42,
    report: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Train a SentencePiece model on a sample of text; memory goes by the sample.

    Args:
        folder: of this training alone; the model is ``spm.model`` in it.
        sentences: of the sample at most, in the order of the text.
        options: further ones of the library's trainer, such as ``model_type`` (unigram).

    Raises:
        DataError: text that cannot be used, a size that the text cannot give, or a folder of
            another training.

    Source: specs.md E.3.
    """
    import sentencepiece

    begin_preparation(folder)
    count = sum(1 for _ in _texts(files))
    if not count:
        raise DataError(f"{', '.join(map(str, files))}: no line with text")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sample(files, count, min(sentences, count), seed),
            model_writer=model,
            vocab_size=vocab_size,
            **{"minloglevel": 2, "num_threads": 1, **options},
        )
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())[-200:]
        raise DataError(f"no model of {vocab_size} pieces from {files[0]}: {reason}") from None
    write_atomically(folder / MODEL, model.getvalue())
    finish(folder, (MODEL,), {})
    report(f"{vocab_size:,} pieces in {folder / MODEL}")


def _texts(files: Sequence[Path]) -> Iterator[str]:
    """Lines with text."""
    return filter(None, itertools.chain.from_iterable(map(lines_of, files)))


def _sample(files: Sequence[Path], left: int, wanted: int, seed: int) -> Iterator[str]:
    """Take each of ``left`` lines with the probability that leaves ``wanted`` in the end.

    The library can sample as well, but with another seed in every process.
    """
    rng = random.Random(seed)
    for text in _texts(files):
        if wanted and rng.random() * left < wanted:
            wanted -= 1
            yield text
        left -= 1
