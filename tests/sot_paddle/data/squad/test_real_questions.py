"""The real development file, where it is beside the project."""

from __future__ import annotations

from sot_paddle.data.squad.questions import read_questions
from sot_paddle.data.squad.span_features import span_features
from sot_paddle.data.tokenizers import WordPieceTokenizer


def test_every_answer_of_the_real_file_is_found_in_some_window(shared_file) -> None:
    questions = read_questions(shared_file("data/squad_v2/dev-v2.0.json"))
    assert (len(questions), sum(not question.answers for question in questions)) == (6078, 3168)
    tokenizer = WordPieceTokenizer(shared_file("data/vocab/bert-base-uncased/vocab.txt"))
    found = span_features(questions[:1500], tokenizer)
    starts, ends = found.tokens.labels.T
    answered = {int(owner) for owner in found.questions[starts > 0]}
    assert answered == {at for at, question in enumerate(questions[:1500]) if question.answers}
    for row in (starts > 0).nonzero()[0]:
        question = questions[found.questions[row]]
        covered = found.characters_of(row)
        text = question.context[covered[starts[row], 0] : covered[ends[row], 1]]
        assert question.answers[0] in text
