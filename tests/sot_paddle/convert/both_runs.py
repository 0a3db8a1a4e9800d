"""A training of each framework that can be moved and continued."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import torch

from sot_paddle.convert import ConversionPlan, PlanEntry
from sot_paddle.convert.state import paddle_optimizer
from sot_paddle.convert.state.record import OptimizerState, require_same
from sot_paddle.convert.state.torch_optimizer import from_torch, to_torch

Arrays = dict[str, np.ndarray]


def linear_plan(shapes: Mapping[str, tuple[int, ...]], *, reverse: bool) -> ConversionPlan:
    """A plan of linear layers with the same names on both sides; `shapes` are PyTorch's."""
    entries = []
    for name, shape in shapes.items():
        kind = ("linear", "transpose") if len(shape) == 2 else ("bias", "copy")
        both = (shape[::-1], shape) if reverse else (shape, shape[::-1])
        entries.append(PlanEntry(name, name, kind[1], *both, kind[0]))
    return ConversionPlan("", "", "", reverse, 1, "", tuple(entries), {}, (), (), {})


def names_of(optimizer, model) -> list[list[str]]:
    """Names of an optimizer's parameters in its order, group by group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names[id(p)] for p in group["params"]] for group in optimizer.param_groups]


def taken(optimizer, model, schedule) -> OptimizerState:
    """The state of a live PyTorch optimizer and its scheduler, copied."""
    state_dict = copy.deepcopy(optimizer.state_dict())
    return from_torch(state_dict, names_of(optimizer, model), schedule=schedule.state_dict())


def put(state: OptimizerState, optimizer, model, schedule) -> None:
    """Let a fresh PyTorch optimizer and scheduler continue a state; read back and compared."""
    assert schedule.last_epoch == 0
    with warnings.catch_warnings():  # no update was made here: that is meant
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
        for _ in range(state.position):
            schedule.step()
    require_same(state, taken(optimizer, model, schedule), "the PyTorch optimizer")
    optimizer.load_state_dict(to_torch(state, names_of(optimizer, model)))
    assert different_arrays(taken(optimizer, model, schedule), state) == []


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
    """PyTorch's."""

    def load(self, weights: Mapping[str, np.ndarray]) -> TorchRun:
        held = {n: torch.from_numpy(np.array(a, order="C")) for n, a in weights.items()}
        self.model.load_state_dict({**self.model.state_dict(), **held})
        return self

    def take(self) -> OptimizerState:
        return taken(self.optimizer, self.model, self.schedule)

    def put(self, state: OptimizerState) -> None:
        put(state, self.optimizer, self.model, self.schedule)

    def steps(self, batches: Iterable[Mapping[str, np.ndarray]]) -> list[float]:
        """The loss of every step."""
        losses = []
        for batch in batches:
            loss = self.loss(
                self.model, {n: torch.from_numpy(np.asarray(v)) for n, v in batch.items()}
            )
            loss.backward()
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
        return paddle_optimizer.take(self.optimizer, self.model)

    def put(self, state: OptimizerState, **options) -> None:
        paddle_optimizer.put(state, self.optimizer, self.model, **options)

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


def apart(ours, reference) -> float:
    """Largest difference in units of the largest value, over losses or over tensors by name."""
    if isinstance(reference, Mapping):
        assert set(ours) == set(reference)
        return max(apart(ours[name], reference[name]) for name in reference)
    ours, reference = np.asarray(ours), np.asarray(reference)
    return float(np.abs(ours - reference).max() / (np.abs(reference).max() or 1.0))


def different_arrays(a: OptimizerState, b: OptimizerState) -> list[str]:
    """Names of the arrays and counts that differ in any bit or are on one side only."""
    first, second = ({f"{name}/updates": n for name, n in state.steps.items()} for state in (a, b))
    for content, state in ((first, a), (second, b)):
        for name, array in state.arrays().items():
            content[name] = (array.dtype, array.shape, array.tobytes())
    return [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
