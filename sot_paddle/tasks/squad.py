"""SQuAD 2.0: spans of a context, from a language model or from hidden states.

Shape legend: M windows, T tokens of a padded window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paddle

from sot_paddle.data.splits import ShuffledSplit
from sot_paddle.data.squad import (
    ANSWERS,
    Answer,
    DecodingOptions,
    Question,
    SpanFeatures,
    decode,
    read_questions,
    score_answers,
    span_features,
    write_answers,
)
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.tasks.losses import mean_loss, span_loss
from sot_paddle.tasks.state_options import RecipeOptions, StateRows
from sot_paddle.tasks.task import Outputs, Predictions, Task


@dataclass(frozen=True)
class Asked:
    """Questions in the file's order, and what feeds tokens or hidden states of their windows."""

    questions: Sequence[Question]
    features: SpanFeatures
    windows: ShuffledSplit  # its labels are (M, 2), first and last token

    def answer(self, outputs: np.ndarray, options: DecodingOptions) -> dict[str, Answer]:
        """Question id -> answer, from start and end scores (M, 2, T) of every window."""
        return decode(self.questions, self.features, outputs[:, 0], outputs[:, 1], options)


@dataclass
class SquadTask(Task):
    """SQuAD 2.0; see :class:`sot_paddle.tasks.task.Task`."""

    batch_size: int
    decoding: DecodingOptions = field(default_factory=DecodingOptions)
    train: ShuffledSplit | None = None
    asked: Asked | None = None  # what is scored and predicted
    dev: Mapping[str, ShuffledSplit] = field(default_factory=dict)
    test: Mapping[str, ShuffledSplit] = field(default_factory=dict)

    title = "SQuAD"
    unit = "windows"
    num_outputs = 2
    metric = "f1"

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Mean of the cross-entropies of first and last token."""
        return span_loss(outputs, labels)

    def score(self, split: str, predictions: Predictions) -> dict[str, float]:
        """Mean loss, and the official scores in per cent."""
        answers = self.asked.answer(predictions.outputs, self.decoding)
        texts = {name: answer.text for name, answer in answers.items()}
        scores = score_answers(self.asked.questions, texts)
        losses = [mean_loss(predictions.outputs[:, at], predictions.labels[:, at]) for at in (0, 1)]
        return {"loss": float(np.mean(losses)), **scores}

    def prediction_file(self, split: str) -> str:
        """The official file of answers."""
        return ANSWERS

    def write_predictions(self, folder: Path, split: str, predictions: Predictions) -> Path:
        """Write the answers."""
        return write_answers(folder, self.asked.answer(predictions.outputs, self.decoding))


def read_windows(
    options: StateRows, tokenizer: SubwordTokenizer, file: str, *, labelled: bool = True
) -> tuple[list[Question], SpanFeatures]:
    """The questions of a file, and the windows of the tokenizer's length that the options ask for.

    A question without answers is refused where ``labelled``.
    """
    questions = read_questions(file, labelled=labelled)
    features = span_features(
        questions,
        tokenizer,
        max_length=tokenizer.max_length,
        stride=options.doc_stride,
        published_labels=options.published_labels,
    )
    return questions, features


def load_squad(
    kind: type[SquadTask],
    config: RecipeOptions,
    tokenizer: SubwordTokenizer,
    feed: Callable[[str, SpanFeatures], ShuffledSplit],
) -> SquadTask:
    """Read what the options ask for; ``feed`` makes the split, ``train`` or ``dev``, of windows.

    Raises:
        ValueError: a file is not named, or cannot be used.
    """

    def read(split: str, flag: str) -> Asked:
        file = getattr(config, flag)
        if not file:
            raise ValueError(f"SQuAD {split} needs --{flag}, questions in the official format")
        labelled = split == "train" or config.do_eval
        questions, features = read_windows(config, tokenizer, file, labelled=labelled)
        return Asked(questions, features, feed(split, features))

    train = read("train", "train_file").windows if config.do_train else None
    asked = read("dev", "predict_file") if config.do_eval or config.do_predict else None
    return kind(
        config.per_gpu_train_batch_size,
        config.decoding,
        train=train,
        asked=asked,
        dev={"dev": asked.windows} if config.do_eval else {},
        test={"dev": asked.windows} if config.do_predict else {},
    )
