"""A corpus of token ids on the disk: documents, their sentences, read when they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.journal import Journal
from sot_paddle.data.pretraining.stored_numbers import NumberFile
from sot_paddle.data.pretraining.text_lines import Place, lines_from
from sot_paddle.data.subword import SubwordTokenizer

TOKENS, SENTENCES, DOCUMENTS = "tokens.bin", "sentences.bin", "documents.bin"
"""Token ids (int32); tokens up to the end of each sentence, sentences up to that of each document
(int64)."""

STAGE = "tokens"
_TOGETHER = 256  # lines that are tokenized in one call


def store_corpus(
    journal: Journal,
    files: Sequence[Path],
    tokenizer: SubwordTokenizer,
    report: Callable[[str], None],
) -> None:
    """Tokenize text files, one sentence a line and an empty line between documents.

    Lines without a token and documents without a sentence are left out, as in the original.

    Args:
        journal: goes on where it stands.
        files: read one after the other; a document may go on in the next file.
        tokenizer: cuts the sentences.
        report: is told how many documents there are.

    Raises:
        DataError: a line that cannot be read, or no document at all.
    """
    values = journal.values or {"place": Place(), "counts": [0, 0, 0], "open": False}
    tokens, sentences, documents = values["counts"]
    is_open = values["open"]  # whether the last document has a sentence
    streams = [journal.file(name) for name in (TOKENS, SENTENCES, DOCUMENTS)]
    lines = lines_from(files, Place(*values["place"]))
    while batch := list(itertools.islice(lines, _TOGETHER)):
        found = iter(tokenizer.ids([text for text, _ in batch if text]))
        for text, _ in batch:
            if not text:
                if is_open:
                    documents, is_open = documents + 1, False
                    streams[2].write(np.int64(sentences).tobytes())
                continue
            ids = next(found)
            if ids:
                tokens, sentences, is_open = tokens + len(ids), sentences + 1, True
                streams[0].write(np.array(ids, "<i4").tobytes())
                streams[1].write(np.int64(tokens).tobytes())
        if journal.due():
            counts = [tokens, sentences, documents]
            journal.save(STAGE, place=batch[-1][1], counts=counts, open=is_open)
    if is_open:
        documents += 1
        streams[2].write(np.int64(sentences).tobytes())
    if not documents:
        raise DataError(
            f"{', '.join(map(str, files))}: no document with a sentence; expected one sentence a "
            "line and an empty line between documents"
        )
    report(f"{documents:,} documents, {sentences:,} sentences, {tokens:,} tokens")


class StoredDocument(Sequence[list[int]]):
    """The sentences of a document.

    Args:
        corpus: it lies in.
        start: its first sentence.
        end: the one after its last.
    """

    def __init__(self, corpus: StoredCorpus, start: int, end: int) -> None:
        self._corpus, self._start, self._length = corpus, start, end - start

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: int) -> list[int]:
        """Token ids of a sentence."""
        return self._corpus.sentence(self._start + position)


class StoredCorpus(Sequence[StoredDocument]):
    """The documents that `store_corpus` wrote, in another order.

    Args:
        folder: of its files.
        order: position -> number of the document, as a file of int64.
    """

    def __init__(self, folder: Path, order: Path) -> None:
        self._tokens = NumberFile(folder / TOKENS, "<i4")
        self._sentences = NumberFile(folder / SENTENCES, "<i8")
        self._documents = NumberFile(folder / DOCUMENTS, "<i8")
        self._order = NumberFile(order, "<i8")

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, position: int) -> StoredDocument:
        """A document; its sentences are read when they are asked for."""
        start, end = _span(self._documents, self._order[position])
        return StoredDocument(self, start, end)

    def sentence(self, number: int) -> list[int]:
        """Token ids of a sentence by its number in the whole corpus."""
        start, end = _span(self._sentences, number)
        return self._tokens.read(start, end - start).tolist()


def _span(ends: NumberFile, number: int) -> tuple[int, int]:
    """Where an item begins and ends, of the ends of all items."""
    if number == 0:
        return 0, ends[0]
    start, end = ends.read(number - 1, 2)
    return int(start), int(end)
