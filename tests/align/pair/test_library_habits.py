"""What models of libraries do: masks by another number, float32 constants, layers that hand on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from tests.align.small_pairs import in_both

X = np.random.default_rng(2).normal(size=(3, 4, 6))
HIDDEN = np.triu(np.ones((4, 4), bool), 1)


def masked(f, module):
    class Scores(module):
        """Hides scores by the smallest number there is, the port by another, and returns them."""

        def __init__(self, number: float) -> None:
            super().__init__()
            self.number = number

        def forward(self, scores):
            if f is torch:
                hidden = torch.from_numpy(HIDDEN)
                return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
            return scores + paddle.to_tensor(HIDDEN).astype(scores.dtype) * self.number

    class Masked(module):
        def __init__(self, number: float = 0.0) -> None:
            super().__init__()
            self.query, self.scores = f.nn.Linear(6, 6), Scores(number)

        def forward(self, x):
            scores = self.scores(self.query(x) @ f.swapaxes(x, 1, 2))
            return f.nn.functional.softmax(scores, -1) @ x

    return Masked


@pytest.mark.parametrize("number", [-1e4, -1e9, -2.0])
def test_scores_may_be_hidden_by_any_number_that_hides(number: float) -> None:
    theirs, ours = in_both(masked)
    result = align.compare(theirs, lambda: ours(number), X)
    assert result.passed is (number < -100), str(result)
    if not result.passed:
        assert result.root.place == "scores"


def sines(numbers: np.ndarray) -> np.ndarray:
    return np.sin(numbers[:, None] / 10.0 ** np.arange(6))


class TorchPlaces(torch.nn.Module):
    """Adds sines, held with the digits of float32 in a frozen parameter or beside all tensors."""

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)
        numbers = torch.FloatTensor(sines(np.arange(4.0)))
        if frozen:
            self.places = torch.nn.Parameter(numbers.to(torch.get_default_dtype()), False)
        else:
            self.kept = [numbers]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.places if hasattr(self, "places") else self.kept[0]
        return self.layer(x + places).tanh()


class PaddlePlaces(nn.Layer):
    """Computes the sines in the precision of the model."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(6, 6), factor

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        places = paddle.to_tensor(sines(self.factor * np.arange(4.0)), dtype=x.dtype)
        return paddle.tanh(self.layer(x + places))


@pytest.mark.parametrize("factor", [1.0, 1.00001])
@pytest.mark.parametrize("frozen", [True, False])
def test_constants_that_pytorch_rounds_to_float32_are_allowed_for(frozen, factor) -> None:
    weights = {"places": None} if frozen else None
    result = align.compare(
        lambda: TorchPlaces(frozen), lambda: PaddlePlaces(factor), X, weights=weights
    )
    assert result.passed is (factor == 1), str(result)
    assert any("PyTorch computes in float32 in places" in note for note in result.notes)


def scaled(f, module):
    class Stack(module):
        """Hands on what it is given; in PyTorch's model a list has its place."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LayerList([nn.Linear(6, 6)])

        def forward(self, x):
            return self.layers[0](x)

    class Scaled(module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.first = 1.0 if f is torch else 2.5, f.nn.Linear(6, 6)
            if f is torch:
                self.layers = torch.nn.ModuleList([torch.nn.Linear(6, 6)])
            else:
                self.encoder = Stack()

        def forward(self, x):
            last = self.layers[0] if f is torch else self.encoder
            return last(self.scale * f.tanh(self.first(x)))

    return Scaled


def test_who_makes_a_wrong_input_is_named_not_who_hands_it_on() -> None:
    theirs, ours = in_both(scaled)
    result = align.compare(
        lambda: torch.nn.Sequential(theirs()),
        lambda: nn.Sequential(ours()),
        X,
        weights={"0.layers.0": "0.encoder.layers.0"},
        dtype="float64",
    )
    assert result.root.place == "0", str(result)
    assert (
        result.root.cause == "scale: Paddle's layer has 2.5, PyTorch's 1; with PyTorch's it agrees"
    )


def test_axes_that_are_merged_are_no_cause() -> None:
    def hosts(f, module):
        class Inner(f.nn.Linear):
            def forward(self, x, mask):
                factor = 1.0 if f is torch else 1.5
                return factor * super().forward(x) + mask.reshape([-1, 1, 1, 6]).mean(0)

        class Host(module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Inner(6, 6)

            def forward(self, x):
                return self.inner(x, x * 2 if f is torch else (x * 2).reshape([12, 6]))

        return Host

    result = align.compare(*in_both(hosts), X, dtype="float64")
    assert result.root.place == "inner"
    assert "is given a tensor" not in result.root.cause


class TorchActiveNorm(torch.nn.BatchNorm2d):
    """A norm with an activation in it."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = torch.nn.Identity(), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(super().forward(x)))


def active(epsilon: float = 1e-5) -> nn.Layer:
    norm = nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4, epsilon=epsilon), nn.ReLU())
    return nn.Sequential(norm, nn.Conv2D(4, 2, 3))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
def test_a_norm_with_an_activation_in_it_may_be_two_layers(epsilon: float) -> None:
    def torch_model():
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), TorchActiveNorm(4), torch.nn.Conv2d(4, 2, 3)
        )

    table = {"0": "0.0", "1": "0.1", "2": "1"}
    image = np.random.default_rng(1).normal(size=(2, 3, 8, 8))
    result = align.compare(torch_model, lambda: active(epsilon), image, weights=table)
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


def words(f, module):
    class Words(module):
        """A layer and a norm behind it; in the port the norm, if any, comes before."""

        def __init__(self, norm: Any) -> None:
            super().__init__()
            self.layer, self.norm = f.nn.Linear(6, 6), norm

        def forward(self, x):
            if f is torch:
                return self.norm(self.layer(x))
            return self.layer(x if self.norm is None else self.norm(x))

    return Words


def test_a_layer_that_another_part_calls_is_not_said_never_to_be_called() -> None:
    theirs, ours = in_both(words)
    first = theirs(torch.nn.LayerNorm(6))
    result = align.compare(
        torch.nn.Sequential(first, torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)),
        lambda: nn.Sequential(ours(None), ours(nn.LayerNorm(6)), nn.Linear(6, 4)),
        X,
        weights={"0.norm": "1.norm", "1": "1.layer", "0": "0"},
        dtype="float64",
    )
    assert result.root.place == "0"
    assert result.root.cause == "1.norm is never called by 0 in Paddle, once in PyTorch"
