"""A preparation that dies at one of its questions, as a kill would end it."""

from __future__ import annotations

from sot_paddle.data.pretraining.pauses import Pauses


class Dying(Pauses):
    """Records at every second question, and ends the work at one of them."""

    def __init__(self, questions: int) -> None:
        super().__init__(0)
        self.questions = questions

    def due(self) -> bool:
        self.questions -= 1
        if self.questions < 0:
            raise KeyboardInterrupt
        return self.questions % 2 == 0  # what was written since the last record is lost
