"""A model's answers to questions.

Shape legend: B windows of a batch, S tokens of a window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sot_paddle.data.batches import pad_rows
from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_decoding import decode
from sot_paddle.data.squad.span_features import span_features
from sot_paddle.deploy.predictor import Predictor

_SHOWN = 3
"""Candidates of an answer that are told."""


def answers(
    predictor: Predictor, questions: Sequence[Question], batch_size: int
) -> Iterator[dict[str, Any]]:
    """A record for each question, in order: its answer, "" for none, and the best candidates.

    Args:
        predictor: of a model that answers questions.
        questions: any number.
        batch_size: questions taken together, and windows computed together.

    Raises:
        ValueError: a question that leaves no room for its context, or scores that are not finite.
    """
    max_length, spans = predictor.recipe.preparation.max_length, predictor.recipe.spans
    tokenizer = predictor.prepare.tokenizer
    for first in range(0, len(questions), batch_size):
        chunk = questions[first : first + batch_size]
        numbered = [dataclasses.replace(each, id=str(n)) for n, each in enumerate(chunk, first)]
        features = span_features(numbered, tokenizer, max_length=max_length, stride=spans.stride)
        tokens, scores = features.tokens, []
        for start in range(0, len(tokens), batch_size):
            windows = range(start, min(start + batch_size, len(tokens)))
            batch = pad_rows(tokens, windows, max_length=max_length, pad_id=tokenizer.pad_id)
            scores.append(predictor.run(batch))  # (B, 2, S), start and end
        scores = np.concatenate(scores)
        if not np.isfinite(scores).all():
            raise ValueError("the model's output is not finite")
        by_id = decode(numbered, features, scores[:, 0], scores[:, 1], spans.decoding)
        for index, (question, answer) in enumerate(zip(chunk, by_id.values(), strict=True), first):
            best = [dataclasses.asdict(one) for one in answer.candidates[:_SHOWN]]
            said = {"answer": answer.text, "null_odds": answer.null_odds, "candidates": best}
            yield {"index": index, "id": question.id, **said}
