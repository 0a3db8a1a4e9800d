"""Ports that are wrong where fresh weights, or outputs by their order, show nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import torch

import align
from align.record.arrays import pair_paths
from tests.align.small_pairs import linears, model_of

INPUTS = np.random.default_rng(2).normal(size=(5, 4))


def gated(f, squash: Any):
    """A branch behind a gate that is closed at the beginning."""

    def forward(model, x):
        return x + squash(model.gate) * model.layer(x)

    gate = torch.nn.Parameter(torch.zeros(1))
    if f is paddle:
        closed = paddle.nn.initializer.Constant(0.0)
        gate = paddle.create_parameter([1], "float32", default_initializer=closed)
    return model_of(f, forward, layer=f.nn.Linear(4, 4), gate=gate)


def test_a_gate_that_begins_at_zero_is_opened() -> None:
    theirs = gated(torch, torch.tanh)
    assert align.compare(theirs, gated(paddle, paddle.tanh), INPUTS).passed
    found = align.compare(theirs, gated(paddle, lambda gate: gate), INPUTS)
    assert found.first_divergence is not None, str(found)


def two(f, give: Callable):
    """Two layers, and what is given of their outputs."""
    parts = linears(f, "a b", 4, 3)
    return model_of(f, lambda model, x: give(model.a(x), model.b(x)), **parts)


def test_an_output_under_the_name_of_another_one_is_found() -> None:
    theirs = two(torch, lambda a, b: {"scores": a, "aux": b})
    right = two(paddle, lambda a, b: {"logits": a, "more": b})
    assert align.compare(theirs, right, INPUTS).passed
    found = align.compare(theirs, two(paddle, lambda a, b: {"aux": a, "logits": b}), INPUTS)
    assert found.first_divergence is not None, str(found)


def test_flags_that_become_numbers_and_a_cast_are_told() -> None:
    """Scores and where they are positive, each cast to a dtype in the port."""

    def found(scores_dtype: str, flags_dtype: str) -> Any:
        def give(scores, _):
            return scores.astype(scores_dtype), (scores > 0).astype(flags_dtype)

        theirs = two(torch, lambda scores, _: (scores, scores > 0))
        return align.compare(theirs, two(paddle, give), INPUTS, dtype="float64")

    assert found("float64", "bool").passed
    for dtypes in (("float64", "int64"), ("float32", "bool")):
        outcome = found(*dtypes)
        assert outcome.first_divergence.cause.startswith("a cast: Paddle returns"), str(outcome)


def test_a_loss_gets_the_outputs_as_they_are_paired() -> None:
    def theirs(made: Any) -> Any:
        return made["scores"].pow(2).sum() + made["aux"].abs().sum()

    def ours(made: Any) -> Any:
        return made["logits"].pow(2).sum() + made["aux"].abs().sum()

    model = two(torch, lambda a, b: {"scores": a, "aux": b})
    port = two(paddle, lambda a, b: {"aux": b, "logits": a})
    found = align.compare(model, port, INPUTS, loss=(theirs, ours))
    assert found.passed, str(found)


def test_names_that_both_have_are_paired_first() -> None:
    pairs = pair_paths(["a", "b", "c"], ["c", "d"])
    assert pairs == ([("a", "a", "d"), ("c", "c", "c")], ["b"], [])
    assert [b for _, _, b in pair_paths(["0.0", "0.1", "1"], ["0", "1", "2"])[0]] == ["0", "1", "2"]


def filled(f, writes: bool = False):
    """Takes unknown ids for 0."""

    def forward(model, ids):
        known = ids if writes else ids.clone()
        known[known < 0] = 0
        return model.layer(known)

    return model_of(f, forward, layer=f.nn.Embedding(6, 4))


def test_an_input_that_the_port_changes_in_place_is_found() -> None:
    ids = {"ids": np.array([[1, -1, 3], [5, 0, 2]])}
    assert align.compare(filled(torch), filled(paddle), ids).passed
    outcome = align.compare(filled(torch), filled(paddle, writes=True), ids)
    assert outcome.root.cause == "changed in place in Paddle, not in PyTorch: input ids"


def test_an_output_that_only_counts_is_no_partner_of_a_named_one_before_its_own_place():
    """A head that returns scores and what it met on the way, and whose scores are of a part."""
    arrays = {"0": np.zeros(3), "1.words": np.ones(3), "1.class": np.full(3, 2.0)}
    own = {"0": np.ones(3)}
    read = arrays.__getitem__, own.__getitem__
    pairs, left, _ = pair_paths(arrays, own, read)
    assert pairs == [("0", "0", "0")]
    assert left == ["1.words", "1.class"]
