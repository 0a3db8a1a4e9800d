"""A moving average that differs is placed at the average, with the option that makes it so."""

from __future__ import annotations

import numpy as np
import paddle
import torch

import align

RNG = np.random.default_rng(2)
ROWS, LABELS = RNG.normal(size=(6, 5)), RNG.integers(0, 3, 6)


class Average:
    def __init__(self, model, decay: float, *, late: bool = False) -> None:
        self.model, self.decay, self.skipped = model, decay, 1 if late else 0
        self.averages = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}

    def update(self) -> None:
        self.skipped -= 1
        for n, p in self.model.named_parameters() if self.skipped < 0 else ():
            self.averages[n] *= self.decay
            self.averages[n] += (1 - self.decay) * p.detach().numpy()

    def arrays(self) -> dict[str, np.ndarray]:
        return self.averages


def compared(decay: float, **options):
    def reference(model):
        return torch.optim.SGD(model.parameters(), lr=0.125), None, None, Average(model, 0.5)

    def port(model):
        made = paddle.optimizer.SGD(0.125, parameters=model.parameters())
        return made, None, None, Average(model, decay, **options)

    models = lambda: torch.nn.Linear(5, 3), lambda: paddle.nn.Linear(5, 3)
    shared = {"labels": LABELS, "loss": "cross_entropy", "steps": 2, "dtype": "float64"}
    return align.compare(*models, ROWS, optimizer=(reference, port), **shared).root


def test_the_decay_of_a_moving_average_is_named_at_the_average() -> None:
    root = compared(0.75)
    assert root.place == "average/weight"
    assert root.cause == "perhaps the moving average: decay: Paddle 0.75, PyTorch 0.5"


def test_another_fault_of_the_average_is_no_decay() -> None:
    root = compared(0.5, late=True)
    assert root.place == "average/weight"
    assert "decay" not in root.cause
