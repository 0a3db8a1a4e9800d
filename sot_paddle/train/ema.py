"""Exponential moving average of a model's whole state, parameters and running statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import paddle
from paddle import nn

from sot_paddle.weights import to_numpy


class ModelEma:
    """``average <- decay * average + (1 - decay) * value`` for every tensor of the state dict.

    It begins as a copy of the model. QUIRK: as in the original, constant tensors (the sinusoid
    table) are averaged too, and so may drift by rounding. Tensors that are not floating point
    are copied.

    Args:
        decay: share of the average that is kept at each update, in [0, 1).
        warmup: keep at most ``(1 + n) / (10 + n)`` after n updates, so that a short run's average
            does not lag; not in the original.

    Source: A.9.
    """

    def __init__(self, model: nn.Layer, decay: float, *, warmup: bool = False) -> None:
        self.decay = decay
        self.warmup = warmup
        self._model = model
        self.restart()

    @paddle.no_grad()
    def update(self, done: int = 0) -> None:
        """Take in the model's present state; to be called after every optimizer step.

        Args:
            done: updates before this one.
        """
        decay = min(self.decay, (1 + done) / (10 + done)) if self.warmup else self.decay
        for name, tensor in self._model.state_dict().items():
            average = self._average[name]
            if not paddle.is_floating_point(average):
                paddle.assign(tensor, output=average)
                continue
            average.scale_(decay)
            average.add_(tensor.detach() * (1.0 - decay))

    def arrays(self) -> dict[str, np.ndarray]:
        """The averages by name, as copies."""
        return {name: to_numpy(tensor) for name, tensor in self._average.items()}

    def restart(self) -> None:
        """Begin anew, as a copy of the model's present state."""
        self._average = _copied(self._model)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the averages into the model, and what was there back at the end."""
        state, kept = self._model.state_dict(), _copied(self._model)
        try:
            _assign(self._average, state)
            yield
        finally:
            _assign(kept, state)


def _copied(model: nn.Layer) -> dict[str, paddle.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@paddle.no_grad()
def _assign(values: Mapping[str, paddle.Tensor], state: Mapping[str, paddle.Tensor]) -> None:
    for name, tensor in state.items():
        paddle.assign(values[name], output=tensor)
