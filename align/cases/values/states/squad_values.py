"""SQuAD 2.0: rows of tokens, answers from scores, and official scores."""

from __future__ import annotations

import dataclasses
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
_DRAWS = 4
_KINDS = ("several", "one")
"""How many starts and ends of a row are combined."""
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
_EMPTY = Question("empty", "Who wrote this?", "")
"""About a context without a token: transformers makes no row of it, or one without the context."""


def questions() -> list[Question]:
    """Hand-made questions about a context that several windows cover."""
    return [
        Question(name, text, _LONG, answers, tuple(map(_LONG.index, answers)))
        for name, text, answers in _ASKED
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
    spans = ours["spans"]
    faults: dict[str, Any] = {
        "answers one token later": ours | {"spans": spans + (spans > 0)},
        "an answer cut by its window": ours | {"spans": np.maximum(spans, 1)},
        "the question's types exchanged": ours | {"token_type_ids": 1 - ours["token_type_ids"]},
    }
    if len(spans) > len(asked):
        shorter = sizes | {"stride": stride - 1}
        faults["windows that share one token less"] = lambda: _padded(
            _rows(setting, asked, shorter), max_length
        )
    if published_labels:
        faults["the right labels"] = lambda: _padded(_rows(setting, asked, sizes), max_length)
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
    """Answers, best scores and null scores of several draws of scores, in which ties are frequent.

    Args:
        setting: the vocabulary.
        null_score: which row's counts.
        n_best: starts and ends that are combined.
        tokens: of an answer at most.
    """
    length, stride, asked = 48, 12, [*questions(), _EMPTY]
    rows = _rows(setting, asked, {"max_length": length, "stride": stride})
    rng = np.random.default_rng(23)
    draws = np.round(4 * rng.normal(size=(_DRAWS, 2, len(rows), length))) / 4
    draws[:, 0, :, 0] += 0.75  # some questions have an answer, some have none
    for row in range(len(rows)):  # the first and the last token of a window's context alone
        words = np.flatnonzero(rows.characters_of(row)[:, 0] >= 0)
        draws[1, :, row, words[:1]] += 4
        draws[2, :, row, words[-1:]] += 4
    draws[3] = draws[3] > 0.5  # no answer scores what the best one does
    draws[3, :, :, 0] = 1
    rounded = rng.normal(size=(1, *draws.shape[1:])).astype("float32")
    draws = [*draws, *rounded]  # as a model gives them
    windows = _windows(setting, asked, length, stride)
    options = DecodingOptions(n_best=n_best, max_tokens=tokens)
    if null_score != "published":  # which is the default
        options = dataclasses.replace(options, null_score=null_score)

    def found(counts: tuple[int, int] = (n_best, 1), **changes: Any) -> Arrays:
        made: Arrays = {}
        for kind, count in zip(_KINDS, counts, strict=True):
            other = dataclasses.replace(options, n_best=count, **changes)
            for draw, (starts, ends) in enumerate(draws):
                for key, answer in decode(asked, rows, starts, ends, other).items():
                    best = answer.candidates[0].score
                    made |= _of(f"{kind} {key} {draw}", answer.text, best, answer.null_score)
        return made

    reference: Arrays = {}
    for kind, count in zip(_KINDS, (n_best, 1), strict=True):
        for draw, (starts, ends) in enumerate(draws):
            at = 0
            for question, held in zip(asked, windows, strict=True):
                scored = [
                    (row["offsets"], starts[at + i].tolist(), ends[at + i].tolist())
                    for i, row in enumerate(held)
                ]
                at += len(held)
                answer = reference_squad.best_answer(
                    question.context,
                    scored,
                    n_best=count,
                    max_tokens=tokens,
                    smallest_null=null_score == "smallest",
                )
                reference |= _of(f"{kind} {question.id} {draw}", *answer)
    other = {"published": "smallest", "smallest": "published"}[null_score]
    answered = sum(len(text) > 1 for name, text in reference.items() if name.endswith("answer"))
    return BothSides(
        found(),
        reference,
        {
            "the other null score": lambda: found(null_score=other),
            "longer answers": lambda: found(max_tokens=3 * tokens),
            "fewer starts and ends": lambda: found((1, 1)),
            "a threshold": lambda: found(threshold=-5.0),
        },
        "the answers",
        framework_free=True,
        note=f"{answered} of {len(reference) // 2} answered",
    )


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
    "partly empty gold": ("", ("the", "Normans")),
}
"""What was given, and the gold answers."""
_ANSWERABLE, _BAD = ("same", "partly", "wrong"), ("none wrong", "wrong")
"""Scored alone as well; of the bad ones answering nothing at all is best."""


_TIMES = 6  # so many answers that a sort which is not stable moves equal ones on any processor


def scores(setting: Setting, *, null_limit: float) -> BothSides:
    """Exact and F1 of hand-made answers: all, answerable and unanswerable ones, best limits.

    Every answer is there several times, and many have the same odds, some those of the limit.

    Args:
        setting: unused.
        null_limit: above it no answer counts.
    """
    asked = [
        Question(f"{name} {time}", "?", " ".join(gold), gold, (0,) * len(gold))
        for time in range(_TIMES)
        for name, (_, gold) in _GIVEN.items()
    ]
    given = {one.id: _GIVEN[one.id[:-2]][0] for one in asked}
    rng = np.random.default_rng(38)  # a draw whose best limits depend on the order of equal odds
    odds = dict(zip(given, rng.permutation(len(given)) // (2 * _TIMES) / 5, strict=True))
    parts = [
        {key: text for key, text in given.items() if key[:-2] in names}
        for names in (_GIVEN, _ANSWERABLE, _BAD)
    ]

    def ours(**changes: Any) -> Arrays:
        options = {"answers": given, "null_odds": odds, "null_limit": null_limit} | changes
        return {
            name: np.asarray(value, "float64")
            for name, value in answer_scores.score_answers(asked, **options).items()
        }

    found = ours() | _prefixed(ours(answers=parts[1], null_odds=None), ours(answers=parts[2]))
    theirs = [_scored_by_transformers(asked, part, odds, null_limit) for part in parts]
    theirs[1] = _scored_by_transformers(asked, parts[1], dict.fromkeys(odds, 0.0), null_limit)
    without = {name: value for name, value in theirs[1].items() if "best" not in name}
    return BothSides(
        found,
        theirs[0] | _prefixed(without, theirs[2]),
        {
            "another limit": lambda: found | ours(null_limit=0.5 if null_limit == 1.0 else 0.2),
            "an article that counts": lambda: (
                found | ours(answers=given | {"same 0": "those Normans"})
            ),
            "a fraction instead of per cent": {name: value / 100 for name, value in found.items()},
            "one question less": lambda: (
                found | ours(answers={n: t for n, t in given.items() if n != "wrong 1"})
            ),
        },
        "the scores",
        framework_free=True,
        note=f"{len(asked)} answers; reference: transformers' squad_evaluate",
        log="metric_align",
    )


def _prefixed(without_odds: Arrays, bad: Arrays) -> Arrays:
    return {f"without odds: {name}": value for name, value in without_odds.items()} | {
        f"bad: {name}": value for name, value in bad.items()
    }


def _scored_by_transformers(
    asked: list[Question], answers: dict[str, str], odds: dict[str, float], limit: float
) -> Arrays:
    from transformers.data.metrics.squad_metrics import squad_evaluate
    from transformers.data.processors.squad import SquadExample

    examples = []
    for question in (one for one in asked if one.id in answers):
        texts = [{"text": text} for text in question.answers]
        example = SquadExample(
            question.id, "?", question.context, None, None, "", texts, not question.answers
        )
        example.answers = texts
        examples.append(example)
    scored = squad_evaluate(examples, answers, {key: odds[key] for key in answers}, limit)
    return {name: np.asarray(value, "float64") for name, value in scored.items()}
