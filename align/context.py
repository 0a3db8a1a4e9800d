"""What the steps of one run share: the pair just built and the user's choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from align.case_kinds import ModelCase
from align.checkpoint import encoder_sizes
from align.pair import Pair
from align.sides import Arrays, TrainingRun
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.token_features import TokenFeatures


@dataclass
class Context:
    """State of a run.

    Attributes:
        checkpoint: directory of a real BERT checkpoint, None for the installed one.
        sentences: the user's sentences for the data step, empty for the embedded ones.
        glue_dir: the user's GLUE folder with one folder for each task, None for embedded rows.
        trainer_runs: what the trainer's processes left, by (case, dtype).
        classic: check -> (torch arrays, paddle arrays) of the five classic reprod_log checks.
    """

    checkpoint: Path | None = None
    sentences: Sequence[str] = ()
    glue_dir: Path | None = None
    classic: dict[str, tuple[Arrays, Arrays]] = field(default_factory=dict)
    trainer_runs: dict[tuple[str, str], tuple[TrainingRun, TokenFeatures]] = field(
        default_factory=dict, repr=False
    )
    _key: tuple[str, str] | None = field(default=None, repr=False)
    _pair: Pair | None = field(default=None, repr=False)

    @property
    def texts(self) -> Sequence[str]:
        """The user's sentences, or the embedded ones."""
        return self.sentences or REAL_SENTENCES

    def pair(self, case: ModelCase, dtype: str) -> Pair:
        """The pair of a case in one precision; the last one is kept, older ones are dropped."""
        if self._key != (case.name, dtype):
            self._key, self._pair = None, None  # free the old pair before the new one is built
            if case.weights == "checkpoint":  # its own sizes, whatever checkpoint the user gave
                options = {**case.options, **encoder_sizes(self.checkpoint)}
                case = dataclasses.replace(case, options=options)
            self._pair = Pair(case, dtype, self.checkpoint, self.texts)
            self._key = (case.name, dtype)
        assert self._pair is not None
        return self._pair

    def log_classic(self, check: str, prefix: str, torch_arrays: Arrays, ours: Arrays) -> None:
        """Keep arrays for the reprod_log files, under ``prefix/name``."""
        sides = self.classic.setdefault(check, ({}, {}))
        for kept, arrays in zip(sides, (torch_arrays, ours), strict=True):
            kept.update({f"{prefix}/{name}": value for name, value in arrays.items()})
