"""Weights by name and table: what maps by itself, drafts, refusals."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.commands.dumps import rows_of_table
from align.match.name_table import read_table
from sot_paddle.convert import ConversionPlan, PlanEntry
from tests.align.small_pairs import linears, model_of

X = np.random.default_rng(3).normal(size=(2, 5, 6))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """A draft goes to the working folder when `out` is not given."""
    monkeypatch.chdir(tmp_path)


def outcome(theirs, ours, inputs=X, **options):
    return align.compare(theirs, ours, inputs, dtype="float64", **options)


def fused() -> torch.nn.Module:
    """Attention with one fused projection, twice."""

    def attend(block, x):
        q, k, v = block.qkv(x).split(6, -1)
        return x + block.proj((q @ k.transpose(1, 2)).softmax(-1) @ v)

    blocks = [
        model_of(torch, attend, qkv=torch.nn.Linear(6, 18), proj=torch.nn.Linear(6, 6))
        for _ in range(2)
    ]
    return torch.nn.Sequential(OrderedDict(blocks=torch.nn.Sequential(*blocks)))


def split() -> nn.Layer:
    """The port of `fused` with three projections."""

    def attend(block, x):
        q, k, v = block.query(x), block.key(x), block.value(x)
        weights = nn.functional.softmax(q @ k.transpose([0, 2, 1]), -1)
        return x + block.output(weights @ v)

    names = "query key value output"
    blocks = [model_of(paddle, attend, **linears(paddle, names, 6, 6)) for _ in range(2)]
    return nn.Sequential(("layers", nn.Sequential(*blocks)))


FUSED = {
    "blocks.{}.qkv.weight": [f"layers.{{}}.{n}.weight" for n in ("query", "key", "value")],
    "blocks.{}.qkv.bias": [f"layers.{{}}.{n}.bias" for n in ("query", "key", "value")],
    "blocks.{}.proj": "layers.{}.output",
}


def test_a_fused_projection_goes_to_three_by_table() -> None:
    result = outcome(fused(), split(), weights=FUSED, optimizer="sgd", steps=2)
    assert result.passed, str(result)
    assert "layers.0.query" in result.paddle_only
    assert "blocks.0.qkv" in result.torch_only


def conversion_plan(reverse: bool, order: str = "01") -> ConversionPlan:
    """A user's layout of two square layers as a conversion would follow it."""
    entries = []
    for torch_layer, paddle_layer in enumerate(order):
        for leaf, kind, transform in (("weight", "linear", "transpose"), ("bias", "bias", "copy")):
            ends = (f"{torch_layer}.{leaf}", f"{paddle_layer}.{leaf}")
            source, destination = reversed(ends) if reverse else ends
            entries.append(PlanEntry(source, destination, transform, (), (), kind))
    return ConversionPlan("own", "own", "", reverse, 2, "", tuple(entries), {}, (), (), {})


def two_layers(framework) -> torch.nn.Module | nn.Layer:
    """Two square layers of either framework."""
    return framework.Sequential(framework.Linear(6, 6), framework.Linear(6, 6))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_conversion_plan_is_a_mapping_in_either_direction(reverse) -> None:
    plan = conversion_plan(reverse)
    assert outcome(two_layers(torch.nn), two_layers(nn), weights=plan).passed


def test_a_wrong_entry_of_a_conversion_plan_fails() -> None:
    plan = conversion_plan(False, order="10")
    assert not outcome(two_layers(torch.nn), two_layers(nn), weights=plan).passed
    plan = conversion_plan(False)
    extra = PlanEntry("2.weight", "2.weight", "copy", (), (), "bias")
    longer = dataclasses.replace(plan, entries=(*plan.entries, extra))
    with pytest.raises(ValueError, match="the row '2.weight' of the plan of own matches"):
        outcome(two_layers(torch.nn), two_layers(nn), weights=longer)


def test_three_projections_go_to_a_fused_one_by_pieces() -> None:
    def join(model, x):
        return torch.cat([part(x) for part in model.parts], -1)

    parts = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))
    pair = model_of(torch, join, parts=parts), nn.Sequential(("qkv", nn.Linear(6, 18)))
    table = {
        f"parts.{i}.{leaf}": f"qkv.{leaf}[{i}/3]" for i in range(3) for leaf in ("weight", "bias")
    }
    assert outcome(*pair, weights=table).passed
    del table["parts.2.bias"]
    with pytest.raises(ValueError, match="no partner"):
        outcome(*pair, weights=table)


def test_names_that_do_not_match_are_refused_with_a_draft_that_works(tmp_path) -> None:
    with pytest.raises(ValueError, match="8 of 8 PyTorch tensors") as caught:
        outcome(fused(), split(), out=tmp_path)
    path = tmp_path / "weights_draft.json"
    assert str(path) in str(caught.value)
    draft = json.loads(path.read_text(encoding="utf-8"))
    assert draft["map"]["blocks.{}.qkv.weight"] == FUSED["blocks.{}.qkv.weight"]
    assert outcome(fused(), split(), weights=path).passed
    begun = dict(list(FUSED.items())[:1])  # a part of the table: its draft takes its place
    with pytest.raises(ValueError, match="6 of 8 PyTorch tensors"):
        outcome(fused(), split(), weights=begun, out=tmp_path / "begun")
    assert outcome(fused(), split(), weights=tmp_path / "begun" / path.name).passed
    path.write_text("{}")  # an edited draft is not replaced
    with pytest.raises(ValueError, match="weights_draft_2.json, beside an older one"):
        outcome(fused(), split(), out=tmp_path)


def test_a_draft_marks_what_names_and_order_do_not_settle(tmp_path) -> None:
    theirs = torch.nn.ModuleDict({"alpha": torch.nn.Linear(6, 6), "beta": torch.nn.Linear(6, 6)})
    ours = nn.LayerDict({"beta_fc": nn.Linear(6, 6), "alpha_fc": nn.Linear(6, 6)})
    with pytest.raises(ValueError, match="4 marked"):
        outcome(theirs, ours, out=tmp_path)
    path = tmp_path / "weights_draft.json"
    row = json.loads(path.read_text(encoding="utf-8"))["map"]["alpha.weight"]
    assert row.startswith("? ")
    assert "alpha_fc.weight" in row
    with pytest.raises(ValueError, match="still marked"):
        outcome(theirs, ours, weights=path)


@pytest.mark.parametrize(
    ("biased", "section", "lacking"),
    [(0, "ignore_torch", "Paddle"), (1, "ignore_paddle", "PyTorch")],
)
def test_a_draft_lists_what_one_side_lacks_and_can_be_passed(
    biased, section, lacking, tmp_path
) -> None:
    theirs = torch.nn.Linear(6, 6, bias=biased == 0)
    ours = nn.Linear(6, 6, bias_attr=None if biased == 1 else False)
    with pytest.raises(ValueError, match="0 rows, 1 marked"):
        outcome(theirs, ours, out=tmp_path)
    path = tmp_path / "weights_draft.json"
    draft = json.loads(path.read_text(encoding="utf-8"))
    assert draft[section] == {"bias": f"? no {lacking} tensor fits it"}
    result = outcome(theirs, ours, weights=path)
    assert not result.passed  # the bias is there on one side only
    assert any("bias" in note for note in result.notes)


def test_a_table_in_yaml_with_sections(tmp_path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text("map: {a: b}\nignore_torch: {scale: not used}\n")
    theirs = torch.nn.Sequential()
    theirs.a = torch.nn.Linear(6, 6)
    theirs.register_buffer("scale", torch.ones(1))
    ours = nn.Sequential()
    ours.b = nn.Linear(6, 6)
    result = outcome(theirs, ours, weights=path)
    assert result.passed, str(result)
    assert any("not used" in note for note in result.notes)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"weight": "wieght"}, "wieght: no such Paddle tensor"),
        ({"wieght": "weight"}, "the row 'wieght' of weights matches nothing"),
        ({"weight": "bias"}, "does not fit after 'copy'"),
        ({"weight": {"to": "weight", "transform": "rotate"}}, "transform 'rotate'"),
        ({"weight": None}, "no partner"),
        ({"weight": "? weight"}, "still marked"),
        ({"map": {}, "more": {}}, "unknown section 'more'"),
        ({"map": {}, "modules": {"0": ["a"]}}, "the module '0' has .* the name of a Paddle module"),
        ({"weight": ("weight", lambda w: -w)}, "weight: its function may put the numbers"),
        ({"weight": ("weight", lambda w: w[:, [0, 0, 1, 2, 3, 4]])}, "drops or repeats some"),
        (
            {"weight": ("weight", lambda w: w.permute(1, 0))},
            "weight: its function raised Attribute",
        ),
        ({"weight": ("weight", lambda w: w.reshape(-1))}, "does not fit after 'its function'"),
        (5, "expected a dict of names or a table file"),
        ("missing.json", "cannot read missing.json"),
    ],
)
def test_mistakes_in_a_table_are_named(table, message, tmp_path) -> None:
    with pytest.raises(ValueError, match=message):
        outcome(torch.nn.Linear(6, 6), nn.Linear(6, 6), weights=table, out=tmp_path)


def torch_heads() -> torch.nn.Module:
    """A projection of 2 heads that holds (heads, in, out)."""

    def project(model, x):
        return torch.einsum("bni,hio->bnho", x, model.heads[0]).flatten(2)

    heads = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(2, 6, 4))])
    return model_of(torch, project, heads=heads)


def paddle_heads() -> nn.Layer:
    """Its port with one matrix (in, heads * out)."""
    return nn.Sequential(("dense", nn.Linear(6, 8, bias_attr=False)))


@pytest.mark.parametrize("right", [True, False])
def test_a_function_moves_weight_gradient_and_state_of_the_optimizer(right) -> None:
    def in_one_matrix(w):
        return (w.transpose(1, 0, 2) if right else w).reshape(6, 8)

    table = {"heads.{}": ("dense.weight", in_one_matrix)}
    result = outcome(torch_heads, paddle_heads, weights=table, optimizer="adamw", steps=2)
    assert result.passed is right, str(result)
    names = {one.step: {c.name for c in one.comparisons} for one in result.report.results}
    assert "dense.weight" in names["backward"]
    if right:
        assert "moment1/dense.weight" in names["optimizer"], names


def test_containers_pair_by_their_parameters_where_they_return_the_same() -> None:
    def block(model, x):
        return x + model.mlp(x + model.attention(x)).relu()

    def ported(model, x):
        return x + model.inner(x + model.mixing(x))

    def first(f):
        return f.nn.Sequential(f.nn.Linear(6, 5), f.nn.Linear(5, 6))

    mlp = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 6))
    inner = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 6), nn.ReLU())
    theirs = model_of(torch, block, attention=first(torch), mlp=mlp)
    ours = model_of(paddle, ported, mixing=first(paddle), inner=inner)
    names = {"attention": "mixing", "mlp": "inner"}
    table = {f"{a}.{i}": f"{b}.{i}" for a, b in names.items() for i in (0, 1)}
    result = outcome(theirs, ours, weights=table, inject=True)
    assert result.passed, str(result)
    names = {c.name for one in result.report.results for c in one.comparisons}
    assert {"mixing", "gradient at mixing"} <= names
    assert "inner" not in names
    assert any(note.startswith("inner: returns something else than mlp") for note in result.notes)


@pytest.mark.parametrize("weights", ["draft", {"a": ("b", np.transpose)}])
def test_a_dump_takes_no_function_and_no_draft(weights) -> None:
    with pytest.raises(ValueError, match="a dump holds names and named transforms only"):
        rows_of_table(read_table(weights))


def torch_two() -> torch.nn.Module:
    parts = linears(torch, "alpha beta", 6, 6)
    return model_of(torch, lambda model, x: model.beta(model.alpha(x).tanh()), **parts)


def paddle_two(reverse: bool) -> nn.Layer:
    """Its port with other names; the second layer is written by hand."""
    parts = {"one": nn.Linear(6, 6), "last": Matrix()}
    parts = dict(reversed(parts.items())) if reverse else parts
    return model_of(paddle, lambda model, x: model.last(paddle.tanh(model.one(x))), **parts)


class Matrix(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = self.create_parameter([6, 6]), self.create_parameter([6])

    def forward(self, x):
        return x @ self.weight + self.bias


@pytest.mark.parametrize("reverse", [False, True])
def test_the_first_candidates_of_a_draft_are_proved_by_the_comparison(reverse, tmp_path) -> None:
    result = outcome(torch_two, lambda: paddle_two(reverse), weights="draft", out=tmp_path)
    assert result.passed is not reverse, str(result)
    (note,) = [note for note in result.notes if "first candidates" in note]
    assert str(tmp_path / "weights_draft.json") in note
    assert ("1 of its 4 rows" if reverse else "4 of its 4 rows") in note
    assert "alpha.weight" in note


def test_a_custom_layer_against_a_linear_one_must_say_which_way_round(tmp_path) -> None:
    with pytest.raises(ValueError, match="do not say whether to transpose"):
        outcome(torch.nn.Linear(6, 6), Matrix(), out=tmp_path)
    right = {"weight": {"to": "weight", "transform": "transpose"}}
    assert outcome(torch.nn.Linear(6, 6), Matrix(), weights=right).passed
    wrong = {"weight": {"to": "weight", "transform": "copy"}}
    first = outcome(torch.nn.Linear(6, 6), Matrix(), weights=wrong).first_divergence
    assert first.cause == "the table copies weight where it has to transpose"


def test_the_frameworks_own_attention_and_recurrent_layers_map_by_themselves() -> None:
    theirs = torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    assert outcome(theirs, nn.TransformerEncoderLayer(6, 2, 8)).passed
    recurrent = torch.nn.LSTM(6, 4, batch_first=True), nn.LSTM(6, 4)
    assert outcome(*recurrent, train=True).passed
    assert outcome(*recurrent).passed


def bilinear(model, x):
    x = model.conv(x)[:, :, 0]
    return model.both(model.lin(x), model.bounded(x))


def torch_normed() -> torch.nn.Module:
    """Weights split by a weight norm and a spectral norm, and a bilinear layer."""
    weight_norm, spectral_norm = torch.nn.utils.weight_norm, torch.nn.utils.spectral_norm
    parts = {
        "conv": weight_norm(torch.nn.Conv1d(5, 6, 3)),
        "lin": weight_norm(torch.nn.Linear(6, 4)),
        "bounded": spectral_norm(torch.nn.Linear(6, 3)),
    }
    return model_of(torch, bilinear, **parts, both=torch.nn.Bilinear(4, 3, 2))


def paddle_normed(axis: int = 1) -> nn.Layer:
    """The port: a factor for each output is a vector here, a bilinear bias a row."""
    parts = {
        "conv": nn.utils.weight_norm(nn.Conv1D(5, 6, 3)),
        "lin": nn.utils.weight_norm(nn.Linear(6, 4), dim=axis),
        "bounded": nn.utils.spectral_norm(nn.Linear(6, 3)),
    }
    return model_of(paddle, bilinear, **parts, both=nn.Bilinear(4, 3, 2))


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_normed_and_bilinear_weights_map_by_themselves() -> None:
    options = {"train": True, "optimizer": "adamw", "steps": 2}
    assert outcome(torch_normed, paddle_normed, **options).passed
    mistake = "weights: 1 mistake: lin.weight_g of shape \\(4, 1\\) -> lin.weight_g of shape \\(6,"
    with pytest.raises(ValueError, match=mistake):
        outcome(torch_normed, lambda: paddle_normed(0))


def test_the_paddle_side_is_not_changed_by_a_refusal(tmp_path) -> None:
    ours = nn.Linear(6, 6)
    before = ours.weight.numpy().copy()
    with pytest.raises(ValueError, match="no partner"):
        outcome(torch.nn.Conv1d(6, 6, 1, bias=False), ours, out=tmp_path)
    assert np.array_equal(ours.weight.numpy(), before)
    assert paddle.get_default_dtype() == "float32"


def torch_block() -> torch.nn.Module:
    def forward(model, x):
        y = model.norm(x)
        return x + model.attn(y, y, y, need_weights=False)[0]

    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    return model_of(torch, forward, norm=torch.nn.LayerNorm(8), attn=attention)


def packed_block(size: int = 4) -> nn.Layer:
    """Keys, queries and values by one linear layer."""

    def attend(model, x):
        q, k, v = model.qkv(x).reshape([2, 5, 3, 2, 4]).transpose([2, 0, 3, 1, 4]).unbind(0)
        a = nn.functional.softmax(q @ k.transpose([0, 1, 3, 2]) / size**0.5, axis=-1)
        return model.out((a @ v).transpose([0, 2, 1, 3]).reshape(x.shape))

    def forward(model, x):
        return x + model.attention(model.norm(x))

    attention = model_of(paddle, attend, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))
    return model_of(paddle, forward, norm=nn.LayerNorm(8), attention=attention)


PACKED = {
    "attn.in_proj_weight": "attention.qkv.weight",
    "attn.in_proj_bias": "attention.qkv.bias",
    "attn.out_proj": "attention.out",
}


def test_a_packed_attention_is_the_layer_that_holds_all_its_tensors() -> None:
    options = {"weights": PACKED, "inject": True}
    inputs = np.random.default_rng(0).normal(size=(2, 5, 8))
    right = outcome(torch_block(), packed_block(), inputs, **options)
    assert right.passed
    assert not any("which changes nothing" in note for note in right.notes)
    wrong = outcome(torch_block(), packed_block(8), inputs, **options)
    assert wrong.root.place == "attention"
    assert wrong.root.cause.startswith("scale of the attention scores: Paddle divides by the root")
