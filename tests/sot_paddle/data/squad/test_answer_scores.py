"""Questions without an answer of the model; the official scores: tests/parity."""

from __future__ import annotations

import pytest

from sot_paddle.data.squad.answer_scores import score_answers
from sot_paddle.data.squad.questions import Question

ASKED = [Question(name, "?", "Normans", ("Normans",), (0,)) for name in "abcd"]
GIVEN = {"a": "by Normans", "b": "", "c": "", "d": "x"}


def test_questions_that_were_not_answered_are_left_out() -> None:
    assert score_answers(ASKED, {"a": "Normans"})["total"] == 1
    with pytest.raises(ValueError, match="none of the 4 questions has an answer"):
        score_answers(ASKED, {"z": "Normans"})


@pytest.mark.parametrize("odds", [{}, {"a": 0.1}])
def test_null_odds_of_other_questions_are_refused(odds) -> None:
    """As the official script does; 0 in their place moved the best threshold."""
    with pytest.raises(ValueError, match="answered questions have no null odds, as"):
        score_answers(ASKED, GIVEN, odds)
