"""A layer that returns more tensors than its partner: what is nearest is compared."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

import align

X = np.random.default_rng(0).normal(size=(2, 8))


class TorchEncoder(torch.nn.Module):
    def __init__(self, every: bool) -> None:
        super().__init__()
        self.l, self.every = torch.nn.Linear(8, 8), every

    def forward(self, x):
        made = self.l(x)
        return [x, made] if self.every else {"last": made}


class PaddleEncoder(paddle.nn.Layer):
    def __init__(self, every: bool, factor: float) -> None:
        super().__init__()
        self.l, self.every, self.factor = paddle.nn.Linear(8, 8), every, factor

    def forward(self, x):
        made = self.l(x) * self.factor
        return [x, made] if self.every else {"last": made}


class TorchModel(torch.nn.Module):
    def __init__(self, every: bool) -> None:
        super().__init__()
        self.encoder, self.o = TorchEncoder(every), torch.nn.Linear(8, 3)

    def forward(self, x):
        made = self.encoder(x)
        return self.o(made[-1] if isinstance(made, list) else made["last"])


class PaddleModel(paddle.nn.Layer):
    def __init__(self, every: bool, factor: float) -> None:
        super().__init__()
        self.encoder, self.o = PaddleEncoder(every, factor), paddle.nn.Linear(8, 3)

    def forward(self, x):
        made = self.encoder(x)
        return self.o(made[-1] if isinstance(made, list) else made["last"])


@pytest.mark.parametrize("paddle_has_more", [True, False])
def test_all_states_against_the_last_one(paddle_has_more: bool) -> None:
    def result(factor: float) -> align.Outcome:
        pair = TorchModel(not paddle_has_more), PaddleModel(paddle_has_more, factor)
        return align.compare(*pair, X, inject=True)

    right = result(1.0)
    assert right.passed, str(right)
    assert any("encoder: outputs without a partner: " in note for note in right.notes)
    wrong = result(1.0001)
    assert not wrong.passed
    assert wrong.root.place == "encoder"
