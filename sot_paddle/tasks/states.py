"""GLUE from hidden states: the adapter pooler, or a probe of each layer.

Shape legend: M examples, L hidden states of a token, K classes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import paddle
from paddle.io import DataLoader, Dataset

from sot_paddle import distributed
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.glue_tasks import Task as Table
from sot_paddle.data.predictions import prediction_path, write_predictions
from sot_paddle.data.stored.live_states import StateSource
from sot_paddle.strict_json import dumps
from sot_paddle.tasks.glue import decide, main_metric, score
from sot_paddle.tasks.losses import classification_loss, probe_loss
from sot_paddle.tasks.squad import SquadTask
from sot_paddle.tasks.task import EpochBatches, Outputs, Predictions


class _Positions(Dataset):
    """Positions of a source's rows; they are read when a batch is made."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> int:
        return position


class StateSplit:
    """Hidden states from files or from an encoder; see :class:`~.task.Split`.

    Args:
        source: the rows.
        batch_size: rows of a forward pass in evaluation.
        indices: (n,) number of each example in its file, None where nothing is predicted.

    Attributes:
        source: the same.
        indices: the same.
        labels: (n,) labels, (n, 2) spans, or None.
    """

    def __init__(
        self, source: StateSource, batch_size: int, indices: np.ndarray | None = None
    ) -> None:
        self.source, self._batch_size, self.indices = source, batch_size, indices
        kinds = [np.asarray(kind) for kind in source.labels]
        self.labels = np.stack(kinds, axis=1) if len(kinds) > 1 else kinds[0] if kinds else None

    def __len__(self) -> int:
        return len(self.source)

    @property
    def batches(self) -> list[np.ndarray]:
        """Batches that cover the split once, in order."""
        return EpochOrder(n=len(self), batch_size=self._batch_size, shuffle=False).batches()

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of labels, sizes, precision and of what the rows are made from."""
        digest = hashlib.sha256(b"" if self.labels is None else self.labels.tobytes())
        about = {"of_row": list(self.source.of_row), "dtype": self.source.dtype}
        digest.update(dumps(about | {"origin": dict(self.source.origin)}).encode())
        return digest.hexdigest()[:32]

    def load(self, batches: Iterable[Sequence[int]]) -> DataLoader:
        """Batches of ``states`` (B, L, T, F) and ``labels``."""
        return DataLoader(
            _Positions(len(self)),
            batch_sampler=batches,
            collate_fn=self._collate,
            num_workers=0,
        )

    def _collate(self, positions: Sequence[int]) -> dict[str, np.ndarray]:
        chosen = [int(position) for position in positions]
        batch = {"states": self.source.states(chosen)}
        return batch if self.labels is None else batch | {"labels": self.labels[chosen]}

    def order(self, batch_size: int, seed: int) -> EpochBatches:
        """The global batches of each epoch, shuffled by (seed, epoch)."""
        order = EpochOrder(n=len(self), batch_size=batch_size * distributed.world_size(), seed=seed)
        return functools.lru_cache(maxsize=2)(lambda epoch: order.at_epoch(epoch).batches())


@dataclass
class StateGlueTask:
    """A GLUE task from hidden states; see :class:`sot_paddle.tasks.task.Task`.

    Attributes:
        table: names of the classes in the order of the labels, and the metrics.
        batch_size: training examples of each process and forward pass.
        train: None when the run does not train.
        dev: development splits by name, the first decides; {} when the run does not evaluate.
        test: test splits to predict, by name.
        probes: a probe of each layer is trained instead of one model on all of them.
    """

    table: Table
    batch_size: int
    train: StateSplit | None = None
    dev: Mapping[str, StateSplit] = field(default_factory=dict)
    test: Mapping[str, StateSplit] = field(default_factory=dict)
    probes: bool = False

    unit = "examples"
    maximise = True
    by_epoch = False

    @property
    def title(self) -> str:
        """The task's official spelling."""
        return self.table.title

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels, in the order of the stored labels; () for a score."""
        return self.table.labels

    @property
    def num_outputs(self) -> int:
        """K, 1 for a score."""
        return self.table.num_outputs

    @property
    def metric(self) -> str:
        """Name of the metric that selects the best checkpoint; of probes that of the best layer."""
        return main_metric(self.title)

    def order(self, seed: int) -> EpochBatches:
        """The global batches of each epoch, shuffled by (seed, epoch)."""
        return self.train.order(self.batch_size, seed)

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Cross-entropy, or the mean squared error of a score; of probes the sum over layers."""
        return (probe_loss if self.probes else classification_loss)(outputs, labels)

    def score(self, split: str, found: Predictions) -> dict[str, float]:
        """Mean loss and the official metrics; of probes those of each layer besides."""
        if not self.probes:
            return score(self.title, found.outputs, found.labels)
        layers = found.outputs.shape[1]
        each = [score(self.title, found.outputs[:, at], found.labels) for at in range(layers)]
        return of_layers(each, self.metric)

    def prediction_files(self, split: str) -> tuple[str, ...]:
        """The GLUE server's name of a test split's file."""
        return (prediction_path("", self.table, split).name,)

    def write_predictions(self, folder: Path, split: str, found: Predictions) -> Path:
        """Write the file that the GLUE server accepts; of probes the last layer's."""
        logits = found.outputs[:, -1] if self.probes else found.outputs
        return write_predictions(
            folder, self.table, self.test[split].indices, decide(logits), split
        )


@dataclass
class ProbedSquadTask(SquadTask):
    """SQuAD by a probe of each layer: the scores of the best layer, and those of each."""

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Sum over the layers of the mean loss of first and last token."""
        return probe_loss(outputs, labels)

    def score(self, split: str, found: Predictions) -> dict[str, float]:
        """The official scores of the best layer and of each layer, from (M, 2, L, T)."""
        layers = found.outputs.shape[2]
        each = [
            super(ProbedSquadTask, self).score(split, _of_layer(found, at)) for at in range(layers)
        ]
        return of_layers(each, self.metric)


def _of_layer(found: Predictions, layer: int) -> Predictions:
    return Predictions(found.indices, found.outputs[:, :, layer], found.labels)


def of_layers(each: Sequence[Mapping[str, float]], metric: str) -> dict[str, float]:
    """Scores of the layer that is best by a metric, and those of every layer under its number.

    Args:
        each: scores of layer 0 (the embedding output), 1, ...
        metric: larger is better; NaN is worst.

    Returns:
        The best layer's scores, ``best_layer``, and ``layer_{i}_{name}``.
    """
    order = np.nan_to_num([scores[metric] for scores in each], nan=-np.inf)
    best = int(order.argmax())
    found = {**each[best], "best_layer": best}
    for at, scores in enumerate(each):
        found |= {f"layer_{at}_{name}": value for name, value in scores.items()}
    return found
