"""`outputs=`: what of each side's output is compared, and what is said where it is missing."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F
from torch.nn import functional as T

import align
from align.record.request import Request
from tests.align.small_pairs import model_of

X = np.random.default_rng(3).normal(size=(2, 3))


def torch_pair():
    """Returns the hidden state and the scores."""

    def forward(model, x):
        hidden = model.a(x)
        return hidden, model.b(hidden)

    return model_of(torch, forward, a=torch.nn.Linear(3, 4), b=torch.nn.Linear(4, 5))


def paddle_scores(key: str, factor: float):
    """Returns the scores alone, or in a mapping."""

    def forward(model, x):
        scores = model.b(model.a(x)) * factor
        return {"loss": scores.sum(), key: scores} if key else scores

    return model_of(paddle, forward, a=nn.Linear(3, 4), b=nn.Linear(4, 5))


def compare(key: str = "", factor: float = 1.0, **options):
    options = {"dtype": "float64", **options}
    return align.compare(torch_pair, lambda: paddle_scores(key, factor), X, **options)


def test_outputs_of_another_structure_are_told_with_the_remedy() -> None:
    found = compare()
    assert not found.passed
    assert [r.step for r in found.report.results] == ["forward"]  # no step that only follows
    assert "all zeros" not in str(found)
    reason = "PyTorch returns 2 tensors (0 (2, 4), 1 (2, 5)), Paddle 1 tensor ((2, 5))"
    assert found.root.reason == reason
    assert found.root.cause.endswith("outputs=(1, None)")
    assert compare("scores").root.cause.endswith("outputs=(1, 'scores')")
    assert not compare(factor=1.01).passed
    twice = compare("scores", outputs=(1, lambda out: (out["scores"], out["scores"])))
    assert "Paddle 2 tensors" in twice.root.reason
    assert all(control.caught for control in twice.report.results[0].controls)


@pytest.mark.parametrize(
    ("key", "outputs"),
    [
        ("", (1, None)),
        ("", (1, 0)),
        ("scores", (1, "scores")),
        ("scores", 1),
        ("scores", (lambda out: out[1][:, :2], lambda out: out["scores"][:, :2])),
    ],
)
def test_what_is_picked_is_compared_and_trained_on(key, outputs) -> None:
    found = compare(key, outputs=outputs, optimizer="sgd", steps=2)
    assert found.passed, str(found)
    assert not compare(key, 1.01, outputs=outputs).passed


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ((1, 2, 3), "expected a key, an index, or a pair"),
        (1.5, "expected a key, an index, or a pair"),
        ((7, None), "no '7' in what the model returns: 0, 1"),
        ((1, "logits"), "no 'logits' in what the model returns: one Tensor"),
    ],
)
def test_outputs_that_mean_nothing_are_refused(outputs, message) -> None:
    with pytest.raises(ValueError, match=message):
        compare(outputs=outputs)


def test_dotted_paths_lead_into_nested_outputs() -> None:
    picks = Request(None, None, X, outputs=("states.1.last", None)).picks(0)
    assert picks({"states": [0, {"last": 5}]}) == 5


def test_outputs_of_one_name_in_another_order_are_told() -> None:
    def named(f, *names):
        def forward(model, x):
            scores = model.layer(x)
            values = {"scores": scores, "half": scores / 2}
            return {name: values[name] for name in names}

        return model_of(f, forward, layer=f.nn.Linear(3, 4))

    asked = named(torch, "scores", "half"), named(paddle, "half", "scores"), X
    for options in ({}, {"loss": "mse", "labels": np.ones((2, 4))}):
        root = align.compare(*asked, dtype="float64", **options).root
        assert root.cause.startswith("PyTorch returns scores, half, Paddle half, scores: return")
    both = (lambda out: out["half"].sum(),) * 2
    assert align.compare(*asked, dtype="float64", loss=both).passed


def test_the_line_that_builds_a_librarys_layer_is_the_users() -> None:
    class Ours(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.Sequential(
                nn.Linear(3, 4),
                nn.LayerNorm(4, epsilon=1e-3),
            )

        def forward(self, x):
            return self.parts(x)

    theirs = torch.nn.Sequential()
    theirs.parts = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    line = Ours.__init__.__code__.co_firstlineno
    for ours, after in ((Ours, 4), (Ours(), 2)):  # built here, came built
        source = align.compare(theirs, ours, X, dtype="float64").root.source
        assert f"Ours.__init__, tests/align/commands/test_outputs.py:{line + after} (" in source
        assert after == 2 or "(LayerNorm.forward, paddle/nn/layer/norm.py:" in source
    source = align.compare(torch.nn.LayerNorm(3), nn.LayerNorm(3, 1e-3), X).root.source
    assert source.startswith("LayerNorm.forward, paddle/nn/layer/norm.py:")


def compared_losses(theirs, ours, columns: int = 3):
    """Losses of a layer, of whose scores the port leaves out a column when it is told to."""
    rng = np.random.default_rng(3)
    given = {"labels": rng.normal(size=(5, 3)), "optimizer": "sgd", "steps": 2, "dtype": "float64"}
    inputs = rng.normal(size=(5, 4))
    model = model_of(torch, lambda model, x: model.lin(x), lin=torch.nn.Linear(4, 3))
    port = model_of(paddle, lambda model, x: model.lin(x)[:, :columns], lin=nn.Linear(4, 3))
    return align.compare(model, port, inputs, loss=(theirs, ours), **given)


def test_an_output_that_the_loss_cannot_take_is_placed_all_the_same() -> None:
    result = compared_losses(T.mse_loss, F.mse_loss, 2)
    assert result.root.cause.startswith("index: Paddle takes :2 as its entry 1, with 0:3 it agrees")
    assert "nothing else was compared in float64: loss: Paddle's fails on" in result.notes[-1]


def test_losses_that_are_no_number_are_named_or_refused_in_one_line() -> None:
    root = compared_losses(T.mse_loss, lambda z, y: F.mse_loss(z, y, reduction="none")).root
    assert (root.step, root.place) == ("loss", "loss")
    assert "(5, 3) in Paddle and () in PyTorch: reduction: one side has none" in root.cause
    with pytest.raises(ValueError, match=r"^loss: PyTorch's has the shape \(5, 3\), expected"):
        compared_losses(lambda z, y: T.mse_loss(z, y, reduction="none"), F.mse_loss)
    with pytest.raises(ValueError, match="^loss: Paddle's fails on the output of its model: .*$"):
        compared_losses(T.mse_loss, lambda z, y: F.mse_loss(z, y[:2]))
