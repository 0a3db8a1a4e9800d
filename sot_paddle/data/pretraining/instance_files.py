"""Text files to instances of BERT's two tasks, in a folder to train from.

Memory holds the tokens of the text, 4 bytes each.

Every draw is in the original's order. A document is a sequence of sentences, a sequence of token
ids each; nothing but the sentences of one instance is held.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.data.pretraining.prepared import StoredRows, batches_of, lines_of, store_rows
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


def read_documents(files: Sequence[Path], tokenizer: SubwordTokenizer) -> list[list[array]]:
    """Tokenize text files, one sentence a line and an empty line between documents.

    Lines without a token and documents without a sentence are left out, as in the original. A
    document may go on in the next file.
    """
    documents: list[list[array]] = [[]]
    for texts in batches_of(itertools.chain.from_iterable(map(lines_of, files))):
        for text, ids in zip(texts, tokenizer.ids(texts), strict=True):
            if ids:
                documents[-1].append(array("i", ids))
            elif not text and documents[-1]:
                documents.append([])
    return documents if documents[-1] else documents[:-1]


FORM = "instances"


def prepare_instances(
    files: Sequence[Path],
    tokenizer: SubwordTokenizer,
    folder: Path,
    options: InstanceOptions,
    *,
    dupes: int = 10,
    seed: int = 12345,
) -> int:
    """Make the instances of text files, and return how many there are.

    Args:
        files: one sentence a line, an empty line between documents.
        dupes: passes over the documents, each with its own draws.
        seed: of every draw: order of the documents, instances, order of the instances.

    Raises:
        ValueError: text that cannot be used, or a folder that holds files already.

    Source: specs.md D.1.
    """
    rng = random.Random(seed)

    def rows() -> Iterator[list[int]]:
        documents = read_documents(files, tokenizer)
        rng.shuffle(documents)
        for _ in range(dupes):
            for index in range(len(documents)):
                for instance in document_instances(documents, index, options, rng):
                    head = [instance.boundary, instance.random_next, len(instance.positions)]
                    yield [*head, *instance.tokens, *instance.positions, *instance.words]

    content = {"form": FORM, **dataclasses.asdict(options)}
    return store_rows(folder, files, rows(), content, rng.shuffle)


class InstanceRows(StoredRows):
    """The instances of a prepared folder, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, FORM)
        self.max_seq_length = self.content["max_seq_length"]
        self.max_predictions = self.content["max_predictions"]

    def row(self, position: int) -> dict[str, np.ndarray]:
        """The features of the original's records: int64 arrays of S, of P, and of 1 number."""
        row, length, most = super().row(position), self.max_seq_length, self.max_predictions
        boundary, random_next, count = row[:3]
        ids, positions, words = np.split(row[3:], [len(row) - 3 - 2 * count, len(row) - 3 - count])
        places = np.arange(length)
        features = {
            "input_mask": places < len(ids),
            "segment_ids": (places >= boundary) & (places < len(ids)),
            "masked_lm_weights": np.arange(most) < count,
            "next_sentence_labels": np.array([random_next]),
            "input_ids": np.pad(ids, (0, length - len(ids))),
            "masked_lm_positions": np.pad(positions, (0, most - count)),
            "masked_lm_ids": np.pad(words, (0, most - count)),
        }
        return {name: array.astype(np.int64) for name, array in features.items()}
