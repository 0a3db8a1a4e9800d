"""What the steps of one run share: the pair just built and the user's choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.cases.kinds.case_kinds import ModelCase
from align.cases.sides.checkpoint import encoder_sizes
from align.record.arrays import Arrays
from sot_paddle.convert import find_checkpoint
from sot_paddle.data.real_sentences import REAL_SENTENCES
from sot_paddle.data.tokenization import WordPieceTokenizer

if TYPE_CHECKING:
    from align.cases.model_pair import ModelPair

Classic = dict[str, tuple[Arrays, Arrays]]


@dataclass
class Context:
    """State of a run; made without loading a framework.

    Attributes:
        checkpoint: directory of a real BERT checkpoint, None for the installed one.
        sentences: the user's sentences for the data step, empty for the embedded ones.
        trainer_runs: what the trainer's processes left, by (case, dtype).
        classic: check -> (torch arrays, paddle arrays) of the five classic reprod_log checks.
    """

    checkpoint: Path | None = None
    sentences: Sequence[str] = ()
    classic: Classic = field(default_factory=dict)
    trainer_runs: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)
    _tokenizers: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)
    _key: tuple[str, str] | None = field(default=None, repr=False)
    _pair: ModelPair | None = field(default=None, repr=False)

    @property
    def choices(self) -> dict[str, Any]:
        """The user's choices, from which another process can make the same context."""
        return {
            "checkpoint": self.checkpoint,
            "sentences": list(self.sentences),
        }

    @property
    def texts(self) -> Sequence[str]:
        """The user's sentences, or the embedded ones."""
        return self.sentences or REAL_SENTENCES

    @property
    def vocabulary(self) -> Path:
        """The folder of the user's checkpoint, or of the installed one."""
        return self.checkpoint or find_checkpoint()

    def tokenizer(self, **options: Any) -> WordPieceTokenizer:
        """Our tokenizer on `vocabulary`; of equal options the same one."""
        key = tuple(sorted(options.items()))
        if key not in self._tokenizers:
            self._tokenizers[key] = WordPieceTokenizer(self.vocabulary, **options)
        return self._tokenizers[key]

    def reference_tokenizer(self, **options: Any) -> Any:
        """transformers' slow tokenizer, written in Python, on the same vocabulary; kept likewise.

        It needs no compiled tokenizer and shares no code with ours.
        """
        key = ("reference", *sorted(options.items()))
        if key not in self._tokenizers:
            import sot_torch_ref  # noqa: F401  isort: skip (transformers beside a CPU torch)
            from transformers import BertTokenizer, logging

            logging.set_verbosity_error()  # it says for every pair that no overflow is returned
            path = str(self.vocabulary / "vocab.txt")
            self._tokenizers[key] = BertTokenizer(path, **options)
        return self._tokenizers[key]

    def pair(self, case: ModelCase, dtype: str) -> ModelPair:
        """The pair of a case in one precision; the last one is kept, older ones are dropped."""
        if self._key != (case.name, dtype):
            from align.cases.model_pair import ModelPair

            self._key, self._pair = None, None  # free the old pair before the new one is built
            self._pair = ModelPair(self._sized(case), dtype, self.checkpoint, self.texts)
            self._key = (case.name, dtype)
        assert self._pair is not None
        return self._pair

    def _sized(self, case: ModelCase) -> ModelCase:
        """The case with the checkpoint's own sizes, whatever checkpoint the user gave."""
        if case.weights != "checkpoint":
            return case
        options = {**case.options, **encoder_sizes(self.checkpoint)}
        return dataclasses.replace(case, options=options)

    def log_classic(self, check: str, prefix: str, torch_arrays: Arrays, ours: Arrays) -> None:
        """Keep arrays for the reprod_log files, under ``prefix/name``."""
        sides = self.classic.setdefault(check, ({}, {}))
        for kept, arrays in zip(sides, (torch_arrays, ours), strict=True):
            kept.update({f"{prefix}/{name}": value for name, value in arrays.items()})

    def take_classic(self) -> Classic:
        """Hand over the arrays kept so far, and keep none."""
        taken, self.classic = self.classic, {}
        return taken

    def add_classic(self, classic: Classic) -> None:
        """Keep what another context took."""
        for check, sides in classic.items():
            mine = self.classic.setdefault(check, ({}, {}))
            for kept, arrays in zip(mine, sides, strict=True):
                kept.update(arrays)
