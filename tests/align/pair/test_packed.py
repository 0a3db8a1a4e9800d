"""PyTorch's packed sequences beside the lengths that Paddle's recurrent layers are given."""

import numpy as np
import paddle
import torch
from torch.nn.utils import rnn

import align

LENGTHS = np.array([4, 2, 6])


class Theirs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.GRU(3, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.out = torch.nn.Linear(10, 2)

    def forward(self, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.rnn(packed)
        return self.out(rnn.pad_packed_sequence(states, batch_first=True)[0]), last


class Ours(paddle.nn.Layer):
    lengths = True

    def __init__(self) -> None:
        super().__init__()
        self.rnn = paddle.nn.GRU(3, 5, num_layers=2, direction="bidirect")
        self.out = paddle.nn.Linear(10, 2)

    def forward(self, x, lengths):
        states, last = self.rnn(x, sequence_length=lengths if self.lengths else None)
        return self.out(states), last


class WithoutLengths(Ours):
    lengths = False


def outcome(ours, seed=0, **options):
    x = np.random.default_rng(seed).normal(size=(3, 6, 3))
    return align.compare(Theirs, ours, (x, LENGTHS), dtype="float64", seed=seed, **options)


def test_a_right_port_passes_and_its_states_are_compared() -> None:
    for seed in range(3):
        found = outcome(Ours, seed, inject=True, optimizer="adamw", steps=2)
        assert found.passed, str(found)
        forward = found.report.results[0]
        assert "rnn[0]" in [one.name for one in forward.comparisons]


def test_lengths_that_are_not_handed_over_are_found() -> None:
    assert outcome(WithoutLengths).root.place == "rnn"
