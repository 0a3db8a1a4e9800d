"""Text files, or JSON records, to instances of BERT's two tasks, in a folder to train from.

The tokens of the text and the instances lie on the disk; memory holds 8 bytes for each sentence and
each instance, 16 for each document. Records are what BERT4Doc's Paddle port reads: a file is one
list of objects of any size, or an object a line; it is read object by object, in its order.

Every draw is in the original's order. A document is a sequence of sentences, a sequence of token
ids each; nothing but the sentences of one instance is held.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.prepared import begin_preparation, finish, lines_of, open_prepared
from sot_paddle.data.subword import SubwordTokenizer

Document = Sequence[Sequence[int]]

_TRIES = 10  # to find another document than the own one
_KEPT_OF_OTHERS = 0.5  # of the masked words that do not become [MASK]


@dataclass(frozen=True)
class InstanceOptions:
    """How instances are made.

    Source: specs.md D.1.
    """

    first: int  # id of [CLS]
    separator: int  # id of [SEP]
    mask: int  # id of [MASK]
    vocab_size: int  # words to draw a random one from
    max_seq_length: int = 128  # tokens of an instance, special ones included
    max_predictions: int = 20
    masked_share: float = 0.15
    short_share: float = 0.1


@dataclass(frozen=True)
class Instance:
    """Two stretches of text with masked words."""

    tokens: list[int]  # ids, special ones included, words masked
    boundary: int  # where the second stretch begins
    random_next: bool  # whether it comes from another document
    positions: list[int]
    words: list[int]  # what stood there


def document_instances(
    documents: Sequence[Document], index: int, options: InstanceOptions, rng: random.Random
) -> Iterator[Instance]:
    """The instances of the document at ``index``; none of all documents is empty.

    Every draw comes from ``rng``, in the original's order.

    Source: specs.md D.1.
    """
    document = documents[index]
    room = options.max_seq_length - 3
    target = rng.randint(2, room) if rng.random() < options.short_share else room
    at, gathered, length = 0, [], 0
    while at < len(document):
        sentence = document[at]
        gathered.append(sentence)
        length += len(sentence)
        at += 1
        if at < len(document) and length < target:
            continue
        cut = rng.randint(1, len(gathered) - 1) if len(gathered) > 1 else 1
        first = [token for part in gathered[:cut] for token in part]
        random_next = len(gathered) == 1 or rng.random() < 0.5
        if random_next:
            second = _elsewhere(documents, index, target - len(first), rng)
            at -= len(gathered) - cut  # the sentences that were not used come again
        else:
            second = [token for part in gathered[cut:] for token in part]
        _shorten(first, second, room, rng)
        yield _masked(first, second, random_next, options, rng)
        gathered, length = [], 0


def _elsewhere(
    documents: Sequence[Document], current: int, wanted: int, rng: random.Random
) -> list[int]:
    """Sentences of a random document from a random one on, until there are enough tokens."""
    for _ in range(_TRIES):
        other = rng.randint(0, len(documents) - 1)
        if other != current:
            break
    document = documents[other]
    tokens: list[int] = []
    for at in range(rng.randint(0, len(document) - 1), len(document)):
        tokens += document[at]
        if len(tokens) >= wanted:
            break
    return tokens


def _shorten(first: list[int], second: list[int], room: int, rng: random.Random) -> None:
    """Take tokens off the longer stretch (the second of equal ones), at a random end each."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


def _masked(
    first: list[int],
    second: list[int],
    random_next: bool,
    options: InstanceOptions,
    rng: random.Random,
) -> Instance:
    tokens = [options.first, *first, options.separator, *second, options.separator]
    special = {options.first, options.separator}
    candidates = [at for at, token in enumerate(tokens) if token not in special]
    rng.shuffle(candidates)
    share = round(len(tokens) * options.masked_share)
    chosen = candidates[: min(options.max_predictions, max(1, share))]
    shown = list(tokens)
    for at in chosen:
        if rng.random() < 0.8:
            shown[at] = options.mask
        elif rng.random() >= _KEPT_OF_OTHERS:
            shown[at] = rng.randint(0, options.vocab_size - 1)
    positions = sorted(chosen)
    words = [tokens[at] for at in positions]
    return Instance(shown, len(first) + 2, random_next, positions, words)


_TOGETHER = 256  # lines that are tokenized in one call


@dataclass
class StoredCorpus(Sequence):
    """Documents of sentences of token ids."""

    tokens: np.ndarray  # ids of all of them
    sentences: array  # where each sentence begins in ``tokens``, and the last one ends
    documents: array  # likewise in ``sentences``
    order: array  # position -> number of the document in the text

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


FORM = "instances"
ROWS, ORDER = "instances.bin", "order.bin"
_HEAD = 4  # numbers of a row before its tokens: length, boundary, random_next, predictions


def prepare_instances(
    files: Sequence[Path],
    tokenizer: SubwordTokenizer,
    folder: Path,
    options: InstanceOptions,
    *,
    dupes: int = 10,
    seed: int = 12345,
    report: Callable[[str], None] = print,
) -> None:
    """Make the instances of text files.

    Args:
        files: one sentence a line, an empty line between documents.
        dupes: passes over the documents, each with its own draws.
        seed: of every draw: order of the documents, instances, order of the instances.

    Raises:
        DataError: text that cannot be used, or a folder of another preparation.

    Source: specs.md D.1.
    """
    begin_preparation(folder)
    corpus = store_corpus(files, tokenizer, folder / "tokens.part")
    report(f"{len(corpus):,} documents, {len(corpus.tokens):,} tokens")
    rng, count = random.Random(seed), 0
    rng.shuffle(corpus.order)
    with open(folder / ROWS, "wb") as stream:
        for _ in range(dupes):
            for index in range(len(corpus)):
                for instance in document_instances(corpus, index, options, rng):
                    row = packed(instance, options.max_seq_length, options.max_predictions)
                    stream.write(row.tobytes())
                    count += 1
    order = array("q", range(count))
    rng.shuffle(order)
    np.array(order, "<i8").tofile(folder / ORDER)
    finish(folder, (ROWS, ORDER), {"form": FORM, "rows": count, **dataclasses.asdict(options)})
    report(f"{count:,} instances in {folder}")


def packed(instance: Instance, max_seq_length: int, max_predictions: int) -> np.ndarray:
    """The numbers of a stored instance: (4 + S + 2 P,) int32, of S tokens and P predictions."""
    row = np.zeros(_HEAD + max_seq_length + 2 * max_predictions, "<i4")
    length, count = len(instance.tokens), len(instance.positions)
    row[:_HEAD] = length, instance.boundary, instance.random_next, count
    row[_HEAD : _HEAD + length] = instance.tokens
    positions = _HEAD + max_seq_length
    row[positions : positions + count] = instance.positions
    words = positions + max_predictions
    row[words : words + count] = instance.words
    return row


def unpacked(row: np.ndarray, max_seq_length: int, max_predictions: int) -> dict[str, np.ndarray]:
    """The features of the original's records, see `packed`: arrays of S, of P, and of 1 number."""
    row = row.astype(np.int64)
    length, boundary, random_next, count = row[:_HEAD]
    ids, positions, words = np.split(
        row[_HEAD:], [max_seq_length, max_seq_length + max_predictions]
    )
    places = np.arange(max_seq_length)
    return {
        "input_ids": ids,
        "input_mask": (places < length).astype(np.int64),
        "segment_ids": ((places >= boundary) & (places < length)).astype(np.int64),
        "masked_lm_positions": positions,
        "masked_lm_ids": words,
        "masked_lm_weights": (np.arange(max_predictions) < count).astype(np.int64),
        "next_sentence_labels": np.array([random_next]),
    }


class InstanceRows:
    """The instances of a prepared folder, in their shuffled order, read when they are asked for.

    Raises:
        ValueError: the folder is not finished, or a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        counts = ("max_seq_length", "max_predictions", "vocab_size", "rows")
        content, self.fingerprint = open_prepared(folder, FORM, counts)
        self.max_seq_length, self.max_predictions, self.vocab_size, rows = map(content.get, counts)
        width = _HEAD + self.max_seq_length + 2 * self.max_predictions
        self._rows = np.memmap(folder / ROWS, "<i4", "r").reshape(rows, width)
        self._order = np.memmap(folder / ORDER, "<i8", "r")

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, position: int) -> dict[str, np.ndarray]:
        """See `unpacked`."""
        row = self._rows[self._order[position]]
        return unpacked(row, self.max_seq_length, self.max_predictions)


_TOKENS = ("input_ids", "input_mask", "segment_ids")
_WORDS = ("masked_lm_positions", "masked_lm_ids")
_NEXT, _WEIGHTS = "next_sentence_labels", "masked_lm_weights"
_FORMS = {
    "input_mask": "ones, then zeros",
    "segment_ids": "zeros, ones, and zeros where input_mask is zero",
    _WEIGHTS: "ones, then zeros",
    _NEXT: "0 or 1",
}
_CHUNK = 1 << 16


def prepare_records(
    files: Sequence[Path],
    folder: Path,
    *,
    vocab_size: int,
    report: Callable[[str], None] = print,
) -> None:
    """Take instances over, whose token ids are below ``vocab_size``.

    Args:
        files: with input_ids, input_mask, segment_ids (S numbers each), masked_lm_positions,
            masked_lm_ids (P each) and next_sentence_labels in every record; S and P are those of
            the first one. Without masked_lm_weights a place with position 0 ([CLS]) is not used.

    Raises:
        DataError: a record that cannot be used, or a folder of another preparation.

    Source: specs.md D.1.
    """
    begin_preparation(folder)
    sizes, count = None, 0
    with open(folder / ROWS, "wb") as stream:
        for path in files:
            number = 0
            try:
                for text in _records(path):
                    number += 1
                    record = _numbers(json.loads(text))
                    sizes = sizes or (len(record["input_ids"]), len(record["masked_lm_ids"]))
                    stream.write(_row(record, *sizes, vocab_size).tobytes())
                    count += 1
            except ValueError as error:
                raise DataError(f"{path}, record {number}: {error}") from None
    if sizes is None:
        raise DataError(f"{', '.join(map(str, files))}: no record")
    np.arange(count, dtype="<i8").tofile(folder / ORDER)
    content = {"form": FORM, "rows": count, "vocab_size": vocab_size}
    content |= {"max_seq_length": sizes[0], "max_predictions": sizes[1]}
    finish(folder, (ROWS, ORDER), content)
    report(f"{count:,} instances in {folder}")


def _records(path: Path) -> Iterator[str]:
    """The text of each object; objects hold no further objects."""
    with open(path, encoding="utf-8-sig") as stream:
        rest = stream.read(_CHUNK).lstrip()
        is_list, rest = rest.startswith("["), rest.removeprefix("[")
        chunk = rest
        while chunk:
            *texts, rest = rest.split("}")
            for text in texts:
                yield text.strip().removeprefix("," if is_list else "") + "}"
            chunk = stream.read(_CHUNK)
            rest += chunk
    if rest.strip() != ("]" if is_list else ""):
        raise ValueError("the file is cut off after this record")


def _numbers(record: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a record, of whole numbers from 0 below 2**31."""
    arrays = {}
    for name in (*_TOKENS, *_WORDS, _NEXT, *({_WEIGHTS} & record.keys())):
        values = np.atleast_1d(np.array(record.get(name, [])))
        is_list = values.ndim == 1 and len(values) and values.dtype.kind in "iuf"
        if not is_list or ((values < 0) | (values >= 2**31) | (values % 1 != 0)).any():
            raise ValueError(f"{name} must be a list of whole numbers from 0")
        arrays[name] = values.astype(np.int64)
    return {_WEIGHTS: (arrays[_WORDS[0]] > 0).astype(np.int64), **arrays}


def _row(
    record: Mapping[str, np.ndarray], max_seq_length: int, max_predictions: int, vocab_size: int
) -> np.ndarray:
    """The stored instance of a record, whose parts must fit together."""
    lengths = dict.fromkeys(_TOKENS, max_seq_length)
    lengths |= dict.fromkeys((*_WORDS, _WEIGHTS), max_predictions) | {_NEXT: 1}
    for name, length in lengths.items():
        if len(record[name]) != length:
            raise ValueError(f"{name}: expected {length} numbers, got {len(record[name])}")
    ids, mask, types = (record[name] for name in _TOKENS)
    positions, words = (record[name] for name in _WORDS)
    length, count = mask.sum(), record[_WEIGHTS].sum()
    boundary = length - types.sum()
    if not 0 < boundary < length:
        raise ValueError("segment_ids: both stretches must have a token")
    if max(ids.max(), words.max()) >= vocab_size:
        raise ValueError(f"token ids must be below {vocab_size}")
    if positions.max() >= length:
        raise ValueError("masked_lm_positions must be inside of the tokens")
    used = (values[:count].tolist() for values in (positions, words))
    instance = Instance(ids[:length].tolist(), int(boundary), bool(record[_NEXT][0]), *used)
    row = packed(instance, max_seq_length, max_predictions)
    features = unpacked(row, max_seq_length, max_predictions)
    for name, form in _FORMS.items():
        if not np.array_equal(features[name], record[name]):
            raise ValueError(f"{name} must be {form}")
    return row
