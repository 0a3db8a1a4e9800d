"""Candidate edits of one call inside a layer, by the tables of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from align.explain.calls.call_values import Around
from align.explain.calls.place_rows import PLACE_ROWS
from align.explain.calls.value_rows import VALUE_ROWS
from align.frameworks.watched_calls import WatchedCall
from align.pair.bench import ERRORS

ROWS = (*VALUE_ROWS, *PLACE_ROWS)


def edits(call: WatchedCall, around: Around) -> Iterator[tuple[str, Callable[[WatchedCall], Any]]]:
    """What may be wrong with a call: the sentence and the right call."""
    for row in ROWS:
        if call.name not in row.functions.split():
            continue
        try:
            held = [(row.sentence(call, v), v) for v in row.values(call, around)]
        except ERRORS:  # a call of an unforeseen form has no such edit
            continue
        for said, value in held:
            yield said, lambda one, row=row, v=value: row.answer(one, v)
