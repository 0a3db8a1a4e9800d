"""Questions from a file or stdin, and a model's answers to them.

Shape legend: B windows of a batch, S tokens of a window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sot_paddle.data.errors import DataError
from sot_paddle.data.squad.questions import Question, read_questions
from sot_paddle.data.squad.span_decoding import decode
from sot_paddle.data.squad.span_features import span_features
from sot_paddle.data.token_features import pad_rows
from sot_paddle.deploy.input_rows import STDIN, InputOptions, lines_of
from sot_paddle.deploy.predictor import Predictor
from sot_paddle.reading import parse_json

_SHOWN = 3
"""Candidates of an answer that are told."""


def read_asked(places: Sequence[str], options: InputOptions) -> Iterable[Question]:
    """Questions of a file in the official form (.json), or of lines of JSON.

    Args:
        places: one file, or ``-`` for lines from stdin, read as they are asked for.
        options: a format of lines is jsonl; there are no columns.

    Raises:
        DataError: another number of files, a file or line that holds no question.
    """
    if len(places) != 1 or options.columns or options.format not in (None, "jsonl"):
        raise DataError(
            "a model that answers questions takes one file: the official .json, or lines of JSON "
            "with question and context (--format jsonl)"
        )
    place = places[0]
    if Path(place).suffix == ".json" and options.format is None:
        return read_questions(place, labelled=False)
    return _from_lines(lines_of(place, "questions"), "stdin" if place == STDIN else place)


def _from_lines(lines: Iterable[str], place: str) -> Iterator[Question]:
    for number, line in enumerate(lines):
        try:
            value = parse_json(line, "the line", strict=True)
            yield Question(
                str(value.get("id", number)), _text(value, "question"), _text(value, "context")
            )
        except (ValueError, AttributeError) as error:
            wanted = 'expected {"question": TEXT, "context": TEXT}'
            raise DataError(f"{place}, line {number + 1}: {wanted} ({error})") from None


def _text(value: dict[str, Any], key: str) -> str:
    if not isinstance(value.get(key), str):
        raise ValueError(f"{key} is {value.get(key)!r:.40}")
    return value[key]


def answers(
    predictor: Predictor, questions: Iterable[Question], batch_size: int
) -> Iterator[dict[str, Any]]:
    """A record for each question, in order: its answer, "" for none, and the best candidates.

    Args:
        predictor: of a model that answers questions.
        questions: any number; so many are read and answered together.
        batch_size: questions taken together, and windows computed together.

    Raises:
        ValueError: a question that leaves no room for its context, or scores that are not finite.
    """
    waiting, index = iter(questions), 0
    while asked := list(islice(waiting, batch_size)):
        named = [dataclasses.replace(one, id=str(at)) for at, one in enumerate(asked, index)]
        features = span_features(
            named,
            predictor.prepare.tokenizer,
            max_length=predictor.recipe.preparation.max_length,
            stride=predictor.recipe.spans.stride,
        )
        scores = _scores(predictor, features.tokens, batch_size)
        found = decode(named, features, scores[:, 0], scores[:, 1], predictor.recipe.spans.decoding)
        for question, answer in zip(asked, found.values(), strict=True):
            best = [dataclasses.asdict(one) for one in answer.candidates[:_SHOWN]]
            said = {"answer": answer.text, "null_odds": answer.null_odds, "candidates": best}
            yield {"index": index, "id": question.id, **said}
            index += 1


def _scores(predictor: Predictor, tokens: Any, batch_size: int) -> np.ndarray:
    """Start and end scores (n, 2, S) of every window."""
    pad = {
        "max_length": predictor.recipe.preparation.max_length,
        "pad_id": predictor.prepare.tokenizer.pad_id,
    }
    parts = []
    for start in range(0, len(tokens), batch_size):
        batch = pad_rows(tokens, range(start, min(start + batch_size, len(tokens))), **pad)
        parts.append(predictor.run(batch))
    scores = np.concatenate(parts)
    if not np.isfinite(scores).all():
        raise ValueError("the model's output is not finite")
    return scores
