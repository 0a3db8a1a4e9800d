"""SQuAD 2.0: rows of tokens, answers from scores, and official scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.record.arrays import Arrays
from sot_paddle.data.squad import answer_scores
from sot_paddle.data.squad.questions import Question
from sot_paddle.data.squad.span_decoding import DecodingOptions, decode
from sot_paddle.data.squad.span_features import SpanFeatures, span_features
from sot_paddle.data.token_features import pad_rows
from sot_torch_ref.train import squad as reference_squad

_KEYS = ("input_ids", "token_type_ids", "attention_mask")
_LONG = (
    "In 1066, the Normans, who came from Normandy, conquered England; their duke was William. He "
    "was crowned in Westminster on Christmas Day. The café was not there yet, nor was Dr. Smith's "
    "e-mail-address. Later kings spoke French, and the court's records are in Latin and French. "
    "Nobody asked the peasants. The last word of all is: Hastings"
)
_ASKED = (
    ("who", "Who conquered England?", ("the Normans", "Normans")),
    ("last", "What is the last word?", ("Hastings",)),
    ("day", "When was he crowned?", ("Christmas Day", "on Christmas Day")),
    ("mail", "What was not there?", ("Dr. Smith's e-mail-address",)),
    ("first", "In which year?", ("1066",)),
    ("begin", "When did it begin?", ("In 1066", "1066")),
    ("none", "Who was the first president of the Normans?", ()),
)


def questions(chosen: Sequence[str] = ()) -> list[Question]:
    """Hand-made questions about a context that several windows cover."""
    return [
        Question(name, text, _LONG, answers, tuple(map(_LONG.index, answers)))
        for name, text, answers in _ASKED
        if not chosen or name in chosen
    ]


def _rows(setting: Setting, asked: list[Question], given: dict[str, Any]) -> SpanFeatures:
    tokenizer = setting.context.tokenizer(do_lower_case=True)
    return span_features(asked, tokenizer, **given)


def _padded(features: SpanFeatures, length: int) -> Arrays:
    batch = pad_rows(features.tokens, range(len(features)), max_length=length)
    return {
        **{key: batch[key] for key in _KEYS},
        "spans": batch["labels"],
        "questions": features.questions,
        "numbers": features.tokens.indices,
    }


def features(
    setting: Setting, *, max_length: int, stride: int, published_labels: bool = False
) -> BothSides:
    """Every row, its labels and its question.

    The reference of the right labels is transformers' own conversion with its slow tokenizer; of
    the published ones what the specification says of them, on its fast tokenizer.

    Args:
        setting: the vocabulary.
        max_length: of a row.
        stride: tokens that windows share.
        published_labels: BERTVision's labels.
    """
    asked = questions()
    sizes = {"max_length": max_length, "stride": stride}
    ours = _padded(
        _rows(setting, asked, sizes | {"published_labels": published_labels}), max_length
    )
    by = _published if published_labels else _legacy
    reference = by(setting, asked, max_length, stride)
    shorter = _padded(_rows(setting, asked, {**sizes, "stride": stride - 1}), max_length)
    spans = ours["spans"]
    faults = {
        "answers one token later": ours | {"spans": spans + (spans > 0)},
        "an answer cut by its window": ours | {"spans": np.maximum(spans, 1)},
        "the question's types exchanged": ours | {"token_type_ids": 1 - ours["token_type_ids"]},
    }
    if len(spans) > len(asked):
        faults["windows that share one token less"] = shorter
    if published_labels:
        faults["the right labels"] = _padded(_rows(setting, asked, sizes), max_length)
    return BothSides(
        ours,
        reference,
        faults,
        "the rows",
        framework_free=True,
        note=f"{len(ours['spans'])} rows of {len(asked)} questions",
    )


def _stacked(rows: list[dict[str, Any]], owners: list[int]) -> Arrays:
    found = {key: np.array([row[key] for row in rows]) for key in _KEYS}
    spans = np.array([(row["start"], row["end"]) for row in rows])
    numbers = np.arange(len(rows))
    return {**found, "spans": spans, "questions": np.array(owners), "numbers": numbers}


def _legacy(setting: Setting, asked: list[Question], length: int, stride: int) -> Arrays:
    """transformers' features of its own examples; its stride is the step, which depends on the
    question's length."""
    from transformers.data.processors import squad

    tokenizer = setting.context.reference_tokenizer(do_lower_case=True)
    tokenizer.model_max_length = 512
    squad.squad_convert_example_to_features_init(tokenizer)
    rows, owners = [], []
    for owner, question in enumerate(asked):
        room = length - len(tokenizer.tokenize(question.text)) - 3
        example = squad.SquadExample(
            question.id,
            question.text,
            question.context,
            question.answers[0] if question.answers else None,
            question.starts[0] if question.starts else None,
            "",
            is_impossible=not question.answers,
        )
        for row in squad.squad_convert_example_to_features(
            example, length, room - stride, length, "max_length", True
        ):
            held = {key: getattr(row, key) for key in _KEYS}
            rows.append({**held, "start": row.start_position, "end": row.end_position})
            owners.append(owner)
    return _stacked(rows, owners)


def _published(setting: Setting, asked: list[Question], length: int, stride: int) -> Arrays:
    rows, owners = [], []
    for owner, found in enumerate(_windows(setting, asked, length, stride)):
        rows += found
        owners += [owner] * len(found)
    return _stacked(rows, owners)


def _windows(setting: Setting, asked: list[Question], length: int, stride: int) -> list[list]:
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(str(setting.context.vocabulary / "vocab.txt"), do_lower_case=True)
    sizes = {"max_length": length, "stride": stride}
    return [
        reference_squad.window_features(
            tokenizer,
            question.text,
            question.context,
            (question.answers[0], question.starts[0]) if question.answers else None,
            **sizes,
        )
        for question in asked
    ]


def decoding(setting: Setting, *, null_score: str, n_best: int = 5, tokens: int = 4) -> BothSides:
    """Answers, best scores and null scores of random scores.

    Args:
        setting: the vocabulary.
        null_score: which row's counts.
        n_best: starts and ends that are combined.
        tokens: of an answer at most.
    """
    length, stride, asked = 48, 12, questions()
    rows = _rows(setting, asked, {"max_length": length, "stride": stride})
    rng = np.random.default_rng(23)
    starts, ends = rng.normal(size=(2, len(rows), length))
    starts[:, 0] += 0.7  # some questions have an answer, some have none
    options = DecodingOptions(n_best=n_best, max_tokens=tokens)
    if null_score != "published":  # which is the default
        options = dataclasses.replace(options, null_score=null_score)

    def found(**changes: Any) -> Arrays:
        other = dataclasses.replace(options, **changes)
        return _named(decode(asked, rows, starts, ends, other))

    at, answers = 0, {}
    for question, windows in zip(asked, _windows(setting, asked, length, stride), strict=True):
        scored = [
            (row["offsets"], starts[at + i].tolist(), ends[at + i].tolist())
            for i, row in enumerate(windows)
        ]
        at += len(windows)
        answers[question.id] = reference_squad.best_answer(
            question.context,
            scored,
            n_best=n_best,
            max_tokens=tokens,
            smallest_null=null_score == "smallest",
        )
    reference = {
        name: array
        for key, (text, best, null) in answers.items()
        for name, array in _of(key, text, best, null).items()
    }
    other = {"published": "smallest", "smallest": "published"}[null_score]
    return BothSides(
        found(),
        reference,
        {
            "the other null score": found(null_score=other),
            "longer answers": found(max_tokens=3 * tokens),
            "fewer starts and ends": found(n_best=1),
            "a threshold": found(threshold=-5.0),
        },
        "the answers",
        framework_free=True,
        note=f"{sum(bool(text) for text, *_ in answers.values())} of {len(asked)} answered",
    )


def _named(answers: dict[str, Any]) -> Arrays:
    return {
        name: array
        for key, answer in answers.items()
        for name, array in _of(
            key, answer.text, answer.candidates[0].score, answer.null_score
        ).items()
    }


def _of(key: str, text: str, best: float, null: float) -> Arrays:
    return {
        f"{key}: answer": np.frombuffer(text.encode("utf-8") + b".", np.uint8).astype("int64"),
        f"{key}: scores": np.array([best, null]),
    }


_GIVEN = {
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
}
"""What was given, and the gold answers."""


def scores(setting: Setting, *, null_limit: float) -> BothSides:
    """Exact and F1 of hand-made answers: all, answerable and unanswerable ones, best limits.

    Args:
        setting: unused.
        null_limit: above it no answer counts.
    """
    from transformers.data.metrics.squad_metrics import squad_evaluate
    from transformers.data.processors.squad import SquadExample

    asked = [
        Question(name, "?", " ".join(gold), gold, (0,) * len(gold))
        for name, (_, gold) in _GIVEN.items()
    ]
    given = {name: text for name, (text, _) in _GIVEN.items()}
    rng = np.random.default_rng(29)
    odds = dict(zip(given, rng.permutation(len(given)) / len(given), strict=True))
    examples = []
    for question in asked:
        texts = [{"text": text} for text in question.answers]
        example = SquadExample(
            question.id, "?", question.context, None, None, "", texts, not question.answers
        )
        example.answers = texts
        examples.append(example)
    theirs = squad_evaluate(examples, given, odds, null_limit)

    def ours(**changes: Any) -> Arrays:
        options = {"answers": given, "null_limit": null_limit} | changes
        return _as_arrays(answer_scores.score_answers(asked, null_odds=odds, **options))

    found = ours()
    return BothSides(
        found,
        {name: np.asarray(theirs[name], "float64") for name in found},
        {
            "another limit": ours(null_limit=0.5 if null_limit == 1.0 else 0.2),
            "an article that counts": ours(answers=given | {"same": "those Normans"}),
            "a fraction instead of per cent": {name: value / 100 for name, value in found.items()},
            "one question less": ours(answers={n: t for n, t in given.items() if n != "wrong"}),
        },
        "the scores",
        framework_free=True,
        note=f"{len(asked)} answers; reference: transformers' squad_evaluate",
        log="metric_align",
    )


def _as_arrays(found: answer_scores.Scores) -> Arrays:
    return {name: np.asarray(value, "float64") for name, value in found.items()}
