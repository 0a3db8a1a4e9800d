"""SQuAD 2.0: rows of tokens, answers from scores, official scores. No framework computes here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer, BertTokenizerFast
from transformers.data.metrics.squad_metrics import squad_evaluate
from transformers.data.processors import squad

from sot_paddle.data.batches import pad_rows
from sot_paddle.data.squad import (
    DecodingOptions,
    Question,
    SpanFeatures,
    decode,
    score_answers,
    span_features,
)
from sot_paddle.data.tokenizers import word_piece_tokenizer
from sot_torch_ref.train.squad import best_answer, window_features
from tests.parity.sides import assert_same

KEYS = ("input_ids", "token_type_ids", "attention_mask")
CONTEXT = (
    "In 1066, the Normans, who came from Normandy, conquered England; their duke was William. He "
    "was crowned in Westminster on Christmas Day. The café was not there yet, nor was Dr. Smith's "
    "e-mail-address. Later kings spoke French, and the court's records are in Latin and French. "
    "Nobody asked the peasants. The last word of all is: Hastings"
)
ASKED = (
    ("who", "Who conquered England?", ("the Normans", "Normans")),
    ("last", "What is the last word?", ("Hastings",)),
    ("day", "When was he crowned?", ("Christmas Day", "on Christmas Day")),
    ("mail", "What was not there?", ("Dr. Smith's e-mail-address",)),
    ("first", "In which year?", ("1066",)),
    ("begin", "When did it begin?", ("In 1066", "1066")),
    ("none", "Who was the first president of the Normans?", ()),
)
QUESTIONS = [
    Question(name, text, CONTEXT, answers, tuple(map(CONTEXT.index, answers)))
    for name, text, answers in ASKED
]
EMPTY = Question("empty", "Who wrote this?", "")
"""About a context without a token: transformers makes no row of it, or one without the context."""


def paddle_rows(folder: Path, questions: list[Question], **options: Any) -> SpanFeatures:
    return span_features(questions, word_piece_tokenizer(folder, do_lower_case=True), **options)


def published_windows(
    folder: Path, questions: list[Question], **sizes: int
) -> list[list[dict[str, Any]]]:
    """The reference's rows of each question, with the labels of the released code."""
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    windows = []
    for question in questions:
        answer = (question.answers[0], question.starts[0]) if question.answers else None
        windows.append(window_features(tokenizer, question.text, question.context, answer, **sizes))
    return windows


def legacy_windows(folder: Path, max_length: int, stride: int) -> list[list[dict[str, Any]]]:
    """transformers' rows of its own examples; its stride is the step from window to window."""
    tokenizer = BertTokenizer(
        str(folder / "vocab.txt"), do_lower_case=True, model_max_length=512, verbose=False
    )
    squad.squad_convert_example_to_features_init(tokenizer)
    windows = []
    for question in QUESTIONS:
        room = max_length - len(tokenizer.tokenize(question.text)) - 3
        example = squad.SquadExample(
            question.id,
            question.text,
            question.context,
            question.answers[0] if question.answers else None,
            question.starts[0] if question.starts else None,
            "",
            is_impossible=not question.answers,
        )
        rows = []
        for feature in squad.squad_convert_example_to_features(
            example, max_length, room - stride, max_length, "max_length", True
        ):
            row = {key: getattr(feature, key) for key in KEYS}
            rows.append(row | {"start": feature.start_position, "end": feature.end_position})
        windows.append(rows)
    return windows


@pytest.mark.parametrize(
    ("max_length", "stride", "published_labels"),
    [(48, 16, False), (160, 32, False), (48, 16, True)],
)
def test_rows_of_questions(
    max_length: int, stride: int, published_labels: bool, real_checkpoint: Path
) -> None:
    sizes = {"max_length": max_length, "stride": stride}
    rows = paddle_rows(real_checkpoint, QUESTIONS, **sizes, published_labels=published_labels)
    batch = pad_rows(rows.tokens, range(len(rows)), max_length=max_length)
    if published_labels:
        windows = published_windows(real_checkpoint, QUESTIONS, **sizes)
    else:
        windows = legacy_windows(real_checkpoint, **sizes)
    expected_rows = [row for window in windows for row in window]
    owners = [owner for owner, window in enumerate(windows) for _ in window]
    assert (len(owners) > len(QUESTIONS)) == (max_length == 48)
    assert_same(
        {key: batch[key] for key in KEYS}
        | {"spans": batch["labels"], "questions": rows.questions, "numbers": rows.tokens.indices},
        {key: [row[key] for row in expected_rows] for key in KEYS}
        | {
            "spans": [(row["start"], row["end"]) for row in expected_rows],
            "questions": owners,
            "numbers": range(len(owners)),
        },
    )


def drawn_scores(rows: SpanFeatures, length: int) -> list[np.ndarray]:
    """Draws of start and end scores, (2, rows, length) each, in which ties are frequent."""
    rng = np.random.default_rng(23)
    draws = np.round(4 * rng.normal(size=(4, 2, len(rows), length))) / 4
    draws[:, 0, :, 0] += 0.75  # some questions have an answer, some have none
    for row in range(len(rows)):  # the first and the last token of a window's context alone
        words = np.flatnonzero(rows.characters_of(row)[:, 0] >= 0)
        draws[1, :, row, words[:1]] += 4
        draws[2, :, row, words[-1:]] += 4
    draws[3] = draws[3] > 0.5  # no answer scores what the best one does
    draws[3, :, :, 0] = 1
    as_of_a_model = rng.normal(size=draws.shape[1:]).astype("float32")
    return [*draws, as_of_a_model]


@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize(
    ("null_score", "n_best"),
    [("published", 5), ("published", 1), ("smallest", 12), ("smallest", 1)],
)
def test_answers_from_scores(
    null_score: str, n_best: int, draw: int, real_checkpoint: Path
) -> None:
    questions, sizes = [*QUESTIONS, EMPTY], {"max_length": 48, "stride": 12}
    rows = paddle_rows(real_checkpoint, questions, **sizes)
    starts, ends = drawn_scores(rows, 48)[draw]
    options = {"n_best": n_best, "max_tokens": 4}
    if null_score != "published":  # which is the default
        options["null_score"] = null_score
    first_row = 0
    answers = decode(questions, rows, starts, ends, DecodingOptions(**options))
    assert [*answers] == [question.id for question in questions]
    for question, window in zip(
        questions, published_windows(real_checkpoint, questions, **sizes), strict=True
    ):
        scored = [
            (row["offsets"], starts[first_row + at].tolist(), ends[first_row + at].tolist())
            for at, row in enumerate(window)
        ]
        first_row += len(window)
        text, best, null = best_answer(
            question.context,
            scored,
            n_best=n_best,
            max_tokens=4,
            smallest_null=null_score == "smallest",
        )
        answer = answers[question.id]
        assert answer.text == text
        assert_same(
            {"best": answer.score, "null": answer.null_score},
            {"best": best, "null": null},
        )
    assert first_row == len(rows)


GIVEN = {
    "same": ("the Normans", ("Normans", "the  normans!")),
    "partly": ("conquered by Normans", ("the Normans", "a Norman")),
    "wrong": ("William", ("the Normans",)),
    "none given": ("", ("the Normans",)),
    "none right": ("", ()),
    "none wrong": ("in 1066", ()),
    "articles": ("a an the", ("the", "An")),
    "punctuation": ("e-mail, address", ("email address",)),
    "repeated": ("the day the day", ("day", "day day day")),
    "accents": ("café", ("cafe", "Café.")),
    "empty gold": ("", ("the", "...")),
    "partly empty gold": ("", ("the", "Normans")),
}
"""The answer of a model, and the gold answers."""


@pytest.mark.parametrize("names", [tuple(GIVEN), ("same", "partly", "wrong"), ("none wrong",)])
def test_official_scores(names: tuple[str, ...]) -> None:
    """Also of answerable questions alone, and of unanswerable ones."""
    questions, answers, examples = [], {}, []
    for name, (answer, gold) in GIVEN.items():
        questions.append(Question(name, "?", " ".join(gold), gold, (0,) * len(gold)))
        if name in names:
            answers[name] = answer
            example = squad.SquadExample(name, "?", " ".join(gold), None, None, "", [], not gold)
            example.answers = [{"text": text} for text in gold]
            examples.append(example)
    expected = squad_evaluate(examples, answers)
    expected = {name: value for name, value in expected.items() if "best" not in name}
    assert score_answers(questions, answers) == pytest.approx(expected, rel=0, abs=1e-10)
