"""Inject mode for the backward pass: every guilty layer, by its own backward pass alone."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.pair.any_pair import AnyPair
from align.pair.isolation_backward import BackwardIsolation
from align.stages.stages import isolated_backward
from tests.align.small_pairs import Scaled, linears, model_of, pair_in

X = np.random.default_rng(1).normal(size=(3, 4, 6))


def net(f, faults: tuple[str, ...] = ()) -> torch.nn.Module | nn.Layer:
    """Attention by hand, a block with a residual connection, layers without parameters.

    `faults` names what is wrong in its backward pass.
    """

    def block(model, x):
        """x + drop(fc(norm(x)))."""
        shortcut = x.detach() if "shortcut" in faults else x
        out = model.fc(model.norm(x))
        return shortcut + model.drop(Scaled.apply(out, 2.0) if "container" in faults else out)

    def forward(model, x):
        value = model.v(x).detach() if "value" in faults else model.v(x)
        x = model.soft(model.q(x) @ f.swapaxes(model.k(x), 1, 2)) @ value
        hidden = model.block(x)  # it goes on and goes out
        return model.head(model.act(hidden.detach() if "cut" in faults else hidden)), hidden

    norm, fc, drop = f.nn.LayerNorm(6), f.nn.Linear(6, 6), f.nn.Dropout(0.0)
    return model_of(
        f,
        forward,
        **linears(f, "q k v", 6, 6),
        soft=faulty(nn.Softmax(-1), 0.5) if "soft" in faults else f.nn.Softmax(-1),
        block=model_of(f, block, norm=norm, fc=fc, drop=drop),
        act=faulty(nn.Tanh(), 3.0) if "act" in faults else f.nn.Tanh(),
        head=f.nn.Linear(6, 3),
    )


def faulty(layer: nn.Layer, factor: float) -> nn.Layer:
    """A layer without parameters with a factor on its gradient."""
    return model_of(paddle, lambda model, x: Scaled.apply(model.call(x), factor), call=layer)


def pair(
    *faults: str, theirs: tuple[str, ...] = (), seed: int = 0, dtype: str = "float64", **options
) -> AnyPair:
    torch.manual_seed(seed)
    return pair_in(net(torch, theirs), net(paddle, faults), X, dtype, seed=seed, **options)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_right_port_has_no_guilty_layer(seed: int, dtype: str) -> None:
    result, guilty = isolated_backward(pair(seed=seed, dtype=dtype, train=bool(seed % 2)))
    assert result.passed, result.failures
    assert guilty == []
    names = {c.name for c in result.comparisons}
    assert {"gradient at input 0 of act", "gradient at soft", "block.fc.weight"} <= names
    assert [c.caught for c in result.controls] == [True]


def test_two_layers_without_parameters_are_both_listed_in_backward_order() -> None:
    result, guilty = isolated_backward(pair("soft", "act"))
    assert [one.place for one in guilty] == ["act", "soft"]
    assert "3.000 x the reference" in guilty[0].cause
    assert "0.500 x the reference" in guilty[1].cause
    assert guilty[0].step == "backward"
    assert len(result.failures) == 2
    assert result.case == "pair (inject)"


@pytest.mark.parametrize(
    ("fault", "place", "cause"),
    [
        ("value", "(model)", "no gradient comes back: the graph is cut there"),
        ("shortcut", "block", "the gradient through the residual connection is missing"),
        ("container", "block", "2.000 x the reference"),
    ],
)
def test_a_container_is_guilty_of_its_own_code_only(fault, place, cause) -> None:
    _, guilty = isolated_backward(pair(fault))
    assert [one.place for one in guilty] == [place]
    assert cause in guilty[0].cause


def test_a_detach_that_the_port_forgot_accuses_the_caller() -> None:
    _, guilty = isolated_backward(pair(theirs=("cut",)))
    assert [one.place for one in guilty] == ["(model)"]


def test_the_planted_gradient_is_seen_in_every_single_layer() -> None:
    held = pair()
    inside = ("block", "block.norm", "block.fc", "block.drop")
    for place in ("act", "head", *inside, "soft", "v", "(model)"):
        run = BackwardIsolation(held, tripled=place).run()
        assert {one.place for one in run.wrong} == {place}


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_tensor_that_is_given_several_times_has_one_gradient(times: int) -> None:
    def attending(model, x):
        return model.attn(x, x, x)[0]

    def ported(model, x):
        return model.attn(*[x] * times)

    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True)
    ours = model_of(paddle, ported, attn=nn.MultiHeadAttention(6, 2))
    pair = pair_in(model_of(torch, attending, attn=theirs), ours, X, train=True)
    result, guilty = isolated_backward(pair)
    assert result.passed, result.failures
    assert guilty == []


def test_gradients_that_are_no_numbers_on_both_sides_are_a_difference_and_no_refusal() -> None:
    def roots(f):
        class Roots(f.nn.Linear):
            def forward(self, x):
                z = super().forward(x)
                return (z - z).square().sum(-1).sqrt()  # its gradient is 0 / 0

        return f.nn.Sequential(f.nn.Linear(6, 6), Roots(6, 6))

    result = align.compare(roots(torch), roots(paddle), X, dtype="float64")
    assert result.root.step == "backward"
    assert "NaN" in result.root.reason


def test_a_parameter_without_axes_keeps_its_precision() -> None:
    """The scale of CLIP's logits: NumPy makes float64 of 0 and one number of float32."""

    def forward(model, x):
        return model.layer(x) * model.scale.exp()

    scale = torch.nn.Parameter(torch.tensor(0.7))
    theirs = model_of(torch, forward, layer=torch.nn.Linear(6, 3), scale=scale)
    scale = paddle.create_parameter([], "float32")
    ours = model_of(paddle, forward, layer=nn.Linear(6, 3), scale=scale)
    result, wrong = isolated_backward(pair_in(theirs, ours, X, "float32"))
    assert not wrong
    assert result.passed, [c.reason for c in result.failures]


def torch_packed() -> torch.nn.Module:
    """Queries and keys of one packed layer, multiplied, then a layer."""

    def forward(model, x):
        q, k = model.packed(x).chunk(2, -1)
        return model.out(q * torch.sin(k))

    return model_of(torch, forward, packed=torch.nn.Linear(6, 12), out=torch.nn.Linear(6, 3))


def paddle_split() -> nn.Layer:
    """Its port in a layer that PyTorch has not: two projections and a term too many."""

    def mix(model, x):
        product = model.q(x) * paddle.sin(model.k(x))
        return model.out(product + 0.3 * model.q(x) * model.k(x))

    parts = {**linears(paddle, "q k", 6, 6), "out": nn.Linear(6, 3)}
    return nn.Sequential(("mix", model_of(paddle, mix, **parts)))


def test_a_wrong_gradient_of_code_that_is_wrong_in_the_forward_pass_is_its_consequence() -> None:
    table = {f"packed.{leaf}": [f"mix.q.{leaf}", f"mix.k.{leaf}"] for leaf in ("weight", "bias")}
    table["out"] = "mix.out"
    options = {"dtype": "float64", "inject": True, "weights": table}
    result = align.compare(torch_packed, paddle_split, X, **options)
    assert [finding.step for finding in result.report.repairs] == ["forward"], str(result)
    assert {finding.follows for finding in result.report.consequences} == {"forward"}
