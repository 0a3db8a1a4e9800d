"""Right ports of what users write: cells in a loop, a frozen teacher, a tensor returned twice."""

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F

import align


class TorchCells(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.LSTMCell(5, 6), torch.nn.GRUCell(6, 4)

    def forward(self, x):
        state, found = (x.new_zeros(2, 6), x.new_zeros(2, 6)), []
        last = x.new_zeros(2, 4)
        for t in range(x.shape[1]):
            state = self.first(x[:, t], state)
            last = self.second(state[0], last)
            found.append(last)
        return torch.stack(found, 1)


class PaddleCells(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTMCell(5, 6), nn.GRUCell(6, 4)

    def forward(self, x):
        state, found = (paddle.zeros([2, 6], x.dtype), paddle.zeros([2, 6], x.dtype)), []
        last = paddle.zeros([2, 4], x.dtype)
        for t in range(x.shape[1]):
            _, state = self.first(x[:, t], state)
            _, last = self.second(state[0], last)
            found.append(last)
        return paddle.stack(found, 1)


class TorchDistilled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Linear(8, 3))
        self.teacher.requires_grad_(False)
        self.student = torch.nn.Linear(5, 3)

    def forward(self, x):
        with torch.no_grad():
            told = self.teacher(x)
        return self.student(x), told


class PaddleDistilled(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))
        for parameter in self.teacher.parameters():
            parameter.stop_gradient = True
        self.student = nn.Linear(5, 3)

    def forward(self, x):
        with paddle.no_grad():
            told = self.teacher(x)
        return self.student(x), told


def torch_divergence(output):
    own, told = (torch.nn.functional.log_softmax(one, -1) for one in output)
    return torch.nn.functional.kl_div(own, told.exp(), reduction="batchmean")


def paddle_divergence(output):
    own, told = (F.log_softmax(one, -1) for one in output)
    return F.kl_div(own, told.exp(), reduction="batchmean")


class TorchTwice(torch.nn.Linear):
    def forward(self, x):
        made = super().forward(x)
        return made, made


class PaddleTwice(nn.Linear):
    def forward(self, x):
        made = super().forward(x)
        return made, made


class TorchSum(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.twice = TorchTwice(5, 3)

    def forward(self, x):
        first, second = self.twice(x)
        return first + second * 2


class PaddleSum(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.twice = PaddleTwice(5, 3)

    def forward(self, x):
        first, second = self.twice(x)
        return first + second * 2


STEPS = {"optimizer": "adamw", "steps": 2}
PORTS = {
    "cells": (TorchCells, PaddleCells, (2, 3, 5), STEPS),
    "a frozen teacher": (
        TorchDistilled,
        PaddleDistilled,
        (4, 5),
        {"loss": (torch_divergence, paddle_divergence), **STEPS},
    ),
    "a tensor returned twice": (TorchSum, PaddleSum, (4, 5), STEPS),
}


@pytest.mark.parametrize("name", PORTS)
def test_a_right_port_passes_with_every_layer_alone(name) -> None:
    theirs, ours, shape, options = PORTS[name]
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=shape)
        found = align.compare(theirs, ours, x, inject=True, dtype="float64", seed=seed, **options)
        assert found.passed, str(found)


def test_a_layer_that_changes_nothing_is_no_cause_of_what_it_is_given() -> None:
    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.drop = torch.nn.Linear(5, 3), torch.nn.Dropout(0.1)

        def forward(self, x):
            return self.drop(torch.sin(self.fc(x)) * torch.cos(self.fc(x)).cumsum(-1))

    class Ours(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.drop = nn.Linear(5, 3), nn.Dropout(0.1)

        def forward(self, x):
            return self.drop(paddle.sin(self.fc(x)) * paddle.exp(self.fc(x)))

    x = np.random.default_rng(0).normal(size=(4, 5))
    found = align.compare(Theirs, Ours, x, dtype="float64")
    assert found.root.place == "(model)"
    assert "drop" not in found.root.cause


class TorchMixer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.first = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6)
        self.norm2, self.second = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6)

    def forward(self, x):
        x = x + self.first(self.norm1(x))
        return x + self.second(self.norm2(x))


class PaddleMixer(nn.Layer):
    def __init__(self, start: int | None) -> None:
        super().__init__()
        self.norm1, self.first = nn.LayerNorm(6), nn.Linear(6, 6)
        self.norm2, self.second = nn.LayerNorm(6), nn.Linear(6, 6)
        self.start = start

    def forward(self, x):
        x = x + self.first(self.norm1(x))
        made = self.second(self.norm2(x))
        return made if self.start is None else self.start + made


@pytest.mark.parametrize("start", [None, 0])
def test_a_sum_that_is_at_hand_as_an_input_alone_is_named(start) -> None:
    """With a number for the sum, the sum without it is no tensor: nothing was compared then."""
    x = np.random.default_rng(0).normal(size=(3, 4, 6))
    found = align.compare(TorchMixer, lambda: PaddleMixer(start), x, dtype="float64")
    assert found.root.place == "(model)"
    assert found.root.cause == "input of norm2 is not added (a missing residual connection)"


def test_layers_that_do_other_parts_of_the_work_are_left_out_with_a_note() -> None:
    class Theirs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.EmbeddingBag(11, 4, mode="mean")

        def forward(self, ids):
            return self.words(ids)

    class Ours(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(11, 4)

        def forward(self, ids):
            return self.words(ids).mean(1)

    ids = np.random.default_rng(0).integers(0, 11, (3, 5))
    found = align.compare(Theirs, Ours, ids, dtype="float64")
    assert found.passed, str(found)
    shapes = "words: (3, 5, 4) in Paddle, (3, 4) in PyTorch"
    assert any(note.startswith(f"{shapes}, which changes nothing") for note in found.notes)
    table = {"modules": {"words": None}}
    assert align.compare(Theirs, Ours, ids, dtype="float64", weights=table).passed


class TorchPlaced(torch.nn.Module):
    def forward(self, x, places):
        return torch.sin(x) * torch.cos(places) + torch.cumsum(x, 1)


class TorchAround(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.placed = torch.nn.Linear(5, 5), TorchPlaced()

    def forward(self, x):
        return self.placed(self.first(x), torch.arange(5)[None])


class PaddlePlaced(nn.Layer):
    def forward(self, x, places):
        return paddle.exp(x) * paddle.sin(places.astype(x.dtype)) + paddle.cumsum(x, 1)


class PaddleAround(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.placed = nn.Linear(5, 5), PaddlePlaced()

    def forward(self, x):
        return self.placed(self.first(x), paddle.arange(5).expand([4, 5]))


def test_an_argument_that_broadcasts_to_the_same_shape_is_no_cause() -> None:
    x = np.random.default_rng(0).normal(size=(4, 5))
    found = align.compare(TorchAround, PaddleAround, x, dtype="float64")
    assert found.root.place == "placed"
    assert "is given a tensor of shape" not in found.root.cause
