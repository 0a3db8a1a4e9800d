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

from sot_paddle.data.token_features import TokenFeatures, pad_rows
from sot_paddle.explain.parts import PartEvidence, contrast, part_logits, parts_of
from sot_paddle.explain.word_pieces import EncodedSentence, Word, encode
from sot_paddle.train.evaluation import evaluation_mode
from sot_paddle.train.text_model import TextModel

_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class SentenceEvidence:
    """The words of a sentence or pair and what each part of the score makes of them.

    Attributes:
        words: W words.
        parts: their evidence is (W,) float64, the impact of each word.
        left_out: words at the end that the model does not read.
    """

    words: tuple[Word, ...]
    parts: tuple[PartEvidence, ...]
    left_out: int


def explain_sentence(
    subject: TextModel, texts: Sequence[str], target: int | None = None
) -> SentenceEvidence:
    """Impact of every word on every part of the score.

    Args:
        subject: a trained text model.
        texts: a sentence, or a pair.
        target: the class to explain, None for the model's own prediction.

    Raises:
        ValueError: a text without words, or an output that is not finite.
    """
    sentence = encode(subject.tokenizer, texts)
    rows = masked_rows(sentence, subject.tokenizer.mask_id)
    parts = parts_of(subject.model)
    batches = [
        part_logits(parts, _taps(subject, rows[first : first + _AT_ONCE], sentence.boundary))
        for first in range(0, len(rows), _AT_ONCE)
    ]
    logits = [np.concatenate(each) for each in zip(*batches, strict=True)]  # each (R, K)
    chosen = int(logits[-1][0].argmax()) if target is None else target
    found = []
    for part, scores in zip(parts, logits, strict=True):
        margins = scores @ contrast([chosen], scores.shape[1])[0]  # (R,)
        found.append(PartEvidence(part, scores[0], chosen, margins[0] - margins[1:]))
    return SentenceEvidence(sentence.words, tuple(found), sentence.left_out)


def masked_rows(sentence: EncodedSentence, mask: int) -> list[np.ndarray]:
    """The row of a sentence, then for each word the row with its pieces replaced.

    Args:
        sentence: W words.
        mask: token id of ``[MASK]``.

    Returns:
        1 + W rows (L,).
    """
    rows = [sentence.ids]
    for word in sentence.words:
        row = sentence.ids.copy()
        row[word.start : word.stop] = mask
        rows.append(row)
    return rows


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
