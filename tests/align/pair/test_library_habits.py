"""What models of libraries do: masks by another number, float32 constants, layers that hand on."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F

import align

X = np.random.default_rng(2).normal(size=(3, 4, 6))
HIDDEN = np.triu(np.ones((4, 4), bool), 1)


class TorchScores(torch.nn.Module):
    """Hides scores by the smallest number there is, and returns them."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(torch.from_numpy(HIDDEN), torch.finfo(scores.dtype).min)


class TorchMasked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.scores = torch.nn.Linear(6, 6), TorchScores()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.query(x) @ x.transpose(1, 2)).softmax(-1) @ x


class PaddleScores(nn.Layer):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = number

    def forward(self, scores: paddle.Tensor) -> paddle.Tensor:
        return scores + paddle.to_tensor(HIDDEN).astype(scores.dtype) * self.number


class PaddleMasked(nn.Layer):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.query, self.scores = nn.Linear(6, 6), PaddleScores(number)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return F.softmax(self.scores(self.query(x) @ x.transpose([0, 2, 1])), -1) @ x


@pytest.mark.parametrize("number", [-1e4, -1e9, -2.0])
def test_scores_may_be_hidden_by_any_number_that_hides(number: float) -> None:
    result = align.compare(TorchMasked, lambda: PaddleMasked(number), X)
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


class TorchScaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.first, self.layers = (
            torch.nn.Linear(6, 6),
            torch.nn.ModuleList([torch.nn.Linear(6, 6)]),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](self.scale * self.first(x).tanh())


class PaddleStack(nn.Layer):
    """Hands on what it is given; in PyTorch's model a list has its place."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(6, 6)])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.layers[0](x)


class PaddleScaled(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.first, self.encoder = 2.5, nn.Linear(6, 6), PaddleStack()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.encoder(self.scale * paddle.tanh(self.first(x)))


def test_who_makes_a_wrong_input_is_named_not_who_hands_it_on() -> None:
    table = {"layers.0": "encoder.layers.0"}
    result = align.compare(
        lambda: torch.nn.Sequential(TorchScaled()),
        lambda: nn.Sequential(PaddleScaled()),
        X,
        weights={f"0.{a}": f"0.{b}" for a, b in table.items()},
        dtype="float64",
    )
    assert result.root.place == "0", str(result)
    assert (
        result.root.cause == "scale: Paddle's layer has 2.5, PyTorch's 1; with PyTorch's it agrees"
    )


def test_axes_that_are_merged_are_no_cause() -> None:
    class Theirs(torch.nn.Linear):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + mask.reshape(-1, 1, 1, 6).mean(0)

    class Ours(nn.Linear):
        def forward(self, x: paddle.Tensor, mask: paddle.Tensor) -> paddle.Tensor:
            return 1.5 * super().forward(x) + mask.reshape([-1, 1, 1, 6]).mean(0)

    class TorchHost(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Theirs(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, x * 2)

    class PaddleHost(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Ours(6, 6)

        def forward(self, x: paddle.Tensor) -> paddle.Tensor:
            return self.inner(x, (x * 2).reshape([12, 6]))

    result = align.compare(TorchHost, PaddleHost, X, dtype="float64")
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


class TorchWords(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x))


class PaddleWords(nn.Layer):
    def __init__(self, norm: nn.Layer | None) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.norm = norm

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.layer(x if self.norm is None else self.norm(x))


def test_a_layer_that_another_part_calls_is_not_said_never_to_be_called() -> None:
    result = align.compare(
        lambda: torch.nn.Sequential(TorchWords(), torch.nn.Linear(6, 6), torch.nn.Linear(6, 4)),
        lambda: nn.Sequential(PaddleWords(None), PaddleWords(nn.LayerNorm(6)), nn.Linear(6, 4)),
        X,
        weights={"0.norm": "1.norm", "1": "1.layer", "0": "0"},
        dtype="float64",
    )
    assert result.root.place == "0"
    assert result.root.cause == "1.norm is never called by 0 in Paddle, once in PyTorch"
