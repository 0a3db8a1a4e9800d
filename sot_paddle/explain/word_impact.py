"""How much each word of a sentence matters: the margin that is lost without it.

    impact_w = margin(sentence) - margin(sentence with all pieces of word w replaced by [MASK])

Leaving out is exact where a gradient is a guess, needs no baseline, and takes one forward pass for
each word of a sentence. A word is replaced, not removed: the published head counts padded positions
too, so a shorter sentence would change the score by itself. Impacts of a sum of scores are the
sums of theirs.

Shape legend: R rows (the sentence, then one per word), S tokens, W words, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.subword import HEAD, SubwordTokenizer, truncated_lengths
from sot_paddle.explain.parts import PartEvidence, contrast, part_logits, parts_of
from sot_paddle.train.evaluation import evaluation_mode
from sot_paddle.train.model_folder import TextModel

_AT_ONCE = 32


@dataclass(frozen=True)
class Word:
    """One word as it is written, punctuation attached."""

    text: str
    sentence: int  # 0, or 1 in the second sentence of a pair
    start: int  # place of its first piece in the row
    stop: int  # place after its last piece; equal to ``start`` when the word has none


@dataclass(frozen=True, eq=False)
class EncodedSentence:
    """A sentence or pair as the model reads it."""

    ids: np.ndarray  # (L,) token ids, special ones included, without padding
    boundary: int  # place from which the token type is 1
    words: tuple[Word, ...]
    left_out: int  # words cut off at the end because the row is full


@dataclass(frozen=True, eq=False)
class SentenceEvidence:
    """The W words of a sentence or pair; the evidence of each part is (W,) float64, the impact of
    each word."""

    words: tuple[Word, ...]
    parts: tuple[PartEvidence, ...]
    left_out: int


def explain_sentence(
    subject: TextModel, texts: Sequence[str], target: int | None = None
) -> SentenceEvidence:
    """Impact of every word on every part of the score for a class, None for the predicted one.

    Raises:
        ValueError: a text without words, or an output that is not finite.
    """
    sentence = encode(subject.tokenizer, texts)
    rows = [sentence.ids]
    for word in sentence.words:
        rows.append(sentence.ids.copy())
        rows[-1][word.start : word.stop] = subject.tokenizer.mask_id
    parts = parts_of(subject.model)
    batches = [
        part_logits(parts, _taps(subject, rows[first : first + _AT_ONCE], sentence.boundary))
        for first in range(0, len(rows), _AT_ONCE)
    ]
    logits = [np.concatenate(each) for each in zip(*batches, strict=True)]  # each (R, K)
    chosen = int(logits[-1][0].argmax()) if target is None else target
    evidence = []
    for part, scores in zip(parts, logits, strict=True):
        margins = scores @ contrast(chosen, scores.shape[1])  # (R,)
        evidence.append(PartEvidence(part, scores[0], chosen, margins[0] - margins[1:]))
    return SentenceEvidence(sentence.words, tuple(evidence), sentence.left_out)


def _taps(
    subject: TextModel, rows: Sequence[np.ndarray], boundary: int
) -> dict[str, paddle.Tensor]:
    """Taps of the model for rows that are padded as they were in training."""
    features = TokenFeatures.from_rows(rows, [boundary] * len(rows))
    batch = pad_rows(
        features,
        range(len(rows)),
        pad=subject.padding,
        max_length=subject.tokenizer.max_length,
        pad_id=subject.tokenizer.pad_id,
    )
    with evaluation_mode(subject.model):
        _, taps = subject.model(
            **{name: paddle.to_tensor(array) for name, array in batch.items()}, return_taps=True
        )
    return taps


def encode(tokenizer: SubwordTokenizer, texts: Sequence[str]) -> EncodedSentence:
    """Tokenize a sentence or pair and say which pieces are whose.

    Raises:
        ValueError: another number of texts, a text without words, one that is cut elsewhere than
            at its end, or words whose pieces are not those of the sentence.
    """
    if len(texts) not in (1, 2):
        raise ValueError(f"expected a sentence or a pair, got {len(texts)} texts")
    whole = tokenizer.tokenize([texts[0]], [texts[1]] if len(texts) == 2 else None)
    row, boundary = whole.row(0), int(whole.boundaries[0])
    split = [text.split() for text in texts]
    if not all(split):
        raise ValueError(f"sentence {split.index([]) + 1} of {list(texts)!r} has no words")
    pieces = [_pieces(tokenizer, words, text) for words, text in zip(split, texts, strict=True)]
    counts = [sum(map(len, each)) for each in pieces]
    form = tokenizer.form
    room = tokenizer.max_length - form.special(len(texts))
    if len(texts) == 1 and counts[0] > room and tokenizer.trunc_medium != HEAD:
        raise ValueError(
            f"expected a text of at most {room} tokens, got {counts[0]}: this model does not cut "
            f"a text at its end (trunc_medium {tokenizer.trunc_medium}); shorten it"
        )
    kept = [min(counts[0], room)]
    if len(texts) == 2:
        kept = list(truncated_lengths(*counts, room, tokenizer.tie_break))
    words: list[Word] = []
    expected, left_out, start = list(form.begin), 0, len(form.begin)
    for sentence, (names, word_pieces, limit) in enumerate(zip(split, pieces, kept, strict=True)):
        placed = _place(names, word_pieces, sentence, start, start + limit)
        words += placed
        left_out += len(names) - len(placed)
        after = form.end if sentence == len(texts) - 1 else form.between
        expected += [*[piece for each in word_pieces for piece in each][:limit], *after]
        start += limit + len(after)
    if expected != list(row):
        raise ValueError(f"the word pieces of {list(texts)!r} do not belong to single words")
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
    for name, word_pieces in zip(names, pieces, strict=True):
        if word_pieces and start >= end:
            break
        stop = min(start + len(word_pieces), end)
        words.append(Word(name, sentence, start, stop))
        start = stop
    return words
