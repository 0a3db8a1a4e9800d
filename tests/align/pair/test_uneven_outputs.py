"""What models and layers return, paired: of other shapes, and what a step gets of it."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch

import align
from tests.align.small_pairs import model_of, pair_in


def flattening(f, flat: bool = False, wrong: str = ""):
    """A block whose two inner layers may see one row a token, as OPT's does."""

    def forward(model, x):
        rows = x.reshape([-1, 8]) if flat else x
        made = model.fc2(f.nn.functional.relu(model.fc1(rows)))
        return model.norm(made.reshape(x.shape) + (0 if wrong == "residual" else x))

    parts = {"fc1": f.nn.Linear(8, 6), "fc2": f.nn.Linear(6, 8), "norm": f.nn.LayerNorm(8)}
    return model_of(f, forward, **parts)


WORDS = np.random.default_rng(1).normal(size=(2, 5, 8))


def test_flattened_rows_inside_a_block_are_a_note_when_what_follows_agrees() -> None:
    result = align.compare(flattening(torch), flattening(paddle, True), WORDS, inject=True)
    assert result.passed, str(result)
    shapes = "(10, 6) in Paddle, (2, 5, 6) in PyTorch"
    assert sum(f"fc1: {shapes}, which changes nothing" in note for note in result.notes) == 1


@pytest.mark.parametrize("wrong", ["fc2", "residual"])
def test_a_fault_beside_flattened_rows_is_named_and_not_they(wrong) -> None:
    port = flattening(paddle, True, wrong)
    port.fc2.register_forward_post_hook(lambda _, __, y: y * (1.01 if wrong == "fc2" else 1))
    result = align.compare(flattening(torch), port, WORDS, dtype="float64")
    assert not result.passed
    assert result.root.place == ("fc2" if wrong == "fc2" else "(model)"), str(result)


def test_an_axis_too_many_is_named_where_it_is_made() -> None:
    def pooling(f):
        def forward(model, x):
            return model.out(x + model.norm(x.mean(1, keepdim=f is paddle)))

        return model_of(f, forward, norm=f.nn.LayerNorm(8), out=f.nn.Linear(8, 3))

    result = align.compare(pooling(torch), pooling(paddle), WORDS[:, :2], dtype="float64")
    assert result.root.place in ("norm", "(model)"), str(result)
    assert not any("changes nothing" in note for note in result.notes)


def test_a_step_gets_the_floating_outputs_with_what_rounding_may_do_to_them() -> None:
    def returning(f, names):
        def forward(model, x):
            hidden = model.fc(x)
            return dict(zip(names, (hidden, hidden.argmax(-1), hidden.sum(-1)), strict=True))

        return model_of(f, forward, fc=f.nn.Linear(8, 6))

    theirs, ours = (
        returning(torch, ("y", "ids", "sum")),
        returning(paddle, ("hidden", "ids", "sum")),
    )
    pair = pair_in(theirs, ours, WORDS, "float32")
    hidden, total = sorted(pair.outputs(), key=lambda output: -output.torch.ndim)
    assert (hidden.name, total.name) == ("(model)[y]", "(model)[sum]")
    np.testing.assert_array_equal(hidden.torch, pair.reference.calls["(model)"].outputs["y"])
    np.testing.assert_array_equal(hidden.paddle, pair.ours.calls["(model)"].outputs["hidden"])
    for output in (hidden, total):
        size = np.abs(output.torch).max()
        assert np.abs(output.paddle - output.torch).max() <= output.rounding < 1e-5 * size


def experts(f, sort: bool = False, turn: bool = False):
    """Each row goes to one of two experts, a port may sort an expert's rows; `turn` mixes them."""

    def forward(model, x):
        output, chosen = f.zeros_like(x), x[:, 0] > 0
        for number, expert in enumerate(model.experts):
            rows = f.nonzero(chosen == bool(number)).flatten()
            rows = rows[f.argsort(x[rows, 1])] if sort else rows
            added = expert(x[rows]).flip(0) if turn else expert(x[rows])
            output = output.index_add(*((0, rows, added) if f is torch else (rows, 0, added)))
        return output

    layers = f.nn.ModuleList if f is torch else f.nn.LayerList
    return model_of(f, forward, experts=layers([f.nn.Linear(8, 8), f.nn.Linear(8, 8)]))


ROWS = np.random.default_rng(2).normal(size=(12, 8))


def test_rows_may_reach_an_expert_in_another_order() -> None:
    result = align.compare(experts(torch), experts(paddle, sort=True), ROWS)
    assert result.passed, str(result)
    says = "rows in another order, which changes nothing of what follows: experts.0, experts.1"
    assert says in result.notes
    assert not align.compare(experts(torch), experts(paddle, sort=True, turn=True), ROWS).passed
