"""Stage "weights": a right conversion passes, each slip is found at its tensor and named."""

from __future__ import annotations

import dataclasses

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.explain.array_edits import WeightExplainer, to_bfloat16
from align.frameworks import on_paddle, on_torch
from align.pair.any_pair import AnyPair, Setup
from align.record.request import Request
from align.stages.numbers import weights
from tests.align.small_pairs import pair_in

MODULES = {
    "words": (lambda: torch.nn.Embedding(11, 6), lambda: nn.Embedding(11, 6)),
    "q": (lambda: torch.nn.Linear(6, 6), lambda: nn.Linear(6, 6)),
    "k": (lambda: torch.nn.Linear(6, 6), lambda: nn.Linear(6, 6)),
    "fc": (lambda: torch.nn.Linear(6, 8), lambda: nn.Linear(6, 8)),
    "qkv": (lambda: torch.nn.Linear(6, 24), lambda: nn.Linear(6, 24)),
    "conv": (lambda: torch.nn.Conv2d(3, 4, 3), lambda: nn.Conv2D(3, 4, 3)),
    "lstm": (lambda: torch.nn.LSTM(6, 5), lambda: nn.LSTM(6, 5)),
    "norm": (lambda: torch.nn.LayerNorm(6), lambda: nn.LayerNorm(6)),
    "bn": (lambda: torch.nn.BatchNorm1d(6), lambda: nn.BatchNorm1D(6)),
}


SHUFFLED = np.random.default_rng(1).permutation(11)


def theirs() -> torch.nn.Module:
    """Layers of every kind; the model is not run."""
    return torch.nn.ModuleDict({name: make() for name, (make, _) in MODULES.items()})


@pytest.fixture(scope="module")
def pair() -> tuple[Setup, dict]:
    """A converted pair and the right tensors by Paddle's names."""
    torch.manual_seed(0)
    model, port = theirs(), nn.LayerDict({name: make() for name, (_, make) in MODULES.items()})
    with torch.no_grad():
        model.bn.running_mean.normal_()
        model.bn.running_var.uniform_(0.5, 1.5)
        model.norm.weight.normal_()
        model.norm.bias.normal_()
    setup = Setup(Request(model, port, (np.zeros((1, 1)),), train=True, converted=True))
    return setup, setup.weights.to_paddle(on_torch.state(model))


def run(pair, fault=None):
    """The stage after ``fault`` changed a copy of the right tensors."""
    setup, right = pair
    held = dict(right)
    if fault is not None:
        fault(held)
    on_paddle.load(setup.plan.paddle_layer, held)
    return weights(AnyPair(setup, "float64"))


@pytest.mark.parametrize("seed", range(4))
def test_a_right_conversion_passes(pair, seed, monkeypatch) -> None:
    """The reference's fresh zeros and ones included: nothing is shaken here."""
    setup, _ = pair
    torch.manual_seed(seed)
    model = theirs()
    monkeypatch.setattr(setup, "plan", dataclasses.replace(setup.plan, torch_module=model))
    result, found = run((setup, setup.weights.to_paddle(on_torch.state(model))))
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert found == []
    assert len(result.controls) == 5


def put(name, change):
    def fault(held):
        held[name] = np.ascontiguousarray(change(held[name]).astype(held[name].dtype))

    return fault


def swap(one, other):
    def fault(held):
        held[one], held[other] = held[other], held[one]

    return fault


def copy_of(one, other):
    def fault(held):
        held[one] = held[other]

    return fault


def parts(count, order, axis=-1):
    def change(x):
        held = np.split(x, count, axis)
        return np.concatenate([held[i] for i in order], axis)

    return change


def fresh(x):
    return np.random.default_rng(3).normal(0, 0.02, x.shape)


@pytest.mark.parametrize(
    ("name", "fault", "cause"),
    [
        ("q.weight", put("q.weight", np.transpose), "transposed: no shape shows it"),
        ("fc.weight", put("fc.weight", lambda x: x.T.reshape(6, 8)), "reshaped instead of transp"),
        ("conv.weight", put("conv.weight", lambda x: x.swapaxes(2, 3)), "axes are swapped"),
        ("q.weight", swap("q.weight", "k.weight"), "swapped with 'k.weight'"),
        ("bn._mean", swap("bn._mean", "bn._variance"), "swapped with 'bn._variance'"),
        ("k.weight", copy_of("k.weight", "q.weight"), "holds the values of 'q.weight'"),
        ("q.bias", put("q.bias", np.zeros_like), "never loaded: every value is 0"),
        ("norm.weight", put("norm.weight", np.ones_like), "never loaded: every value is 1"),
        ("words.weight", put("words.weight", fresh), "perhaps never loaded: nothing in"),
        ("qkv.weight", put("qkv.weight", parts(3, (1, 0, 2))), "3 equal parts along axis 1 are in"),
        (
            "lstm.weight_ih_l0",
            put("lstm.weight_ih_l0", parts(4, (0, 2, 1, 3), 0)),
            "its 4 equal parts along axis 0 are in the order 0, 2, 1, 3",
        ),
        ("qkv.weight", put("qkv.weight", lambda x: x[:, ::-1]), "reversed along axis 1"),
        ("conv.weight", put("conv.weight", lambda x: x[:, ::-1]), "(BGR against RGB)"),
        (
            "words.weight",
            put("words.weight", lambda x: np.roll(x, -2, 0)),
            "shifted round by 2 along",
        ),
        ("words.weight", put("words.weight", lambda x: x[SHUFFLED]), "another order: 0 of Paddle"),
        (
            "words.weight",
            put("words.weight", lambda x: np.concatenate([x[2:], 0 * x[:2]])),
            "shifted by 2 rows: row i of Paddle is row i +2 of PyTorch",
        ),
        ("fc.weight", put("fc.weight", lambda x: -x), "has the opposite sign"),
        ("fc.weight", put("fc.weight", lambda x: 6**0.5 * x), "scaled: 2.44949 x PyTorch's"),
        ("norm.weight", put("norm.weight", lambda x: x - 1), "PyTorch's values minus 1"),
        ("fc.weight", put("fc.weight", lambda x: x * np.arange(1, 9)), "x (1, 2, 3, 4, ...)"),
        ("fc.weight", put("fc.weight", lambda x: x.astype("float16")), "rounded to float16"),
        ("fc.weight", put("fc.weight", to_bfloat16), "rounded to bfloat16 in"),
    ],
)
def test_a_slip_of_the_conversion_is_named(pair, name, fault, cause) -> None:
    result, found = run(pair, fault)
    assert not result.passed
    assert result.problems == []
    assert found[0].place == name
    assert found[0].step == "weights"
    assert cause in found[0].cause
    named = {one.place for one in found}
    assert len(named) == (2 if "swapped with" in cause else 1)


def test_a_float64_reference_shows_the_rounding_to_float32(pair) -> None:
    expected = {"w": np.random.default_rng(0).normal(size=(4, 5))}
    ours = {"w": expected["w"].astype("float32").astype("float64")}
    assert WeightExplainer(ours, expected)("w").startswith("rounded to float32")
    ours = {"w": expected["w"][:3]}
    assert "longer or shorter along axis 0" in WeightExplainer(ours, expected)("w")
    ours = {"w": expected["w"] * np.nan}
    assert "20 values are not finite" in WeightExplainer(ours, expected)("w")
    assert WeightExplainer({}, expected)("w") == ""


def test_compare_runs_the_stage_first_and_then_loads_the_references_weights() -> None:
    theirs, ours = torch.nn.Linear(4, 4), nn.Linear(4, 4)
    x = np.random.default_rng(0).normal(size=(2, 4))
    ours.weight.set_value(theirs.weight.detach().numpy())  # transposed
    ours.bias.set_value(theirs.bias.detach().numpy())
    result = align.compare(theirs, ours, x, dtype="float64", converted=True)
    assert not result.passed
    assert result.root.step == "weights"
    assert result.root.place == "weight"
    assert result.first_divergence is None
    ours.weight.set_value(theirs.weight.detach().numpy().T)
    assert align.compare(theirs, ours, x, dtype="float64", converted=True).passed


def test_callables_are_built_in_the_precision_of_stored_weights() -> None:
    def theirs():
        torch.manual_seed(4)
        return torch.nn.Linear(3, 2)

    def ours():
        layer = nn.Linear(3, 2)
        held = theirs()
        kind = paddle.get_default_dtype()
        layer.weight.set_value(held.weight.detach().numpy().T.astype(kind))
        layer.bias.set_value(held.bias.detach().numpy().astype(kind))
        return layer

    result, found = weights(pair_in(theirs, ours, np.zeros((1, 3)), converted=True))
    assert result.passed, found


def test_a_pair_without_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="no tensor in common"):
        weights(pair_in(torch.nn.ReLU(), nn.ReLU(), np.zeros(3), converted=True))
