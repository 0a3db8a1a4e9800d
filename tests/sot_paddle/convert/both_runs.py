"""A training of each framework that can be moved and continued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch

from sot_paddle.convert.optimizer import optimizer_paddle, optimizer_torch_live
from sot_paddle.convert.optimizer.optimizer_state import OptimizerState

Arrays = dict[str, np.ndarray]


@dataclass
class Run:
    """Model, optimizer, schedule, and what a batch of tensors costs a model."""

    model: Any
    optimizer: Any
    schedule: Any
    loss: Callable[[Any, Mapping[str, Any]], Any]

    def weights(self) -> Arrays:
        return {n: t.detach().numpy().copy() for n, t in self.model.state_dict().items()}


@dataclass
class TorchRun(Run):
    """PyTorch's; ``clip`` bounds the norm of the gradient."""

    clip: float = 0.0

    def load(self, weights: Mapping[str, np.ndarray]) -> TorchRun:
        held = {n: torch.from_numpy(np.array(a, order="C")) for n, a in weights.items()}
        self.model.load_state_dict({**self.model.state_dict(), **held})
        return self

    def take(self) -> OptimizerState:
        return optimizer_torch_live.take(self.optimizer, self.model, self.schedule)

    def put(self, state: OptimizerState) -> None:
        optimizer_torch_live.put(state, self.optimizer, self.model, self.schedule)

    def steps(self, batches: Iterable[Mapping[str, np.ndarray]]) -> list[float]:
        """The loss of every step."""
        losses = []
        for batch in batches:
            loss = self.loss(
                self.model, {n: torch.from_numpy(np.asarray(v)) for n, v in batch.items()}
            )
            loss.backward()
            if self.clip:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses


@dataclass
class PaddleRun(Run):
    """Paddle's."""

    def load(self, weights: Mapping[str, np.ndarray]) -> PaddleRun:
        own = self.model.state_dict()
        assert set(own) == set(weights)
        for name, array in weights.items():
            own[name].set_value(np.ascontiguousarray(array).reshape(own[name].shape))
        return self

    def take(self) -> OptimizerState:
        return optimizer_paddle.take(self.optimizer, self.model)

    def put(self, state: OptimizerState, **options) -> None:
        optimizer_paddle.put(state, self.optimizer, self.model, **options)

    def steps(self, batches: Iterable[Mapping[str, np.ndarray]]) -> list[float]:
        """The loss of every step."""
        losses = []
        for batch in batches:
            loss = self.loss(self.model, {n: paddle.to_tensor(v) for n, v in batch.items()})
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.clear_grad(set_to_zero=False)
            losses.append(float(loss))
        return losses


def apart(ours, reference, without: tuple[str, ...] = ()) -> float:
    """Largest difference in units of the largest value, over losses or over tensors by name.

    Tensors whose names end like one of `without` have no gradient in exact arithmetic and drift.
    """
    if isinstance(reference, Mapping):
        assert set(ours) == set(reference)
        names = [name for name in reference if not name.endswith(without)]
        return max(apart(ours[name], reference[name]) for name in names)
    ours, reference = np.asarray(ours), np.asarray(reference)
    return float(np.abs(ours - reference).max() / (np.abs(reference).max() or 1.0))
