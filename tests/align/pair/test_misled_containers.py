"""Containers of another name than their partner's: who is blamed when one is given the wrong."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import align
from align.commands.steps import Outcome
from tests.align.small_pairs import linears, model_of

TOKENS = np.random.default_rng(4).normal(size=(2, 5, 6))


def torch_attention(packed: bool) -> torch.nn.Module:
    """Attention of two heads, its projections packed into one or apart."""

    def attend(model, x):
        qkv = torch.cat([layer(x) for layer in model.into], -1)
        q, k, v = qkv.reshape(2, 5, 3, 2, 3).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 3**0.5, -1)
        return model.out((weights @ v).transpose(1, 2).reshape(2, 5, 6))

    into = [torch.nn.Linear(6, size) for size in ([18] if packed else [6, 6, 6])]
    return model_of(torch, attend, into=torch.nn.ModuleList(into), out=torch.nn.Linear(6, 6))


def torch_net(packed: bool) -> torch.nn.Module:
    """Two layers with a norm before attention and a residual connection, and a head."""

    def forward(block, x):
        return x + block.attn(block.norm(x))

    blocks = [
        model_of(torch, forward, norm=torch.nn.LayerNorm(6), attn=torch_attention(packed))
        for _ in range(2)
    ]
    parts = {"blocks": torch.nn.Sequential(*blocks), "head": torch.nn.Linear(6, 3)}
    return torch.nn.Sequential(OrderedDict(parts))


def paddle_attention(slip: str) -> paddle.nn.Layer:
    def attend(model, x):
        q, k, v = (
            layer(x).reshape([2, 5, 2, 3]).transpose([0, 2, 1, 3])
            for layer in (model.query, model.key, model.value)
        )
        size = {"width": 6, "number": 2}.get(slip, 3)
        scores = paddle.matmul(q, k, transpose_y=True)
        scores = scores * 2**-0.5 if slip == "factor" else scores / size**0.5
        mixed = paddle.matmul(paddle.nn.functional.softmax(scores), v)
        return model.proj(mixed.transpose([0, 2, 1, 3]).reshape([2, 5, 6]))

    return model_of(paddle, attend, **linears(paddle, "query key value proj", 6, 6))


def paddle_net(slip: str) -> paddle.nn.Layer:
    def forward(block, x):
        if slip == "post-norm":
            return block.ln(x + block.attention(x))
        return x + block.attention(block.ln(x))

    blocks = [
        model_of(paddle, forward, ln=paddle.nn.LayerNorm(6), attention=paddle_attention(slip))
        for _ in range(2)
    ]
    parts = ("layers", paddle.nn.Sequential(*blocks)), ("classifier", paddle.nn.Linear(6, 3))
    return paddle.nn.Sequential(*parts)


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
        lambda: torch_net(packed), lambda: paddle_net(slip), TOKENS, weights=table, dtype="float64"
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


def torch_gated() -> torch.nn.Module:
    """A norm, a gate of two layers, a norm."""

    def gate(model, x):
        return torch.sigmoid(model.a(x)) * torch.tanh(model.b(x))

    def forward(model, x):
        return model.norm(x + model.gate(model.before(x)))

    norms = {name: torch.nn.LayerNorm(6) for name in ("before", "norm")}
    inner = model_of(torch, gate, **linears(torch, "a b", 6, 6))
    return model_of(torch, forward, gate=inner, **norms)


def paddle_gated(slip: str) -> paddle.nn.Layer:
    """Its port; the gate adds the shortcut, too, where it is "inside", or swaps two axes."""

    def gate(model, x, shortcut=None):
        one, two = model.one(x), model.two(x)
        if slip == "swapped":
            one, two = two, one
        mixed = paddle.nn.functional.sigmoid(one) * paddle.tanh(two)
        if "turned" in slip:
            return mixed.transpose([1, 0, 2])
        return mixed if shortcut is None else shortcut + mixed

    def forward(model, x):
        if "inside" in slip:
            return model.last(model.mixer(model.first(x), x))
        mixed = model.mixer(model.first(x))
        return model.last(x + (mixed.transpose([1, 0, 2]) if "turned" in slip else mixed))

    first = paddle.nn.LayerNorm(6, epsilon=1e-3 if "epsilon" in slip else 1e-5)
    mixer = model_of(paddle, gate, **linears(paddle, "one two", 6, 6))
    return model_of(paddle, forward, first=first, mixer=mixer, last=paddle.nn.LayerNorm(6))


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
        torch_gated, lambda: paddle_gated(slip), TOKENS, weights=pairs, dtype="float64", inject=True
    )
    assert [layer.place for layer in result.guilty if layer.step == "forward"] == places, str(
        result
    )
    assert ("its outputs are not compared" in " ".join(result.notes)) is not is_compared


def masking(f, wrong: str = ""):
    """Blocks that add a mask to their scores; the model makes it of a flag for each token."""

    def block(model, x, mask):
        scores = model.fc(x) @ f.swapaxes(x, 1, 2) + mask  # (B, N, N)
        return f.nn.functional.softmax(scores, -1) @ x

    def forward(model, x, keep):
        flags = keep.to(x.dtype) if f is torch else keep.astype(x.dtype)
        mask = (1 - flags[:, None]) * (-1.0 if wrong == "weak" else -1e9)  # (B, 1, N)
        if wrong == "inverted":  # of the first row
            mask = f.concat([(flags[:1, None]) * -1e9, mask[1:]])
        return model.second(model.first(x, mask), mask)

    blocks = {n: model_of(f, block, fc=f.nn.Linear(6, 6)) for n in ("first", "second")}
    return model_of(f, forward, **blocks)


KEEP = np.array([[1, 1, 1, 0], [1, 1, 0, 0]])


@pytest.mark.parametrize(("wrong", "hides"), [("inverted", 5), ("weak", 0)])
def test_who_makes_a_wrong_mask_is_named_not_who_adds_it(wrong: str, hides: int) -> None:
    tokens = np.random.default_rng(0).normal(size=(2, 4, 6))
    inputs = tokens, KEEP
    assert align.compare(masking(torch), masking(paddle), inputs, dtype="float64").passed
    result = align.compare(masking(torch), masking(paddle, wrong), inputs, dtype="float64")
    says = f"first is given a mask that hides other places: {hides} of 8 places, in PyTorch 3"
    assert [(f.place, f.cause) for f in result.findings[:1]] == [("(model)", says)]
    assert [layer.place for layer in result.guilty] == ["(model)"]
