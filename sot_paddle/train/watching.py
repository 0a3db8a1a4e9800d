"""Who looks on while a training is evaluated: a search, which may end it early."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

Watch = Callable[[int, int, Mapping[str, float]], None]
"""Called with the step, the steps of the whole run and the scores by name, that which chooses the
best as ``main`` too; what it raises ends the run."""

_watches: list[Watch] = []


@contextlib.contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Call a function after each evaluation of the trainings inside of the block."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


def show_evaluation(step: int, steps: int, scores: Mapping[str, float]) -> None:
    """Call what watches; the training does so after each evaluation."""
    for watch in _watches:
        watch(step, steps, scores)
