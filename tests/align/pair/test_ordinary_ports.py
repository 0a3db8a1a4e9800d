"""Right ports of what users write: cells in a loop, a frozen teacher, a tensor returned twice."""

from collections import OrderedDict

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from torch.nn.utils import rnn

import align
from tests.align.small_pairs import linears, model_of


def cells(f):
    def forward(model, x):
        zeros = [f.zeros([2, width], dtype=x.dtype) for width in (6, 6, 4)]
        state, last, found = tuple(zeros[:2]), zeros[2], []
        for t in range(x.shape[1]):
            state = model.first(x[:, t], state)
            state = state if f is torch else state[1]
            last = model.second(state[0], last)
            last = last if f is torch else last[1]
            found.append(last)
        return f.stack(found, 1)

    return model_of(f, forward, first=f.nn.LSTMCell(5, 6), second=f.nn.GRUCell(6, 4))


def distilled(f):
    def forward(model, x):
        with f.no_grad():
            told = model.teacher(x)
        return model.student(x), told

    teacher = f.nn.Sequential(f.nn.Linear(5, 8), f.nn.Linear(8, 3))
    for parameter in teacher.parameters():
        setattr(parameter, *(("requires_grad", False) if f is torch else ("stop_gradient", True)))
    return model_of(f, forward, teacher=teacher, student=f.nn.Linear(5, 3))


def divergence(f):
    functional = f.nn.functional

    def loss(output):
        own, told = (functional.log_softmax(one, -1) for one in output)
        return functional.kl_div(own, told.exp(), reduction="batchmean")

    return loss


def summed(f):
    def twice(model, x):
        made = model.layer(x)
        return made, made

    def forward(model, x):
        first, second = model.twice(x)
        return first + second * 2

    return model_of(f, forward, twice=model_of(f, twice, layer=f.nn.Linear(5, 3)))


PORTS = {
    "cells": (cells, (2, 3, 5), {}),
    "a frozen teacher": (distilled, (4, 5), {"loss": (divergence(torch), divergence(paddle))}),
    "a tensor returned twice": (summed, (4, 5), {}),
}


@pytest.mark.parametrize("name", PORTS)
def test_a_right_port_passes_with_every_layer_alone(name) -> None:
    model, shape, options = PORTS[name]
    x = np.random.default_rng(0).normal(size=shape)
    options = {"inject": True, "optimizer": "adamw", "steps": 2, "dtype": "float64", **options}
    found = align.compare(lambda: model(torch), lambda: model(paddle), x, **options)
    assert found.passed, str(found)


def mixer(f, start):
    def forward(model, x):
        x = x + model.first(model.norm1(x))
        made = model.second(model.norm2(x))
        if start is None:
            return made
        return (x if start == "input" else start) + made

    norms = {name: f.nn.LayerNorm(6) for name in ("norm1", "norm2")}
    return model_of(f, forward, **norms, **linears(f, "first second", 6, 6))


@pytest.mark.parametrize("start", [None, 0])
def test_a_sum_that_is_at_hand_as_an_input_alone_is_named(start) -> None:
    """With a number for the sum, the sum without it is no tensor: nothing was compared then."""
    x = np.random.default_rng(0).normal(size=(3, 4, 6))
    found = align.compare(mixer(torch, "input"), mixer(paddle, start), x, dtype="float64")
    assert found.root.place == "(model)"
    assert found.root.cause == "input of norm2 is not added (a missing residual connection)"


def test_layers_that_do_other_parts_of_the_work_are_left_out_with_a_note() -> None:
    theirs = torch.nn.Sequential(OrderedDict(words=torch.nn.EmbeddingBag(11, 4, mode="mean")))
    ours = model_of(paddle, lambda model, ids: model.words(ids).mean(1), words=nn.Embedding(11, 4))
    ids = np.random.default_rng(0).integers(0, 11, (3, 5))
    found = align.compare(theirs, ours, ids, dtype="float64")
    assert found.passed, str(found)
    shapes = "words: (3, 5, 4) in Paddle, (3, 4) in PyTorch"
    assert any(note.startswith(f"{shapes}, which changes nothing") for note in found.notes)
    table = {"modules": {"words": None}}
    assert align.compare(theirs, ours, ids, dtype="float64", weights=table).passed


def states(f, every: bool, factor: float = 1.0):
    def encode(model, x):
        made = model.l(x) * factor
        return [x, made] if every else {"last": made}

    def forward(model, x):
        made = model.encoder(x)
        return model.o(made[-1] if isinstance(made, list) else made["last"])

    encoder = model_of(f, encode, l=f.nn.Linear(8, 8))
    return model_of(f, forward, encoder=encoder, o=f.nn.Linear(8, 3))


@pytest.mark.parametrize("paddle_has_more", [True, False])
def test_all_states_against_the_last_one(paddle_has_more: bool) -> None:
    def result(factor: float):
        pair = states(torch, not paddle_has_more), states(paddle, paddle_has_more, factor)
        return align.compare(*pair, np.random.default_rng(0).normal(size=(2, 8)), inject=True)

    right = result(1.0)
    assert right.passed, str(right)
    assert any("encoder: outputs without a partner: " in note for note in right.notes)
    wrong = result(1.0001)
    assert not wrong.passed
    assert wrong.root.place == "encoder"


LENGTHS = np.array([4, 2, 6])


def torch_packed():
    def forward(model, x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = model.rnn(packed)
        return model.out(rnn.pad_packed_sequence(states, batch_first=True)[0]), last

    layer = torch.nn.GRU(3, 5, num_layers=2, bidirectional=True, batch_first=True)
    return model_of(torch, forward, rnn=layer, out=torch.nn.Linear(10, 2))


def paddle_packed(has_lengths: bool):
    def forward(model, x, lengths):
        states, last = model.rnn(x, sequence_length=lengths if has_lengths else None)
        return model.out(states), last

    layer = nn.GRU(3, 5, num_layers=2, direction="bidirect")
    return model_of(paddle, forward, rnn=layer, out=nn.Linear(10, 2))


def of_packed(has_lengths: bool, **options):
    x = np.random.default_rng(0).normal(size=(3, 6, 3))
    return align.compare(
        torch_packed(), paddle_packed(has_lengths), (x, LENGTHS), dtype="float64", **options
    )


def test_a_right_port_passes_and_its_states_are_compared() -> None:
    found = of_packed(True, inject=True, optimizer="adamw", steps=2)
    assert found.passed, str(found)
    forward = found.report.results[0]
    assert "rnn[0]" in [one.name for one in forward.comparisons]


def test_lengths_that_are_not_handed_over_are_found() -> None:
    assert of_packed(False).root.place == "rnn"
