"""Sentences for a tokenizer: a sample of text files, and the training of a SentencePiece model."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.journal import Journal, restored_random
from sot_paddle.data.pretraining.text_lines import Place, identity_of, lines_from

SAMPLE = "sample.txt"
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
    """Sample sentences and train a SentencePiece model on them; a second call goes on.

    Stages: lines counted, sample drawn, model trained. The first two go on after a kill; the
    library's training begins again, with another size where the sample cannot give the first one.
    Memory goes by the sample, not by the text.

    Args:
        files: one sentence a line.
        folder: of this training alone; the model is ``spm.model`` in it.
        vocab_size: pieces of the model.
        sentences: of the sample at most.
        seed: of the sample.
        report: is told what was done.
        options: further ones of the library's trainer, such as ``model_type`` (unigram).

    Raises:
        DataError: text that cannot be used, a size that the text cannot give, or a folder of
            another training.

    Source: specs.md E.3.
    """
    identity = {"files": identity_of(files), "sentences": sentences, "seed": seed}
    made = {"vocab_size": vocab_size, "options": options}  # the sample does not depend on it
    with contextlib.closing(Journal(folder, identity)) as journal:
        if journal.stage in ("", "count"):
            count = _count(journal, files)
            values = {"place": Place(), "left": count, "wanted": min(sentences, count)}
            journal.save("sample", **values, random=random.Random(seed).getstate())
        if journal.stage == "sample":
            _sample(journal, files)
            journal.save("train")
        if journal.stage == "train" or not (folder / MODEL).is_file():
            journal.close()
            _train(folder, vocab_size, options)
            journal.save("done", **made)
            report(f"{vocab_size:,} pieces in {folder / MODEL}")
        else:
            journal.require_same({**journal.identity, **journal.values}, made)


def _count(journal: Journal, files: Sequence[Path]) -> int:
    values = journal.values or {"place": Place(), "lines": 0}
    lines = values["lines"]
    for text, place in lines_from(files, Place(*values["place"])):
        lines += bool(text)
        if journal.due():
            journal.save("count", place=place, lines=lines)
    if not lines:
        raise DataError(f"{', '.join(map(str, files))}: no line with text")
    return lines


def _sample(journal: Journal, files: Sequence[Path]) -> None:
    """Take each line with the probability that leaves the wanted number of them in the end."""
    values, stream = journal.values, journal.file(SAMPLE)
    rng = restored_random(values["random"])
    left, wanted = values["left"], values["wanted"]
    for text, place in lines_from(files, Place(*values["place"])):
        if not text:
            continue
        if wanted and rng.random() * left < wanted:
            stream.write(text.encode() + b"\n")
            wanted -= 1
        left -= 1
        if journal.due():
            state = rng.getstate()
            journal.save("sample", place=place, left=left, wanted=wanted, random=state)


def _train(folder: Path, vocab_size: int, options: dict[str, Any]) -> None:
    import sentencepiece

    model, given = io.BytesIO(), {"minloglevel": 2, "num_threads": 1, **options}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text for text, _ in lines_from([folder / SAMPLE])),
            model_writer=model,
            vocab_size=vocab_size,
            **given,
        )
    except (RuntimeError, OSError) as error:
        said = " ".join(str(error).split())[-200:]
        raise DataError(f"no model of {vocab_size} pieces from {folder / SAMPLE}: {said}") from None
    write_atomically(folder / MODEL, model.getvalue())
