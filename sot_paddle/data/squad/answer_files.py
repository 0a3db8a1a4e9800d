"""The files of answers that the official evaluation reads, and their readers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.data.squad.span_decoding import Answer
from sot_paddle.reading import read_json
from sot_paddle.strict_json import dumps

ANSWERS, NULL_ODDS, CANDIDATES = "predictions.json", "null_odds.json", "nbest_predictions.json"
"""Question id -> answer; -> how far no answer is above the best span; -> the best spans."""


def write_answers(folder: str | Path, answers: Mapping[str, Answer]) -> Path:
    """Write the three files of answers by question id; returns the path of `ANSWERS`."""
    folder = Path(folder)
    write_atomically(folder / NULL_ODDS, _json({n: a.null_odds for n, a in answers.items()}))
    write_atomically(folder / CANDIDATES, _json({n: _best(a) for n, a in answers.items()}))
    return write_atomically(folder / ANSWERS, _json({n: a.text for n, a in answers.items()}))


def _best(answer: Answer) -> list[dict[str, Any]]:
    """The candidates with their shares of a softmax over them and no answer."""
    scores = [*(one.score for one in answer.candidates), answer.null_score]
    weights = [math.exp(score - max(scores)) for score in scores]
    texts = [*(one.text for one in answer.candidates), ""]
    return [
        {"text": text, "probability": weight / sum(weights), "score": score}
        for text, weight, score in zip(texts, weights, scores, strict=True)
    ]


def _json(content: Mapping[str, Any]) -> bytes:
    return dumps(content).encode("utf-8")


def read_answers(path: str | Path) -> dict[str, str]:
    """Question id -> answer, from a file in the official form."""
    return _read(path, str, "texts")


def read_null_odds(path: str | Path) -> dict[str, float]:
    """Question id -> how sure the model is that there is no answer."""
    return _read(path, (int, float), "numbers")


def _read(path: str | Path, kind: Any, what: str) -> dict[str, Any]:
    content = read_json(path, strict=True)
    if not all(isinstance(value, kind) for value in content.values()):
        raise DataError(f"{path}: expected an object of question ids and {what}")
    return content
