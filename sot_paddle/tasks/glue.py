"""GLUE's nine tasks, and a user's own table of sentences: one sequence in, one label out, from
tokens or from hidden states.

Shape legend: M examples, K classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paddle
from scipy import stats
from sklearn import metrics

from sot_paddle.data import glue_tasks
from sot_paddle.data.glue import (
    own_task,
    prediction_path,
    read_split,
    tokenize_examples,
    write_predictions,
)
from sot_paddle.data.splits import ShuffledSplit, TokenSplit
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.tasks.losses import classification_loss, mean_loss
from sot_paddle.tasks.task import Outputs, Predictions, Task


@dataclass
class GlueTask(Task):
    """A GLUE task or an own table; see :class:`sot_paddle.tasks.task.Task`."""

    table: glue_tasks.Task
    batch_size: int
    train: ShuffledSplit | None = None
    dev: Mapping[str, ShuffledSplit] = field(default_factory=dict)
    test: Mapping[str, ShuffledSplit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.title, self.classes = self.table.title, self.table.labels
        self.num_outputs, self.metric = self.table.num_outputs, self.table.metrics[-1]

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Cross-entropy, or the mean squared error of a score."""
        return classification_loss(outputs, labels)

    def score(self, split: str, predictions: Predictions) -> dict[str, float]:
        """Mean loss and the official metrics."""
        return score(self.table.metrics, predictions.outputs, predictions.labels)

    def prediction_file(self, split: str) -> str:
        """The GLUE server's name of a test split's file."""
        return prediction_path("", self.table, split).name

    def write_predictions(self, folder: Path, split: str, predictions: Predictions) -> Path:
        """Write the file that the GLUE server accepts."""
        indices = self.test[split].indices
        return write_predictions(folder, self.table, indices, decide(predictions.outputs), split)


def score(names: Sequence[str], logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Mean ``loss`` and a task's metrics of logits (M, K) and labels (M,)."""
    return {"loss": mean_loss(logits, labels)} | glue_metrics(names, decide(logits), labels)


def glue_metrics(
    names: Sequence[str], predictions: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Score predictions by the official metrics of a task.

    Args:
        names: the task's metrics, see `sot_paddle.data.glue_tasks.Task`.
        predictions: (N,), N at least 1, class indices, or numbers for correlations.
        labels: (N,) likewise.

    Returns:
        Metric name to value: accuracy, F1 of class 1 and Matthews correlation in [-1, 1] (0
        where they are 0/0, as scikit-learn defines), correlations NaN for a constant side
        (a single row is one).
    """
    with warnings.catch_warnings():  # of scores that are told as 0 or NaN
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        warnings.filterwarnings("ignore", message="A single label was found", category=UserWarning)
        if "corr" in names:
            if len(labels) < 2:  # which SciPy refuses
                return dict.fromkeys(names, float("nan"))
            predictions, labels = predictions.astype("float64"), labels.astype("float64")
            pearson = float(stats.pearsonr(predictions, labels)[0])
            spearman = float(stats.spearmanr(predictions, labels)[0])
            return {"pearson": pearson, "spearmanr": spearman, "corr": (pearson + spearman) / 2}
        if "mcc" in names:
            return {"mcc": float(metrics.matthews_corrcoef(labels, predictions))}
    accuracy = float(np.mean(predictions == labels))
    if "f1" not in names:
        return {"acc": accuracy}
    f1 = float(metrics.f1_score(labels, predictions, zero_division=0.0))
    return {"acc": accuracy, "f1": f1, "acc_and_f1": (accuracy + f1) / 2}


def decide(logits: np.ndarray) -> np.ndarray:
    """Class indices (M,), or the numbers themselves when K is 1."""
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def load_glue(config: TrainConfig, tokenizer: SubwordTokenizer) -> GlueTask:
    """Read and tokenize what the options ask for.

    Returns:
        The task. Test splits are read for ``do_predict`` only; MNLI's mismatched set may be absent.

    Raises:
        ValueError: a needed file is missing or broken.
    """
    if config.task_name == glue_tasks.OWN:
        table = own_task(config.data_dir, regression=config.regression)
    else:
        table = glue_tasks.get_task(config.task_name)
    dev = dev_splits(config.data_dir, table) if config.do_eval else []
    test = test_splits(config.data_dir, table) if config.do_predict else []
    wanted = (["train"] if config.do_train else []) + dev + test
    if not wanted:
        raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
    splits: dict[str, TokenSplit] = {}
    length = config.max_seq_length
    padding = {"pad": config.padding, "max_length": length, "pad_id": tokenizer.pad_id}
    for split in wanted:
        features = tokenize_examples(read_split(config.data_dir, table, split), table, tokenizer)
        splits[split] = TokenSplit(features, config.per_gpu_eval_batch_size, **padding)
    return GlueTask(
        table,
        config.per_gpu_train_batch_size,
        train=splits.get("train"),
        dev={name: splits[name] for name in dev},
        test={name: splits[name] for name in test},
    )


def dev_splits(folder: str | Path, table: glue_tasks.Task) -> list[str]:
    """The development splits that are there; without the first, which decides, it alone."""
    first, *others = table.dev_splits
    there = _present(folder, table, others) if _present(folder, table, [first]) else []
    return [first, *there]


def test_splits(folder: str | Path, table: glue_tasks.Task) -> list[str]:
    """The test splits that are there, else the first; reading it says what is missing."""
    return _present(folder, table, table.test_splits) or [table.test_splits[0]]


def _present(folder: str | Path, table: glue_tasks.Task, splits: Sequence[str]) -> list[str]:
    return [split for split in splits if (Path(folder) / table.splits[split]).is_file()]
