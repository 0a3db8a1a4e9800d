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
from itertools import chain

import numpy as np
import paddle

from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.subword import SubwordTokenizer, kept_tokens, truncated_lengths
from sot_paddle.explain.parts import PartEvidence, contrast, part_logits, parts_of
from sot_paddle.train.evaluation import evaluation_mode
from sot_paddle.train.model_folder import TextModel

_AT_ONCE = 32


@dataclass(frozen=True)
class Word:
    """One word as it is written, punctuation attached."""

    text: str
    sentence: int  # 0, or 1 in the second sentence of a pair
    places: tuple[int, ...]  # of its pieces in the row; () where the tokenizer makes none of it


@dataclass(frozen=True, eq=False)
class SentenceEvidence:
    """The W words of a sentence or pair; a part's evidence is (W,) float64, each one's impact."""

    words: tuple[Word, ...]
    parts: tuple[PartEvidence, ...]


def explain_sentence(subject: TextModel, texts: Sequence[str]) -> SentenceEvidence:
    """Impact of every word on every part of the score for the class that the model predicts.

    Raises:
        ValueError: another number of texts than the model takes, a text without words, or an
            output that is not finite.
    """
    if len(texts) not in ((subject.num_texts,) if subject.num_texts else (1, 2)):
        wanted = subject.num_texts or "one or two"
        raise ValueError(f"expected {wanted} text(s), got {len(texts)}: {list(texts)!r}")
    words = words_of(subject.tokenizer, texts)
    whole = subject.tokenizer.tokenize(*([text] for text in texts))
    rows = [whole.row(0)]
    for word in words:
        rows.append(rows[0].copy())
        rows[-1][list(word.places)] = subject.tokenizer.mask_id
    parts, boundary = parts_of(subject.model), int(whole.boundaries[0])
    batches = [
        part_logits(parts, _taps(subject, rows[first : first + _AT_ONCE], boundary))
        for first in range(0, len(rows), _AT_ONCE)
    ]
    logits = [np.concatenate(each) for each in zip(*batches, strict=True)]  # each (R, K)
    weights = contrast(int(logits[-1][0].argmax()), logits[-1].shape[1])
    evidence = []
    for part, scores in zip(parts, logits, strict=True):
        margins = scores @ weights  # (R,)
        evidence.append(PartEvidence(part, scores[0], margins[0] - margins[1:]))
    return SentenceEvidence(words, tuple(evidence))


def _taps(
    subject: TextModel, rows: Sequence[np.ndarray], boundary: int
) -> dict[str, paddle.Tensor]:
    """Taps of the model for rows that are padded as they were in training."""
    features = TokenFeatures.from_rows(rows, [boundary] * len(rows))
    batch = subject.tokenizer.padded(features, subject.padding)
    with evaluation_mode(subject.model):
        _, taps = subject.model(
            **{name: paddle.to_tensor(array) for name, array in batch.items()}, return_taps=True
        )
    return taps


def words_of(tokenizer: SubwordTokenizer, texts: Sequence[str]) -> tuple[Word, ...]:
    """The words of one or two texts with the places of their pieces in the row of both.

    A word is what stands between spaces. One whose pieces are all cut off is left out.

    Raises:
        ValueError: a text without words, or one whose pieces are not those of its words.
    """
    form, whole = tokenizer.form, tokenizer.ids(texts)
    room, lengths = tokenizer.max_length - form.special(len(texts)), list(map(len, whole))
    if len(texts) == 1:
        kept = [kept_tokens(list(range(lengths[0])), room, tokenizer.trunc_medium)]
    else:
        kept = [range(count) for count in truncated_lengths(*lengths, room, tokenizer.tie_break)]
    words, place = [], len(form.begin)
    for sentence, text in enumerate(texts):
        names = text.split()
        if not names:
            raise ValueError(f"sentence {sentence + 1} of {list(texts)!r} has no words")
        pieces = tokenizer.ids([names[0], *(tokenizer.word_lead + name for name in names[1:])])
        if list(chain.from_iterable(pieces)) != whole[sentence]:
            raise ValueError(f"the word pieces of {text!r} do not belong to single words")
        owners = np.repeat(np.arange(len(names)), list(map(len, pieces)))
        places: list[list[int]] = [[] for _ in names]
        for index in kept[sentence]:
            places[owners[index]].append(place)
            place += 1
        for number, name in enumerate(names):
            if places[number] or not pieces[number]:
                words.append(Word(name, sentence, tuple(places[number])))
        place += len(form.between)
    return tuple(words)
