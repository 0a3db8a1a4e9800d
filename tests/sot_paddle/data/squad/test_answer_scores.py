"""The official scores by hand."""

from __future__ import annotations

import pytest

from sot_paddle.data.squad.answer_scores import (
    exact_match,
    f1_of,
    gold_answers,
    normalized,
    score_answers,
)
from sot_paddle.data.squad.questions import Question


def ask(name: str, *gold: str) -> Question:
    return Question(name, "?", " ".join(gold), gold, (0,) * len(gold))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Normans!", "normans"),
        ("a theatre, an Aardvark", "theatre aardvark"),
        ("e-mail", "email"),
        ("The", ""),
        ("...", ""),
        ("Café", "café"),
        ("", ""),
    ],
)
def test_normalized(text, plain) -> None:
    assert normalized(text) == plain


@pytest.mark.parametrize(
    ("gold", "given", "exact", "f1"),
    [
        ("the Normans", "Normans.", 1, 1),
        ("conquered by Normans", "Normans", 0, 0.5),
        ("day day", "day", 0, 2 / 3),
        ("William", "Normans", 0, 0),
        ("", "", 1, 1),
        ("", "Normans", 0, 0),
        ("Normans", "", 0, 0),
        ("the", "a", 1, 1),
    ],
)
def test_exact_and_f1_of_one_answer(gold, given, exact, f1) -> None:
    assert exact_match(gold, given) == exact
    assert f1_of(gold, given) == pytest.approx(f1)


def test_gold_answers_that_are_empty_do_not_count() -> None:
    assert gold_answers(ask("q", "the", "Normans")) == ["Normans"]
    assert gold_answers(ask("q", "the")) == [""]
    assert gold_answers(ask("q")) == [""]


ASKED = [ask("a", "Normans", "by the Normans"), ask("b", "1066"), ask("c"), ask("d")]
GIVEN = {"a": "by Normans", "b": "", "c": "", "d": "x"}


def test_averages_of_all_answerable_and_unanswerable() -> None:
    found = score_answers(ASKED, GIVEN)
    assert found == {
        "exact": 50.0,
        "f1": 50.0,
        "total": 4,
        "HasAns_exact": 50.0,
        "HasAns_f1": 50.0,
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }


def test_the_best_of_several_gold_answers_counts() -> None:
    found = score_answers(ASKED[:1], {"a": "Normans came"})
    assert found == {
        "exact": 0.0,
        "f1": pytest.approx(200 / 3),
        "total": 1,
        "HasAns_exact": 0.0,
        "HasAns_f1": pytest.approx(200 / 3),
        "HasAns_total": 1,
    }


def test_above_the_limit_there_is_no_answer() -> None:
    odds = {"a": 0.1, "b": 0.9, "c": 0.2, "d": 0.8}
    found = score_answers(ASKED, GIVEN, odds, null_limit=0.5)
    assert (found["exact"], found["NoAns_exact"], found["HasAns_exact"]) == (75.0, 100.0, 50.0)
    at_the_limit = score_answers(ASKED, GIVEN, odds, null_limit=0.8)
    assert at_the_limit["NoAns_exact"] == 50.0


def test_the_best_limit() -> None:
    """a right, b unanswered, c silent, d wrongly answered: the best limit lies between a and d."""
    odds = {"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.8}
    found = score_answers(ASKED, GIVEN, odds)
    assert (found["best_exact"], found["best_exact_thresh"]) == (75.0, 0.1)
    earlier = score_answers(ASKED, GIVEN, odds | {"d": 0.05})  # it is answered before a is
    assert (earlier["best_exact"], earlier["best_exact_thresh"]) == (50.0, 0.0)
    all_wrong = score_answers(ASKED, GIVEN | {"a": "x", "b": "x"}, odds)
    assert (all_wrong["best_exact"], all_wrong["best_exact_thresh"]) == (50.0, 0.0)


def test_questions_that_were_not_answered_are_left_out() -> None:
    assert score_answers(ASKED, {"a": "Normans"})["total"] == 1
    with pytest.raises(ValueError, match="none of the 4 questions has an answer"):
        score_answers(ASKED, {"z": "Normans"})


@pytest.mark.parametrize("odds", [{}, {"a": 0.1}])
def test_null_odds_of_other_questions_are_refused(odds) -> None:
    """As the official script does; 0 in their place moved the best threshold."""
    with pytest.raises(ValueError, match="answered questions have no null odds, as"):
        score_answers(ASKED, GIVEN, odds)
