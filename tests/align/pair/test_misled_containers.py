"""Containers of another name than their partner's: who is blamed when one is given the wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import align
from align.commands.steps import Outcome

TOKENS = np.random.default_rng(4).normal(size=(2, 5, 6))


class TorchAttention(torch.nn.Module):
    """Attention of two heads, its projections packed into one or apart."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        sizes = [18] if packed else [6, 6, 6]
        self.into = torch.nn.ModuleList([torch.nn.Linear(6, size) for size in sizes])
        self.out = torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = torch.cat([layer(x) for layer in self.into], -1)
        q, k, v = qkv.reshape(2, 5, 3, 2, 3).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 3**0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(2, 5, 6))


class TorchNet(torch.nn.Module):
    """Two layers in a row, and a head."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([TorchBlock(packed) for _ in range(2)])
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class TorchBlock(torch.nn.Module):
    """A norm before attention, a residual connection."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.norm, self.attn = torch.nn.LayerNorm(6), TorchAttention(packed)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attn(self.norm(x))


class Attention(paddle.nn.Layer):
    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.query, self.key, self.value = (paddle.nn.Linear(6, 6) for _ in range(3))
        self.proj = paddle.nn.Linear(6, 6)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        q, k, v = (
            layer(x).reshape([2, 5, 2, 3]).transpose([0, 2, 1, 3])
            for layer in (self.query, self.key, self.value)
        )
        size = {"width": 6, "number": 2}.get(self.slip, 3)
        scores = paddle.matmul(q, k, transpose_y=True)
        scores = scores * 2**-0.5 if self.slip == "factor" else scores / size**0.5
        mixed = paddle.matmul(paddle.nn.functional.softmax(scores), v)
        return self.proj(mixed.transpose([0, 2, 1, 3]).reshape([2, 5, 6]))


class Block(paddle.nn.Layer):
    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.ln, self.attention = paddle.nn.LayerNorm(6), Attention(slip)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if self.slip == "post-norm":
            return self.ln(x + self.attention(x))
        return x + self.attention(self.ln(x))


class Net(paddle.nn.Layer):
    def __init__(self, slip: str) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([Block(slip) for _ in range(2)])
        self.classifier = paddle.nn.Linear(6, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x)


PARTS = {
    "blocks.{}.norm": "layers.{}.ln",
    "blocks.{}.attn.out": "layers.{}.attention.proj",
    "head": "classifier",
}


def compared(slip: str, packed: bool) -> Outcome:
    """The port with one slip, against projections that are packed or apart."""
    table: dict[str, Any] = {}
    for end in ("weight", "bias"):
        table |= {f"{a}.{end}": f"{b}.{end}" for a, b in PARTS.items()}
        ends = [f"layers.{{}}.attention.{name}.{end}" for name in ("query", "key", "value")]
        if packed:
            table[f"blocks.{{}}.attn.into.0.{end}"] = ends
        else:
            table |= {f"blocks.{{}}.attn.into.{i}.{end}": target for i, target in enumerate(ends)}
    return align.compare(
        lambda: TorchNet(packed), lambda: Net(slip), TOKENS, weights=table, dtype="float64"
    )


@pytest.mark.parametrize("packed", [True, False])
def test_who_gives_a_container_the_wrong_is_blamed(packed: bool) -> None:
    assert compared("", packed).passed
    result = compared("post-norm", packed)
    assert [layer.place for layer in result.guilty] == ["layers.0", "layers.1"], str(result)
    assert result.root.cause == (
        "order of the layers: Paddle calls layers.0.attention before layers.0.ln, PyTorch "
        "layers.0.ln before layers.0.attention"
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("slip", "cause"),
    [
        ("width", "scale of the attention scores: Paddle divides by the root of 6, PyTorch of 3"),
        ("number", "number of divide: Paddle 1.41421, PyTorch 1.73205; with PyTorch's it agrees"),
        ("factor", "number of multiply: Paddle 0.707107, PyTorch 0.57735; with PyTorch's"),
    ],
)
def test_a_wrong_number_in_a_container_is_named(slip: str, cause: str, packed: bool) -> None:
    result = compared(slip, packed)
    assert result.root.place == "layers.0.attention"
    assert result.root.cause.startswith(cause), str(result)


class TorchGate(torch.nn.Module):
    """A gate and what it lets through."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.a(x)) * torch.tanh(self.b(x))


class TorchGated(torch.nn.Module):
    """A norm, a gate, a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.gate = torch.nn.LayerNorm(6), TorchGate()
        self.norm = torch.nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.gate(self.before(x)))


class Gate(paddle.nn.Layer):
    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip = slip
        self.one, self.two = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 6)

    def forward(self, x: paddle.Tensor, shortcut: paddle.Tensor | None = None) -> paddle.Tensor:
        one, two = self.one(x), self.two(x)
        if self.slip == "swapped":
            one, two = two, one
        mixed = paddle.nn.functional.sigmoid(one) * paddle.tanh(two)
        if "turned" in self.slip:
            return mixed.transpose([1, 0, 2])
        return mixed if shortcut is None else shortcut + mixed


class Gated(paddle.nn.Layer):
    """Its port; the gate adds the shortcut, too, where it is "inside", or swaps two axes."""

    def __init__(self, slip: str) -> None:
        super().__init__()
        self.slip, epsilon = slip, 1e-3 if "epsilon" in slip else 1e-5
        self.first = paddle.nn.LayerNorm(6, epsilon=epsilon)
        self.mixer, self.last = Gate(slip), paddle.nn.LayerNorm(6)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if "inside" in self.slip:
            return self.last(self.mixer(self.first(x), x))
        mixed = self.mixer(self.first(x))
        return self.last(x + (mixed.transpose([1, 0, 2]) if "turned" in self.slip else mixed))


@pytest.mark.parametrize(
    ("slip", "places", "is_compared"),
    [
        ("", [], True),
        ("swapped", ["mixer"], True),
        ("inside", [], False),
        ("inside, epsilon", ["first"], False),
        ("turned, epsilon", ["first"], False),
    ],
)
def test_a_container_is_compared_where_it_does_the_same_part(slip, places, is_compared) -> None:
    pairs = {"before": "first", "gate.a": "mixer.one", "gate.b": "mixer.two", "norm": "last"}
    result = align.compare(
        TorchGated, lambda: Gated(slip), TOKENS, weights=pairs, dtype="float64", inject=True
    )
    assert [layer.place for layer in result.guilty if layer.step == "forward"] == places, str(
        result
    )
    assert ("its outputs are not compared" in " ".join(result.notes)) is not is_compared
