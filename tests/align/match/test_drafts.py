"""Which rows a draft of a table begins with, and layers that have two names."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align

X = np.random.default_rng(3).normal(size=(2, 5, 6))


class TorchStack(torch.nn.Module):
    """Two blocks of three projections and two norms, then a norm."""

    def __init__(self) -> None:
        super().__init__()
        names = ("k_proj", "v_proj", "q_proj"), ("self_attn_layer_norm", "final_layer_norm")
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {name: torch.nn.Linear(6, 6) for name in names[0]}
                | {name: torch.nn.LayerNorm(6) for name in names[1]}
            )
            for _ in range(2)
        )
        self.layer_norm = torch.nn.LayerNorm(6)

    def forward(self, x):
        for layer in self.layers:
            x = layer["self_attn_layer_norm"](x + layer["k_proj"](x) * layer["q_proj"](x))
            x = layer["final_layer_norm"](layer["v_proj"](x).tanh())
        return self.layer_norm(x)


class PaddleStack(nn.Layer):
    """Its port: the last norm and the query are registered first, norms have other names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder_layernorm = nn.LayerNorm(6)
        self.blocks = nn.LayerList(
            nn.LayerDict(
                {name: nn.Linear(6, 6) for name in ("q_proj", "k_proj", "v_proj")}
                | {name: nn.LayerNorm(6) for name in ("norm1", "norm2")}
            )
            for _ in range(2)
        )

    def forward(self, x):
        for layer in self.blocks:
            x = layer["norm1"](x + layer["k_proj"](x) * layer["q_proj"](x))
            x = layer["norm2"](paddle.tanh(layer["v_proj"](x)))
        return self.encoder_layernorm(x)


def test_a_draft_goes_by_equal_words_and_by_order_within_equal_indices(tmp_path) -> None:
    result = align.compare(
        TorchStack, PaddleStack, X, dtype="float64", weights="draft", out=tmp_path
    )
    assert result.passed, str(result)
    draft = json.loads((tmp_path / "weights_draft.json").read_text(encoding="utf-8"))["map"]
    assert draft["layers.{}.k_proj.weight"] == "blocks.{}.k_proj.weight"
    assert draft["layers.1.final_layer_norm.bias"].startswith("? blocks.1.norm2.bias | ")


class TorchPacked(torch.nn.Module):
    """A packed projection and a batch norm of the same width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem_bn = torch.nn.BatchNorm1d(6)
        self.to_qkv = torch.nn.Linear(6, 18)

    def forward(self, x):
        q, k, v = self.to_qkv(self.stem_bn(x)).chunk(3, dim=-1)
        return q * k.tanh() + v


class PaddleSplit(nn.Layer):
    """Its port with three projections, one of which lacks a bias if that is asked for."""

    def __init__(self, biased: bool = True) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1D(6)
        self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 6)
        self.v = nn.Linear(6, 6, bias_attr=None if biased else False)

    def forward(self, x):
        x = self.bn(x)
        return self.q(x) * paddle.tanh(self.k(x)) + self.v(x)


def test_a_packed_bias_goes_to_the_projections_not_to_a_norm_of_their_width(tmp_path) -> None:
    result = align.compare(
        TorchPacked, PaddleSplit, X[0], dtype="float64", weights="draft", out=tmp_path
    )
    assert result.passed, str(result)
    draft = json.loads((tmp_path / "weights_draft.json").read_text(encoding="utf-8"))["map"]
    assert draft["to_qkv.bias"] == ["q.bias", "k.bias", "v.bias"]


def test_a_draft_that_leaves_tensors_of_both_sides_alone_proves_nothing(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"no partner for PyTorch's to_qkv.bias, .*pair them"):
        align.compare(
            TorchPacked, lambda: PaddleSplit(biased=False), X[0], weights="draft", out=tmp_path
        )


class TorchBare(torch.nn.Module):
    """Blocks of two bare matrices, used as a linear layer's, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.Module() for _ in range(2))
        for block in self.blocks:
            block.wq, block.wk = (torch.nn.Parameter(torch.randn(6, 6)) for _ in "qk")
            block.wv = torch.nn.Linear(6, 6, bias=False)

    def forward(self, x):
        for block in self.blocks:
            x = (x @ block.wq.T) * (x @ block.wk.T).tanh() + block.wv(x).sin()
        return x


class PaddleLinear(nn.Layer):
    """Its port with three linear layers in a block."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.LayerList(
            nn.LayerDict({name: nn.Linear(6, 6, bias_attr=False) for name in WORDS})
            for _ in range(2)
        )

    def forward(self, x):
        for layer in self.stack:
            q, k, v = (layer[name](x) for name in WORDS)
            x = q * paddle.tanh(k) + paddle.sin(v)
        return x


WORDS = ("query", "key", "value")


def test_a_draft_pairs_bare_matrices_with_linear_layers_that_stay_alone(tmp_path) -> None:
    options = {"dtype": "float64", "weights": "draft", "out": tmp_path}
    result = align.compare(TorchBare, PaddleLinear, X, **options)
    assert result.passed, str(result)
    draft = json.loads((tmp_path / "weights_draft.json").read_text(encoding="utf-8"))
    row = draft["map"]["blocks.0.wq"]
    assert row["to"].startswith("? stack.0.query.weight | ")
    assert row["transform"] == "transpose"
    assert draft["ignore_torch"] == draft["ignore_paddle"] == {}


def test_a_table_that_leaves_out_what_may_be_partners_is_refused() -> None:
    table = {
        "map": {"blocks.{}.wv.weight": "stack.{}.value.weight"},
        "ignore_torch": {f"blocks.{{}}.{name}": "? no Paddle tensor fits it" for name in BARE},
        "ignore_paddle": {f"stack.{{}}.{name}": "? no PyTorch tensor fits it" for name in ALONE},
    }
    with pytest.raises(ValueError, match=r"no partner for PyTorch's blocks.0.wq, Paddle's stack"):
        align.compare(TorchBare, PaddleLinear, X, weights=table)
    table["ignore_torch"] = dict.fromkeys(table["ignore_torch"], "the port has none")
    assert not align.compare(TorchBare, PaddleLinear, X, dtype="float64", weights=table).passed


BARE, ALONE = ("wq", "wk"), ("query", "key")


@pytest.mark.parametrize("copied", [["wk"], ["wq", "wk"]])
def test_the_other_layout_of_a_row_is_tried_where_both_fit(copied) -> None:
    transforms = {name: "copy" if name in copied else "transpose" for name in BARE}
    rows = {
        f"blocks.{{}}.{name}": {"to": f"stack.{{}}.{other}.weight", "transform": transforms[name]}
        for name, other in zip(BARE, ALONE, strict=True)
    }
    weights = rows | {"blocks.{}.wv.weight": "stack.{}.value.weight"}
    result = align.compare(TorchBare, PaddleLinear, X, dtype="float64", weights=weights)
    says = "the table copies blocks.0.{0}, blocks.1.{0} where it has to transpose"
    assert result.root.cause == "; ".join(map(says.format, copied)), str(result)


class TorchTagger(torch.nn.Module):
    """A recurrent layer, whose cells have two names in Paddle, and an output tied to the input."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn = torch.nn.Embedding(9, 6), torch.nn.GRU(6, 6, batch_first=True)
        self.out = torch.nn.Linear(6, 9, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids):
        return self.out(self.rnn(self.words(ids))[0])


class PaddleTagger(nn.Layer):
    """Its port under other names."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(9, 6), nn.GRU(6, 6)

    def forward(self, ids):
        return paddle.matmul(self.encoder(self.embedding(ids))[0], self.embedding.weight.T)


def test_second_names_of_a_tensor_that_is_paired_are_left_alone(tmp_path) -> None:
    ids = np.random.default_rng(0).integers(0, 9, (2, 5))
    options = {"dtype": "float64", "weights": "draft", "out": tmp_path}
    result = align.compare(TorchTagger, PaddleTagger, ids, **options)
    assert result.passed, str(result)
    draft = json.loads((tmp_path / "weights_draft.json").read_text(encoding="utf-8"))
    assert draft["ignore_torch"] == draft["ignore_paddle"] == {}


class PaddleTied(nn.Layer):
    """One layer under two names, beside a layer that doubles what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(6, 6)
        self.inner = nn.LayerDict({"first": self.shared, "second": nn.Linear(6, 6)})

    def forward(self, x):
        return self.inner["second"](2 * self.inner["first"](x))


class TorchTied(torch.nn.Module):
    """Two layers that share their tensors; nothing is doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = torch.nn.Linear(6, 6)
        first, second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        first.weight, first.bias = self.shared.weight, self.shared.bias
        self.inner = torch.nn.ModuleDict({"first": first, "second": second})

    def forward(self, x):
        return self.inner["second"](self.inner["first"](x))


def test_a_second_name_of_a_layer_is_no_layer_that_is_never_called() -> None:
    result = align.compare(TorchTied, PaddleTied, X, dtype="float64")
    assert not result.passed
    assert "called" not in result.root.cause, str(result)
    assert not [note for note in result.notes if "inner.first: called" in note]
