"""Instances of BERT's two tasks from documents, in the original's order of random draws.

A document is a sequence of sentences, a sequence of token ids each. Nothing but the sentences of
one instance is held.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
