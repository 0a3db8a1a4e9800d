"""Which rows a draft of a table begins with, and layers that have two names."""

from __future__ import annotations

import json

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from tests.align.small_pairs import linears, model_of

X = np.random.default_rng(3).normal(size=(2, 5, 6))


def drafted(theirs, ours, inputs, folder) -> dict:
    """The draft of the table by which a pair passes."""
    options = {"dtype": "float64", "weights": "draft", "out": folder}
    result = align.compare(theirs, ours, inputs, **options)
    assert result.passed, str(result)
    return json.loads((folder / "weights_draft.json").read_text(encoding="utf-8"))


def torch_stack() -> torch.nn.Module:
    """Two blocks of three projections and two norms, then a norm."""

    def forward(model, x):
        for layer in model.layers:
            x = layer["self_attn_layer_norm"](x + layer["k_proj"](x) * layer["q_proj"](x))
            x = layer["final_layer_norm"](layer["v_proj"](x).tanh())
        return model.layer_norm(x)

    norms = ("self_attn_layer_norm", "final_layer_norm")
    layers = torch.nn.ModuleList(
        torch.nn.ModuleDict(
            linears(torch, "k_proj v_proj q_proj", 6, 6)
            | {name: torch.nn.LayerNorm(6) for name in norms}
        )
        for _ in range(2)
    )
    return model_of(torch, forward, layers=layers, layer_norm=torch.nn.LayerNorm(6))


def paddle_stack() -> nn.Layer:
    """Its port: the last norm and the query are registered first, norms have other names."""

    def forward(model, x):
        for layer in model.blocks:
            x = layer["norm1"](x + layer["k_proj"](x) * layer["q_proj"](x))
            x = layer["norm2"](paddle.tanh(layer["v_proj"](x)))
        return model.encoder_layernorm(x)

    blocks = nn.LayerList(
        nn.LayerDict(
            linears(paddle, "q_proj k_proj v_proj", 6, 6)
            | {name: nn.LayerNorm(6) for name in ("norm1", "norm2")}
        )
        for _ in range(2)
    )
    return model_of(paddle, forward, encoder_layernorm=nn.LayerNorm(6), blocks=blocks)


def test_a_draft_goes_by_equal_words_and_by_order_within_equal_indices(tmp_path) -> None:
    draft = drafted(torch_stack, paddle_stack, X, tmp_path)["map"]
    assert draft["layers.{}.k_proj.weight"] == "blocks.{}.k_proj.weight"
    assert draft["layers.1.final_layer_norm.bias"].startswith("? blocks.1.norm2.bias | ")


def torch_packed() -> torch.nn.Module:
    """A packed projection and a batch norm of the same width."""

    def forward(model, x):
        q, k, v = model.to_qkv(model.stem_bn(x)).chunk(3, dim=-1)
        return q * k.tanh() + v

    parts = {"stem_bn": torch.nn.BatchNorm1d(6), "to_qkv": torch.nn.Linear(6, 18)}
    return model_of(torch, forward, **parts)


def paddle_split(biased: bool = True) -> nn.Layer:
    """Its port with three projections, one of which lacks a bias if that is asked for."""

    def forward(model, x):
        x = model.bn(x)
        return model.q(x) * paddle.tanh(model.k(x)) + model.v(x)

    parts = {"bn": nn.BatchNorm1D(6), **linears(paddle, "q k", 6, 6)}
    return model_of(
        paddle, forward, **parts, v=nn.Linear(6, 6, bias_attr=None if biased else False)
    )


def test_a_packed_bias_goes_to_the_projections_not_to_a_norm_of_their_width(tmp_path) -> None:
    draft = drafted(torch_packed, paddle_split, X[0], tmp_path)["map"]
    assert draft["to_qkv.bias"] == ["q.bias", "k.bias", "v.bias"]


def test_a_draft_that_leaves_tensors_of_both_sides_alone_proves_nothing(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"no partner for PyTorch's to_qkv.bias, .*pair them"):
        align.compare(
            torch_packed, lambda: paddle_split(biased=False), X[0], weights="draft", out=tmp_path
        )


def torch_bare() -> torch.nn.Module:
    """Blocks of two bare matrices, used as a linear layer's, and a linear layer."""

    def forward(model, x):
        for block in model.blocks:
            x = (x @ block.wq.T) * (x @ block.wk.T).tanh() + block.wv(x).sin()
        return x

    blocks = torch.nn.ModuleList(torch.nn.Module() for _ in range(2))
    for block in blocks:
        block.wq, block.wk = (torch.nn.Parameter(torch.randn(6, 6)) for _ in "qk")
        block.wv = torch.nn.Linear(6, 6, bias=False)
    return model_of(torch, forward, blocks=blocks)


def paddle_linear() -> nn.Layer:
    """Its port with three linear layers in a block."""
    names = ("query", "key", "value")

    def forward(model, x):
        for layer in model.stack:
            q, k, v = (layer[name](x) for name in names)
            x = q * paddle.tanh(k) + paddle.sin(v)
        return x

    blocks = [{name: nn.Linear(6, 6, bias_attr=False) for name in names} for _ in range(2)]
    return model_of(paddle, forward, stack=nn.LayerList(map(nn.LayerDict, blocks)))


def test_a_draft_pairs_bare_matrices_with_linear_layers_that_stay_alone(tmp_path) -> None:
    draft = drafted(torch_bare, paddle_linear, X, tmp_path)
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
        align.compare(torch_bare, paddle_linear, X, weights=table)
    table["ignore_torch"] = dict.fromkeys(table["ignore_torch"], "the port has none")
    assert not align.compare(torch_bare, paddle_linear, X, dtype="float64", weights=table).passed


BARE, ALONE = ("wq", "wk"), ("query", "key")


@pytest.mark.parametrize("copied", [["wk"], ["wq", "wk"]])
def test_the_other_layout_of_a_row_is_tried_where_both_fit(copied) -> None:
    transforms = {name: "copy" if name in copied else "transpose" for name in BARE}
    rows = {
        f"blocks.{{}}.{name}": {"to": f"stack.{{}}.{other}.weight", "transform": transforms[name]}
        for name, other in zip(BARE, ALONE, strict=True)
    }
    weights = rows | {"blocks.{}.wv.weight": "stack.{}.value.weight"}
    result = align.compare(torch_bare, paddle_linear, X, dtype="float64", weights=weights)
    says = "the table copies blocks.0.{0}, blocks.1.{0} where it has to transpose"
    assert result.root.cause == "; ".join(map(says.format, copied)), str(result)


def torch_tagger() -> torch.nn.Module:
    """A recurrent layer, whose cells have two names in Paddle, and an output tied to the input."""
    parts = {"words": torch.nn.Embedding(9, 6), "rnn": torch.nn.GRU(6, 6, batch_first=True)}
    parts["out"] = torch.nn.Linear(6, 9, bias=False)
    parts["out"].weight = parts["words"].weight
    return model_of(torch, lambda model, ids: model.out(model.rnn(model.words(ids))[0]), **parts)


def paddle_tagger() -> nn.Layer:
    """Its port under other names."""

    def forward(model, ids):
        states, _ = model.encoder(model.embedding(ids))
        return paddle.matmul(states, model.embedding.weight.T)

    return model_of(paddle, forward, embedding=nn.Embedding(9, 6), encoder=nn.GRU(6, 6))


def test_second_names_of_a_tensor_that_is_paired_are_left_alone(tmp_path) -> None:
    ids = np.random.default_rng(0).integers(0, 9, (2, 5))
    draft = drafted(torch_tagger, paddle_tagger, ids, tmp_path)
    assert draft["ignore_torch"] == draft["ignore_paddle"] == {}


def tied(f) -> torch.nn.Module | nn.Layer:
    """Two names of one layer in Paddle, that doubles what it is given; tied layers in PyTorch."""
    first, second, shared = (f.nn.Linear(6, 6) for _ in range(3))
    if f is torch:
        first.weight, first.bias = shared.weight, shared.bias
    else:
        first = shared

    def forward(model, x):
        return model.inner["second"]((1 if f is torch else 2) * model.inner["first"](x))

    inner = (torch.nn.ModuleDict if f is torch else nn.LayerDict)(
        {"first": first, "second": second}
    )
    return model_of(f, forward, shared=shared, inner=inner)


def test_a_second_name_of_a_layer_is_no_layer_that_is_never_called() -> None:
    result = align.compare(tied(torch), tied(paddle), X, dtype="float64")
    assert not result.passed
    assert "called" not in result.root.cause, str(result)
    assert not [note for note in result.notes if "inner.first: called" in note]
