"""Words of a sentence and the word pieces that stand for them in a model's input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.subword import HEAD, SubwordTokenizer, truncated_lengths

_SPACE = re.compile("[\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What BERT's own splitting takes for space; Python's takes some control characters too."""


@dataclass(frozen=True)
class Word:
    """One word as it is written, punctuation attached.

    Attributes:
        text: the word.
        sentence: 0, or 1 in the second sentence of a pair.
        start: place of its first piece in the row.
        stop: place after its last piece; equal to ``start`` when the word has none.
    """

    text: str
    sentence: int
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class EncodedSentence:
    """A sentence or pair as the model reads it.

    Attributes:
        ids: (L,) token ids, special ones included, without padding.
        boundary: place from which the token type is 1.
        words: those that fit, in order.
        left_out: words cut off at the end because the row is full.
    """

    ids: np.ndarray
    boundary: int
    words: tuple[Word, ...]
    left_out: int


def split_words(text: str) -> list[str]:
    """Split at white space."""
    return [word for word in _SPACE.split(text) if word]


def encode(tokenizer: SubwordTokenizer, texts: Sequence[str]) -> EncodedSentence:
    """Tokenize a sentence or pair and say which pieces are whose.

    Args:
        tokenizer: cuts to its own ``max_length``.
        texts: one or two texts.

    Raises:
        DataError: another number of texts, a text without words, one that is cut elsewhere than
            at its end, or words whose pieces are not those of the sentence.
    """
    if len(texts) not in (1, 2):
        raise DataError(f"expected a sentence or a pair, got {len(texts)} texts")
    whole = tokenizer.tokenize([texts[0]], [texts[1]] if len(texts) == 2 else None)
    row, boundary = whole.row(0), int(whole.boundaries[0])
    split = [split_words(text) for text in texts]
    if not all(split):
        raise DataError(f"sentence {split.index([]) + 1} of {list(texts)!r} has no words")
    pieces = [_pieces(tokenizer, words, text) for words, text in zip(split, texts, strict=True)]
    counts = [sum(map(len, each)) for each in pieces]
    form = tokenizer.form
    room = tokenizer.max_length - form.special(len(texts))
    if len(texts) == 1 and counts[0] > room and tokenizer.trunc_medium != HEAD:
        raise DataError(
            f"expected a text of at most {room} tokens, got {counts[0]}: this model does not cut "
            f"a text at its end (trunc_medium {tokenizer.trunc_medium}); shorten it"
        )
    kept = [min(counts[0], room)]
    if len(texts) == 2:
        kept = list(truncated_lengths(*counts, room, tokenizer.tie_break))
    words: list[Word] = []
    expected, left_out, start = list(form.begin), 0, len(form.begin)
    for sentence, (names, own, limit) in enumerate(zip(split, pieces, kept, strict=True)):
        placed = _place(names, own, sentence, start, start + limit)
        words += placed
        left_out += len(names) - len(placed)
        after = form.end if sentence == len(texts) - 1 else form.between
        expected += [*[piece for each in own for piece in each][:limit], *after]
        start += limit + len(after)
    if expected != list(row):
        raise DataError(f"the word pieces of {list(texts)!r} do not belong to single words")
    return EncodedSentence(row, boundary, tuple(words), left_out)


def _pieces(tokenizer: SubwordTokenizer, words: list[str], text: str) -> list[list[int]]:
    """Token ids of each word, as inside its text."""
    form, limit = tokenizer.form, 4 * len(text) + 8  # never cut: a letter has 4 bytes at most
    led = [words[0], *(tokenizer.word_lead + word for word in words[1:])]
    rows = tokenizer.tokenize(led, max_length=limit)
    stop = -len(form.end) or None
    return [rows.row(place)[len(form.begin) : stop].tolist() for place in range(len(words))]


def _place(
    names: Sequence[str], pieces: Sequence[list[int]], sentence: int, start: int, end: int
) -> list[Word]:
    words = []
    for name, own in zip(names, pieces, strict=True):
        if own and start >= end:
            break
        stop = min(start + len(own), end)
        words.append(Word(name, sentence, start, stop))
        start = stop
    return words
