"""The training of a SentencePiece model on a sample of sentences."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.prepared import begin_preparation, finish, lines_of

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
