"""A corpus of token ids on the disk: documents, their sentences, read when they are asked for."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.text_lines import lines_of
from sot_paddle.data.subword import SubwordTokenizer

_TOGETHER = 256  # lines that are tokenized in one call


@dataclass
class StoredCorpus(Sequence):
    """Documents of sentences of token ids.

    Attributes:
        tokens: ids of all of them.
        sentences: where each sentence begins in ``tokens``, and the last one ends.
        documents: likewise in ``sentences``.
        order: position -> number of the document in the text.
    """

    tokens: np.ndarray
    sentences: array
    documents: array
    order: array

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, position: int) -> StoredDocument:
        number = self.order[position]
        return StoredDocument(self, self.documents[number], self.documents[number + 1])


@dataclass(frozen=True)
class StoredDocument(Sequence):
    """Sentences of a corpus from ``start`` up to ``end``, a list of token ids each."""

    corpus: StoredCorpus
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, position: int) -> list[int]:
        first, end = self.corpus.sentences[self.start + position : self.start + position + 2]
        return self.corpus.tokens[first:end].tolist()


def store_corpus(files: Sequence[Path], tokenizer: SubwordTokenizer, path: Path) -> StoredCorpus:
    """Tokenize text files, one sentence a line and an empty line between documents.

    Lines without a token and documents without a sentence are left out, as in the original. A
    document may go on in the next file.

    Args:
        files: read one after the other.
        tokenizer: cuts the sentences.
        path: file of the token ids, written here.

    Raises:
        DataError: a line that cannot be read, or no document at all.
    """
    lines = itertools.chain.from_iterable(map(lines_of, files))
    sentences, documents = array("q", [0]), array("q", [0])
    with open(path, "wb") as stream:
        while batch := list(itertools.islice(lines, _TOGETHER)):
            tokenized = iter(tokenizer.ids([text for text in batch if text]))
            for text in batch:
                ids = next(tokenized) if text else []
                if ids:
                    stream.write(np.array(ids, "<i4").tobytes())
                    sentences.append(sentences[-1] + len(ids))
                elif not text and len(sentences) - 1 > documents[-1]:
                    documents.append(len(sentences) - 1)
    if len(sentences) - 1 > documents[-1]:
        documents.append(len(sentences) - 1)
    if len(documents) == 1:
        raise DataError(
            f"{', '.join(map(str, files))}: no document with a sentence; expected one sentence a "
            "line and an empty line between documents"
        )
    order = array("q", range(len(documents) - 1))
    return StoredCorpus(np.memmap(path, "<i4", "r"), sentences, documents, order)
