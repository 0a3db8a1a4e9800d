"""GLUE from hidden states: the adapter pooler, or a probe of each layer.

Shape legend: M examples, L hidden states of a token, K classes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import paddle

from sot_paddle.data.splits import ShuffledSplit
from sot_paddle.data.stored.states import StateSource
from sot_paddle.reading import dumps
from sot_paddle.tasks.glue import GlueTask
from sot_paddle.tasks.losses import probe_loss
from sot_paddle.tasks.squad import SquadTask
from sot_paddle.tasks.task import Outputs, Predictions


class StateSplit(ShuffledSplit):
    """Hidden states from files or from an encoder.

    ``labels`` are (n,), (n, 2) of spans, or None; ``indices`` None where nothing is predicted.
    """

    def __init__(
        self, source: StateSource, batch_size: int, indices: np.ndarray | None = None
    ) -> None:
        self.source, self.batch_size, self.indices = source, batch_size, indices
        kinds = [np.asarray(kind) for kind in source.labels]
        self.labels = np.stack(kinds, axis=1) if len(kinds) > 1 else kinds[0] if kinds else None

    def __len__(self) -> int:
        return len(self.source)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of labels, sizes, precision and of what the rows are made from."""
        digest = hashlib.sha256(b"" if self.labels is None else self.labels.tobytes())
        about = {"of_row": list(self.source.of_row), "dtype": self.source.dtype}
        digest.update(dumps(about | {"origin": dict(self.source.origin)}).encode())
        return digest.hexdigest()[:32]

    def make_batch(self, positions: Sequence[int]) -> dict[str, np.ndarray]:
        """``states`` (B, L, T, F) and ``labels``."""
        chosen = [int(position) for position in positions]
        batch = {"states": self.source.states(chosen)}
        return batch if self.labels is None else batch | {"labels": self.labels[chosen]}


class _EachLayer:
    """A task by a probe of each layer; the layers are the axis before the last one of the outputs.

    The scores are those of the best layer, and those of each; the last layer predicts.
    """

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Sum over the layers."""
        return probe_loss(outputs, labels)

    def score(self, split: str, predictions: Predictions) -> dict[str, float]:
        """The official scores of the best layer and of each layer."""
        score, layers = super().score, range(predictions.outputs.shape[-2])
        return of_layers([score(split, _of_layer(predictions, at)) for at in layers], self.metric)

    def write_predictions(self, folder: Path, split: str, predictions: Predictions) -> Path:
        """Write the last layer's."""
        return super().write_predictions(folder, split, _of_layer(predictions, -1))


class ProbedGlueTask(_EachLayer, GlueTask):
    """A GLUE task by a probe of each layer, whose outputs are (M, L, K)."""


class ProbedSquadTask(_EachLayer, SquadTask):
    """SQuAD by a probe of each layer, whose outputs are (M, 2, L, T)."""


def _of_layer(predicted: Predictions, layer: int) -> Predictions:
    return Predictions(predicted.indices, predicted.outputs.take(layer, axis=-2), predicted.labels)


def of_layers(each: Sequence[Mapping[str, float]], metric: str) -> dict[str, float]:
    """Scores of the layer that is best by a metric, NaN being worst, and of every layer.

    Layer 0 is the embedding output.

    Returns:
        The best layer's scores, ``best_layer``, and ``layer_{i}_{name}``.
    """
    order = np.nan_to_num([scores[metric] for scores in each], nan=-np.inf)
    best = int(order.argmax())
    combined = {**each[best], "best_layer": best}
    for at, scores in enumerate(each):
        combined |= {f"layer_{at}_{name}": value for name, value in scores.items()}
    return combined
