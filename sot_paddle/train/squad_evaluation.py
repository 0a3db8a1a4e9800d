"""The command that scores answers to SQuAD questions, as the official script does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sot_paddle.atomic import write_atomically
from sot_paddle.command_line import OneLineParser
from sot_paddle.data.squad.answers import read_answers, score_answers
from sot_paddle.data.squad.questions import read_questions
from sot_paddle.strict_json import dumps

DESCRIPTION = """\
Score answers to SQuAD questions by the official definition of SQuAD 2.0: exact and F1 in per cent,
of all, answerable (HasAns) and unanswerable (NoAns) questions."""
EXAMPLES = """\
examples:
  python tools/evaluate_squad.py dev-v2.0.json OUTPUT/predictions.json
  python tools/evaluate_squad.py dev-v2.0.json OUTPUT/predictions.json --out-file scores.json
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run ``tools/evaluate_squad.py``; returns its exit status."""
    return _parser().run(arguments, _run)


def _run(options: argparse.Namespace) -> None:
    questions = read_questions(options.data)
    answers = read_answers(options.predictions)
    scores = score_answers(questions, answers)
    missing = sum(question.id not in answers for question in questions)
    if missing:
        note = f"{missing} of {len(questions)} questions have no prediction and are not scored"
        print(note, file=sys.stderr)
    text = dumps(scores)
    if options.out_file:
        write_atomically(options.out_file, text.encode("utf-8"))
    print(text, end="")


def _parser() -> OneLineParser:
    parser = OneLineParser("evaluate_squad.py", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("data", metavar="DATA", help="the official file, such as dev-v2.0.json")
    add("predictions", metavar="PREDICTIONS", help="JSON: question id to answer, '' for none")
    add("--out-file", metavar="FILE", help="write the scores there as well")
    return parser
