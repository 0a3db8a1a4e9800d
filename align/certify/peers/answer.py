"""What a peer says of one scene, with a fault or without."""

from __future__ import annotations

from dataclasses import dataclass

PASS, FAIL, NO_CHECK, CANNOT_RUN = "pass", "fail", "no check", "cannot run"


@dataclass(frozen=True)
class Answer:
    """The answer of one tool to one task.

    Attributes:
        state: PASS, FAIL, NO_CHECK (the tool has nothing for this), CANNOT_RUN.
        check: the check that fails first.
        place: the layer that the tool names, "" for none.
        said: its words, shortened.
        seconds: wall time of the tool's own work.
    """

    state: str
    check: str = ""
    place: str = ""
    said: str = ""
    seconds: float = 0.0
