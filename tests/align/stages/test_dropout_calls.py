"""The dropout calls of two models: every kind of them, and each slip named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F

from align.pair.any_pair import AnyPair
from align.stages import stages
from align.stages.dropout_calls import dropout_calls
from tests.align.small_pairs import pair_in

X = np.random.default_rng(4).normal(size=(4, 5, 6))


class TorchNet(torch.nn.Module):
    """Every kind of dropout, as layers and as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.q, self.head = (torch.nn.Linear(6, 6) for _ in range(3))
        self.drop = torch.nn.Dropout(0.3)
        self.conv = torch.nn.Conv1d(5, 5, 1)
        self.feature = torch.nn.Dropout1d(0.4)
        self.alpha = torch.nn.AlphaDropout(0.2)
        self.feature_alpha = torch.nn.FeatureAlphaDropout(0.25)
        self.none = torch.nn.Dropout(0.0)

    def forward(self, x):
        x = self.drop(self.drop(torch.nn.functional.gelu(self.fc(x))))
        q = self.q(x).reshape(4, 5, 2, 3).transpose(1, 2)
        attend = torch.nn.functional.scaled_dot_product_attention
        attended = attend(q, q, q, dropout_p=0.2 if self.training else 0.0)
        x = x + attended.transpose(1, 2).reshape(4, 5, 6)
        x = self.feature_alpha(self.alpha(self.feature(self.conv(self.none(x)))))
        return self.head(torch.nn.functional.dropout(x, 0.1, self.training))


class PaddleNet(nn.Layer):
    """The port; `fault` names what is wrong."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        mode = "downscale_in_infer" if fault == "mode" else "upscale_in_train"
        self.fc, self.q, self.head = (nn.Linear(6, 6) for _ in range(3))
        self.drop = nn.Dropout(0.35 if fault == "p" else 0.3, mode=mode)
        self.conv = nn.Conv1D(5, 5, 1)
        self.feature = nn.Dropout(0.4, axis=[0, 2] if fault == "axis" else [0, 1])
        self.alpha = nn.Dropout(0.2) if fault == "kind" else nn.AlphaDropout(0.2)
        self.feature_alpha = nn.FeatureAlphaDropout(0.25)
        self.none = nn.Dropout(0.0)

    def forward(self, x):
        x = F.gelu(self.fc(x))
        x = x if self.fault == "missing" else self.drop(self.drop(x))
        q = self.q(x).reshape([4, 5, 2, 3])
        p = 0.0 if self.fault == "attention" else 0.2
        attended = F.scaled_dot_product_attention(q, q, q, None, p, training=self.training)
        x = x + attended.reshape([4, 5, 6])
        x = self.feature_alpha(self.alpha(self.feature(self.conv(self.none(x)))))
        if self.fault == "extra":
            x = F.dropout(x, 0.25, training=self.training)
        return self.head(F.dropout(x, 0.1, training=self.training))


def pair(fault: str = "", dtype: str = "float64") -> AnyPair:
    torch.manual_seed(0)
    return pair_in(TorchNet(), PaddleNet(fault), X, dtype, train=True, dropout="compare")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_equal_dropouts_pass_and_nothing_is_dropped(dtype: str) -> None:
    both = pair(dtype=dtype)
    result, found = dropout_calls(both)
    assert result.passed, result.failures
    assert found == []
    assert len(result.comparisons) == 1 + 7
    assert [control.caught for control in result.controls] == [True, True]
    assert result.note == "7 dropouts in Paddle, 7 in PyTorch"
    assert stages.forward(both).passed


@pytest.mark.parametrize(
    ("fault", "place", "cause"),
    [
        ("p", "drop", "dropout in drop: Paddle drops with p=0.35, PyTorch with p=0.3"),
        ("mode", "drop", "mode='downscale_in_infer' leaves the kept elements as they are"),
        ("axis", "feature", "Paddle's mask has the shape (4, 1, 6), PyTorch's (4, 5, 1)"),
        ("kind", "alpha", "Paddle runs upscale_in_train, PyTorch alpha_dropout"),
        (
            "missing",
            "drop",
            "dropout in drop with p=0.3 runs in PyTorch only: it is missing in Paddle",
        ),
        ("attention", "(model)", "dropout in (model) with p=0.2 runs in PyTorch only"),
        ("extra", "(model)", "dropout in (model) with p=0.25 runs in Paddle only"),
    ],
)
def test_a_dropout_that_differs_is_named(fault: str, place: str, cause: str) -> None:
    both = pair(fault)
    result, found = dropout_calls(both)
    assert not result.passed
    assert (found[0].place, found[0].step) == (place, "forward")
    assert cause in found[0].cause
    assert stages.forward(both).passed  # values are compared without dropout
