"""What models of libraries do: masks by another number, float32 constants, layers that hand on."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.distributed.fleet.utils import recompute

import align
from tests.align.small_pairs import model_of

X = np.random.default_rng(2).normal(size=(3, 4, 6))
HIDDEN = np.triu(np.ones((4, 4), bool), 1)


def masked(f, number: float = 0.0):
    """Hides scores by the smallest number there is, the port by another, and returns them."""

    def hide(_, scores):
        if f is torch:
            return scores.masked_fill(torch.from_numpy(HIDDEN), torch.finfo(scores.dtype).min)
        return scores + paddle.to_tensor(HIDDEN).astype(scores.dtype) * number

    def forward(model, x):
        scores = model.scores(model.query(x) @ f.swapaxes(x, 1, 2))
        return f.nn.functional.softmax(scores, -1) @ x

    return model_of(f, forward, query=f.nn.Linear(6, 6), scores=model_of(f, hide))


@pytest.mark.parametrize("number", [-1e4, -1e9, -2.0])
def test_scores_may_be_hidden_by_any_number_that_hides(number: float) -> None:
    result = align.compare(masked(torch), masked(paddle, number), X)
    assert result.passed is (number < -100), str(result)
    if not result.passed:
        assert result.root.place == "scores"


def sines(numbers: np.ndarray) -> np.ndarray:
    return np.sin(numbers[:, None] / 10.0 ** np.arange(6))


def torch_places(frozen: bool) -> torch.nn.Module:
    """Adds sines, held with the digits of float32 in a frozen parameter or beside all tensors."""

    def forward(model, x):
        return model.layer(x + (model.places if frozen else model.kept[0])).tanh()

    numbers = torch.FloatTensor(sines(np.arange(4.0)))
    places = torch.nn.Parameter(numbers.to(torch.get_default_dtype()), False)
    parts = {"places": places} if frozen else {"kept": [numbers]}
    return model_of(torch, forward, layer=torch.nn.Linear(6, 6), **parts)


def paddle_places(factor: float) -> nn.Layer:
    """Computes the sines in the precision of the model."""

    def forward(model, x):
        places = paddle.to_tensor(sines(factor * np.arange(4.0)), dtype=x.dtype)
        return paddle.tanh(model.layer(x + places))

    return model_of(paddle, forward, layer=nn.Linear(6, 6))


@pytest.mark.parametrize("factor", [1.0, 1.00001])
@pytest.mark.parametrize("frozen", [True, False])
def test_constants_that_pytorch_rounds_to_float32_are_allowed_for(frozen, factor) -> None:
    weights = {"places": None} if frozen else None
    result = align.compare(
        lambda: torch_places(frozen), lambda: paddle_places(factor), X, weights=weights
    )
    assert result.passed is (factor == 1), str(result)
    assert any("PyTorch computes in float32 in places" in note for note in result.notes)


def scaled(f):
    """A scale and a stack that hands on what it is given; in PyTorch a list has its place."""
    stack = [f.nn.Linear(6, 6)]
    if f is torch:
        parts = {"layers": torch.nn.ModuleList(stack), "scale": 1.0}
    else:
        encoder = model_of(paddle, lambda model, x: model.layers[0](x), layers=nn.LayerList(stack))
        parts = {"encoder": encoder, "scale": 2.5}

    def forward(model, x):
        last = model.layers[0] if f is torch else model.encoder
        return last(model.scale * f.tanh(model.first(x)))

    return model_of(f, forward, first=f.nn.Linear(6, 6), **parts)


def test_who_makes_a_wrong_input_is_named_not_who_hands_it_on() -> None:
    result = align.compare(
        torch.nn.Sequential(scaled(torch)),
        nn.Sequential(scaled(paddle)),
        X,
        weights={"0.layers.0": "0.encoder.layers.0"},
        dtype="float64",
    )
    assert result.root.place == "0", str(result)
    assert (
        result.root.cause == "scale: Paddle's layer has 2.5, PyTorch's 1; with PyTorch's it agrees"
    )


def test_axes_that_are_merged_are_no_cause() -> None:
    def hosts(f):
        def inner(model, x, mask):
            factor = 1.0 if f is torch else 1.5
            return factor * model.layer(x) + mask.reshape([-1, 1, 1, 6]).mean(0)

        def forward(model, x):
            return model.inner(x, x * 2 if f is torch else (x * 2).reshape([12, 6]))

        return model_of(f, forward, inner=model_of(f, inner, layer=f.nn.Linear(6, 6)))

    result = align.compare(hosts(torch), hosts(paddle), X, dtype="float64")
    assert result.root.place == "inner"
    assert "is given a tensor" not in result.root.cause


class TorchActiveNorm(torch.nn.BatchNorm2d):
    """A norm with an activation in it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = torch.nn.Identity(), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(super().forward(x)))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
def test_a_norm_with_an_activation_in_it_may_be_two_layers(epsilon: float) -> None:
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), TorchActiveNorm(4), torch.nn.Conv2d(4, 2, 3)
    )
    norm = nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4, epsilon=epsilon), nn.ReLU())
    ours = nn.Sequential(norm, nn.Conv2D(4, 2, 3))
    table = {"0": "0.0", "1": "0.1", "2": "1"}
    image = np.random.default_rng(1).normal(size=(2, 3, 8, 8))
    result = align.compare(theirs, ours, image, weights=table)
    assert result.passed is (epsilon == 1e-5), str(result)
    if result.passed:
        assert any("compared at a layer inside" in note for note in result.notes)
    else:
        assert result.root.place == "0.1", str(result)


def test_a_layer_whose_own_weight_was_left_out_says_so(tmp_path) -> None:
    table = tmp_path / "table.json"
    ignored = {"1.weight": "nothing fits it"}
    table.write_text(json.dumps({"map": {}, "ignore_torch": ignored, "ignore_paddle": ignored}))
    result = align.compare(
        lambda: torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)),
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)),
        X,
        weights=table,
        dtype="float64",
    )
    assert result.root.place == "1"
    assert "its weight has no partner and keeps its own numbers" in result.root.cause


def words(f, norm: Any):
    """A layer and a norm behind it; in the port the norm, if any, comes before."""

    def forward(model, x):
        if f is torch:
            return model.norm(model.layer(x))
        return model.layer(x if norm is None else model.norm(x))

    return model_of(f, forward, layer=f.nn.Linear(6, 6), norm=norm)


def test_a_layer_that_another_part_calls_is_not_said_never_to_be_called() -> None:
    first, second = words(torch, torch.nn.LayerNorm(6)), words(paddle, nn.LayerNorm(6))
    result = align.compare(
        torch.nn.Sequential(first, torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)),
        nn.Sequential(words(paddle, None), second, nn.Linear(6, 4)),
        X,
        weights={"0.norm": "1.norm", "1": "1.layer", "0": "0"},
        dtype="float64",
    )
    assert result.root.place == "0"
    assert result.root.cause == "1.norm is never called by 0 in Paddle, once in PyTorch"


def test_layers_that_are_computed_again_in_the_backward_pass_ran_once() -> None:
    def part(f, call):
        inner = f.nn.Sequential(f.nn.LayerNorm(6), f.nn.Linear(6, 6))
        return model_of(f, lambda model, x: x + call(model.inner, x), inner=inner)

    result = align.compare(part(torch, lambda inner, x: inner(x)), part(paddle, recompute), X)
    assert result.passed, str(result)


TIMES = np.array([3, 871])


def by_time(f, in_float32: bool, wrong: bool = False):
    """Sines of a time, in float32 or in the precision of the model; a block behind them."""

    def embed(t):
        dtype = f.float32 if in_float32 else f.get_default_dtype()
        factors = f.exp(f.arange(32, dtype=dtype) * (-np.log(1e4) / 32))
        angles = (t.to(dtype) if f is torch else t.astype(dtype))[:, None] * factors
        sines = f.concat([angles.sin(), angles.cos()], -1)
        whole = f.get_default_dtype()
        return sines.to(whole) if f is torch else sines.astype(whole)

    def block(model, x):
        return model.fc(x) + (0 if wrong else x)

    def forward(model, t):
        return model.block(model.first(embed(t)))

    first, inner = f.nn.Linear(64, 64), model_of(f, block, fc=f.nn.Linear(64, 64))
    return model_of(f, forward, first=first, block=inner)


def test_what_paddle_alone_computes_in_float32_is_named() -> None:
    result = align.compare(by_time(torch, False), by_time(paddle, True), TIMES, dtype="float64")
    assert not result.passed
    assert re.match(
        r"perhaps no fault of the port: Paddle computes \w+ in float32 \(.*test_library_habits",
        result.root.cause,
    ), str(result)


def test_a_fault_behind_sines_in_float32_is_placed_where_it_is() -> None:
    ours = by_time(paddle, True, wrong=True)
    result = align.compare(by_time(torch, True), ours, TIMES, dtype="float64")
    assert result.root.place == "block", str(result)


def test_a_kind_of_number_that_paddle_refuses_has_nothing_to_do_with_float64() -> None:
    def hiding(_, x):
        return paddle.where((x > 0).repeat_interleave(1, 0), x, paddle.zeros_like(x))

    with pytest.raises(RuntimeError, match="repeat_interleave") as refusal:
        align.compare(torch.nn.ReLU(), model_of(paddle, hiding), X, dtype="float64")
    assert "Try dtype" not in str(refusal.value)
