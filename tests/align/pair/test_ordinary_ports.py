"""Right ports of what users write: cells in a loop, a frozen teacher, a tensor returned twice."""

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from torch.nn.utils import rnn

import align
from tests.align.small_pairs import in_both


def cells(f, module):
    class Cells(module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = f.nn.LSTMCell(5, 6), f.nn.GRUCell(6, 4)

        def forward(self, x):
            zeros = [f.zeros([2, width], dtype=x.dtype) for width in (6, 6, 4)]
            state, last, found = tuple(zeros[:2]), zeros[2], []
            for t in range(x.shape[1]):
                state = self.first(x[:, t], state)
                state = state if f is torch else state[1]
                last = self.second(state[0], last)
                last = last if f is torch else last[1]
                found.append(last)
            return f.stack(found, 1)

    return Cells


def distilled(f, module):
    class Distilled(module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = f.nn.Sequential(f.nn.Linear(5, 8), f.nn.Linear(8, 3))
            for parameter in self.teacher.parameters():
                setattr(parameter, *(("requires_grad", False) if f is torch else FROZEN))
            self.student = f.nn.Linear(5, 3)

        def forward(self, x):
            with f.no_grad():
                told = self.teacher(x)
            return self.student(x), told

    return Distilled


FROZEN = "stop_gradient", True


def divergence(f):
    functional = f.nn.functional

    def loss(output):
        own, told = (functional.log_softmax(one, -1) for one in output)
        return functional.kl_div(own, told.exp(), reduction="batchmean")

    return loss


def summed(f, module):
    class Twice(f.nn.Linear):
        def forward(self, x):
            made = super().forward(x)
            return made, made

    class Sum(module):
        def __init__(self) -> None:
            super().__init__()
            self.twice = Twice(5, 3)

        def forward(self, x):
            first, second = self.twice(x)
            return first + second * 2

    return Sum


STEPS = {"optimizer": "adamw", "steps": 2}
PORTS = {
    "cells": (*in_both(cells), (2, 3, 5), STEPS),
    "a frozen teacher": (
        *in_both(distilled),
        (4, 5),
        {"loss": (divergence(torch), divergence(paddle)), **STEPS},
    ),
    "a tensor returned twice": (*in_both(summed), (4, 5), STEPS),
}


@pytest.mark.parametrize("name", PORTS)
def test_a_right_port_passes_with_every_layer_alone(name) -> None:
    theirs, ours, shape, options = PORTS[name]
    x = np.random.default_rng(0).normal(size=shape)
    found = align.compare(theirs, ours, x, inject=True, dtype="float64", **options)
    assert found.passed, str(found)


def mixer(f, module):
    class Mixer(module):
        def __init__(self, start) -> None:
            super().__init__()
            self.norm1, self.first = f.nn.LayerNorm(6), f.nn.Linear(6, 6)
            self.norm2, self.second = f.nn.LayerNorm(6), f.nn.Linear(6, 6)
            self.start = start

        def forward(self, x):
            x = x + self.first(self.norm1(x))
            made = self.second(self.norm2(x))
            if self.start is None:
                return made
            return (x if self.start == "input" else self.start) + made

    return Mixer


@pytest.mark.parametrize("start", [None, 0])
def test_a_sum_that_is_at_hand_as_an_input_alone_is_named(start) -> None:
    """With a number for the sum, the sum without it is no tensor: nothing was compared then."""
    x = np.random.default_rng(0).normal(size=(3, 4, 6))
    theirs, ours = in_both(mixer)
    found = align.compare(lambda: theirs("input"), lambda: ours(start), x, dtype="float64")
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


def states(f, module):
    class Encoder(module):
        def __init__(self, every: bool, factor: float) -> None:
            super().__init__()
            self.l, self.every, self.factor = f.nn.Linear(8, 8), every, factor

        def forward(self, x):
            made = self.l(x) * self.factor
            return [x, made] if self.every else {"last": made}

    class States(module):
        def __init__(self, every: bool, factor: float = 1.0) -> None:
            super().__init__()
            self.encoder, self.o = Encoder(every, factor), f.nn.Linear(8, 3)

        def forward(self, x):
            made = self.encoder(x)
            return self.o(made[-1] if isinstance(made, list) else made["last"])

    return States


@pytest.mark.parametrize("paddle_has_more", [True, False])
def test_all_states_against_the_last_one(paddle_has_more: bool) -> None:
    def result(factor: float):
        theirs, ours = in_both(states)
        pair = theirs(not paddle_has_more), ours(paddle_has_more, factor)
        return align.compare(*pair, np.random.default_rng(0).normal(size=(2, 8)), inject=True)

    right = result(1.0)
    assert right.passed, str(right)
    assert any("encoder: outputs without a partner: " in note for note in right.notes)
    wrong = result(1.0001)
    assert not wrong.passed
    assert wrong.root.place == "encoder"


LENGTHS = np.array([4, 2, 6])


class TorchPacked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.GRU(3, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.out = torch.nn.Linear(10, 2)

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.rnn(packed)
        return self.out(rnn.pad_packed_sequence(states, batch_first=True)[0]), last


class PaddlePacked(nn.Layer):
    lengths = True

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 5, num_layers=2, direction="bidirect")
        self.out = nn.Linear(10, 2)

    def forward(self, x, lengths):
        states, last = self.rnn(x, sequence_length=lengths if self.lengths else None)
        return self.out(states), last


class WithoutLengths(PaddlePacked):
    lengths = False


def of_packed(ours, **options):
    x = np.random.default_rng(0).normal(size=(3, 6, 3))
    return align.compare(TorchPacked, ours, (x, LENGTHS), dtype="float64", **options)


def test_a_right_port_passes_and_its_states_are_compared() -> None:
    found = of_packed(PaddlePacked, inject=True, optimizer="adamw", steps=2)
    assert found.passed, str(found)
    forward = found.report.results[0]
    assert "rnn[0]" in [one.name for one in forward.comparisons]


def test_lengths_that_are_not_handed_over_are_found() -> None:
    assert of_packed(WithoutLengths).root.place == "rnn"
