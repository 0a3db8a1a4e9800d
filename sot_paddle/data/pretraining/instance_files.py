"""Text files to instances of BERT's two tasks, in a folder that a training reads from.

Stages: tokens of the corpus, order of its documents, instances, order of the instances. Nothing
grows with the corpus but the files; each stage goes on after a kill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining import stored_corpus
from sot_paddle.data.pretraining.instances import Instance, InstanceOptions, document_instances
from sot_paddle.data.pretraining.journal import Journal, restored_random
from sot_paddle.data.pretraining.prepared import finish, open_prepared
from sot_paddle.data.pretraining.stored_corpus import StoredCorpus, store_corpus
from sot_paddle.data.pretraining.stored_numbers import NumberFile, shuffle_file
from sot_paddle.data.pretraining.text_lines import identity_of
from sot_paddle.data.subword import SubwordTokenizer

FORM = "instances"
ROWS, ORDER = "instances.bin", "order.bin"
_DOCUMENTS = "document_order.bin"
_HEAD = 4  # length, boundary, random_next, predictions
_BLOCK = 1 << 16


def prepare_instances(
    files: Sequence[Path],
    tokenizer: SubwordTokenizer,
    folder: Path,
    options: InstanceOptions,
    *,
    fingerprint: str,
    dupes: int = 10,
    seed: int = 12345,
    report: Callable[[str], None] = print,
) -> None:
    """Make the instances of text files; a second call goes on with what a first one began.

    Args:
        files: one sentence a line, an empty line between documents.
        tokenizer: cuts the sentences.
        folder: of this preparation alone.
        options: of the instances.
        fingerprint: of the tokenizer.
        dupes: passes over the documents, each with its own draws.
        seed: of every draw.
        report: is told what was done.

    Raises:
        DataError: text that cannot be used, or a folder of another preparation.

    Source: specs.md D.1.
    """
    facts = {**dataclasses.asdict(options), "tokenizer": fingerprint}
    identity = {"files": identity_of(files), "dupes": dupes, "seed": seed, **facts}
    with contextlib.closing(Journal(folder, identity)) as journal:
        if journal.stage in ("", stored_corpus.STAGE):
            store_corpus(journal, files, tokenizer, report)
            rng = random.Random(seed)
            count = _ends(journal, stored_corpus.DOCUMENTS)
            _shuffled(journal, _DOCUMENTS, count, rng)
            journal.save(FORM, round=0, document=0, random=rng.getstate())
        if journal.stage == FORM:
            rng = _make(journal, options, dupes)
            width = _HEAD + options.max_seq_length + 2 * options.max_predictions
            count = _ends(journal, ROWS) // (4 * width)
            _shuffled(journal, ORDER, count, rng)
            journal.save("order", count=count)
        if journal.stage == "order":
            content = {"form": FORM, "rows": journal.values["count"], **facts}
            finish(journal, (ROWS, ORDER), content)
            report(f"{journal.values['count']:,} instances in {folder}")


def _ends(journal: Journal, name: str) -> int:
    """Bytes of a file, or entries of a file of int64."""
    stream = journal.file(name)
    stream.flush()
    size = (journal.folder / name).stat().st_size
    return size if name == ROWS else size // 8


def _shuffled(journal: Journal, name: str, count: int, rng: random.Random) -> None:
    """A file of 0, 1, ... in a random order; a kill in between begins it anew."""
    journal.drop(name)
    stream = journal.file(name)
    for start in range(0, count, _BLOCK):
        stream.write(np.arange(start, min(count, start + _BLOCK), dtype="<i8").tobytes())
    stream.flush()
    shuffle_file(journal.folder / name, rng)


def _make(journal: Journal, options: InstanceOptions, dupes: int) -> random.Random:
    """Write the instances; returns the generator as it stands after them."""
    values = journal.values
    rng, stream = restored_random(values["random"]), journal.file(ROWS)
    for name in (stored_corpus.TOKENS, stored_corpus.SENTENCES, stored_corpus.DOCUMENTS):
        journal.file(name)
    corpus = StoredCorpus(journal.folder, journal.folder / _DOCUMENTS)
    begin = values["document"]
    for turn in range(values["round"], dupes):
        for index in range(begin, len(corpus)):
            for instance in document_instances(corpus, index, options, rng):
                row = packed(instance, options.max_seq_length, options.max_predictions)
                stream.write(row.tobytes())
            if journal.due():
                journal.save(FORM, round=turn, document=index + 1, random=rng.getstate())
        begin = 0
    return rng


def packed(instance: Instance, max_seq_length: int, max_predictions: int) -> np.ndarray:
    """The numbers of a stored instance.

    Args:
        instance: fits the two sizes.
        max_seq_length: S.
        max_predictions: P.

    Returns:
        (4 + S + 2 P,) int32.
    """
    row = np.zeros(_HEAD + max_seq_length + 2 * max_predictions, "<i4")
    length, count = len(instance.tokens), len(instance.positions)
    row[:_HEAD] = length, instance.boundary, instance.random_next, count
    row[_HEAD : _HEAD + length] = instance.tokens
    positions = _HEAD + max_seq_length
    row[positions : positions + count] = instance.positions
    words = positions + max_predictions
    row[words : words + count] = instance.words
    return row


_COUNTS = ("max_seq_length", "max_predictions", "vocab_size", "rows")


class InstanceRows:
    """The instances of a prepared folder, in their shuffled order, read when they are asked for.

    Args:
        folder: that `prepare_instances` finished.

    Attributes:
        max_seq_length: S.
        max_predictions: P.
        vocab_size: words of the vocabulary.
        fingerprint: hash of the data.

    Raises:
        DataError: it is not finished, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        content, self.fingerprint = open_prepared(folder, FORM, _COUNTS)
        self.max_seq_length = content["max_seq_length"]
        self.max_predictions = content["max_predictions"]
        self.vocab_size, self._count = content["vocab_size"], content["rows"]
        self.tokenizer = content["tokenizer"]
        self._width = _HEAD + self.max_seq_length + 2 * self.max_predictions
        self._rows = NumberFile(folder / ROWS, "<i4")
        self._order = NumberFile(folder / ORDER, "<i8")
        if len(self._rows) != self._count * self._width or len(self._order) != self._count:
            raise DataError(f"{folder}: its files do not fit its manifest: prepare it again")

    def __len__(self) -> int:
        return self._count

    def row(self, position: int) -> Mapping[str, Any]:
        """The features of the original's records: arrays of S, of P, and of 1 number.

        Raises:
            DataError: the stored instance is damaged.
        """
        number = self._order[position]
        row = self._rows.read(number * self._width, self._width).astype(np.int64)
        length, boundary, random_next, count = row[:_HEAD]
        ids, positions, words = np.split(
            row[_HEAD:], [self.max_seq_length, self.max_seq_length + self.max_predictions]
        )
        usable = 0 < boundary < length <= self.max_seq_length and count <= self.max_predictions
        inside = (row >= 0).all() and max(ids.max(), words.max()) < self.vocab_size
        if not (usable and inside and (positions < length).all()):
            raise DataError(f"{self._rows.path}: instance {number} is damaged; prepare it again")
        places = np.arange(self.max_seq_length)
        return {
            "input_ids": ids,
            "input_mask": (places < length).astype(np.int64),
            "segment_ids": ((places >= boundary) & (places < length)).astype(np.int64),
            "masked_lm_positions": positions,
            "masked_lm_ids": words,
            "masked_lm_weights": (np.arange(self.max_predictions) < count).astype(np.int64),
            "next_sentence_labels": np.array([random_next]),
        }
