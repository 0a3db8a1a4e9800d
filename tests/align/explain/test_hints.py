"""Edits of outputs, gradients and running statistics: each explains its own fault, none another."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from align.explain import formulas
from align.explain.hints import (
    LARGE,
    explain_gradient,
    explain_output,
    explain_statistic,
    guess_output,
)
from align.pair.isolation import Guilty

RNG = np.random.default_rng(3)
X, C = RNG.normal(size=(2, 5, 6)), RNG.normal(size=(2, 5, 6))
GELU, TANH = (formulas.ACTIVATIONS[f"GELU ({kind})"] for kind in ("erf", "tanh approximation"))


def guilty(ours: np.ndarray, expected: np.ndarray, inputs: tuple = ()) -> Guilty:
    return Guilty("place", None, "place", list(inputs), ours, expected)


OUTPUTS = {
    "residual": (
        (X, X + C, [("input 0", X), ("output of fc", C)]),
        "output of fc is not added (a missing residual connection)",
    ),
    "twice": ((X + C, X, [("output of fc", C)]), "output of fc is added once too often"),
    "as it is": ((X, C, [("output of norm1", C)]), "PyTorch hands over output of norm1 as it is"),
    "activation left out": (
        (X, np.maximum(X, 0)),
        "activation: PyTorch applies ReLU to this tensor",
    ),
    "activation": (
        (np.tanh(X), X),
        "activation: Paddle applies tanh to this tensor, PyTorch does not",
    ),
    "GELU": (
        (TANH(X), GELU(X), [("input 0", X)]),
        "activation of input 0: Paddle computes GELU (tanh approximation), PyTorch GELU (erf)",
    ),
}
HUGE = np.where(X > 1, -1e16 * X, X)  # divided by almost zero, say: not a mask


def test_a_few_huge_numbers_are_no_mask_and_hide_no_other_difference() -> None:
    assert guess_output(guilty(HUGE, X + C)) == ""
    assert explain_output(guilty(HUGE, X + C, [("input 0", X), ("output of fc", C)]), {}) == ""


def test_what_a_record_hands_on_is_no_cause_of_the_layer_around() -> None:
    arrays, _ = OUTPUTS["as it is"]
    assert explain_output(guilty(*arrays), {}, fed=False) == ""


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_edit_of_the_output_is_named(name: str) -> None:
    given, said = OUTPUTS[name]
    assert explain_output(guilty(*given), {}).startswith(said)


def test_a_guess_is_worded_as_one() -> None:
    hidden = guilty(X, np.where(X > 0, -1e9, X))
    assert explain_output(hidden, {}) == ""
    assert "perhaps another mask: Paddle hides 0 of 60 scores" in guess_output(hidden)


@pytest.mark.parametrize("name", [n for n in OUTPUTS if n != "as it is"])
def test_what_does_not_explain_the_difference_is_not_named(name: str) -> None:
    """Of what PyTorch hands over as it is, that is true whatever Paddle computes."""
    (ours, expected, *rest), _ = OUTPUTS[name]
    noise = 0.3 * RNG.normal(size=ours.shape) * min(np.abs(ours - expected).max(), 10.0)
    wrong = guilty(ours + noise, expected, *rest)
    assert explain_output(wrong, {}) == guess_output(wrong) == ""


def test_own_arrays_of_a_layer_are_terms_too() -> None:
    cause = explain_output(guilty(X, X + C[:1]), {"pos_embed": C[:1]})
    assert cause.startswith("pos_embed is not added")
    assert explain_output(guilty(X, X + C[0, 0]), {"bias": C[0, 0]}) == "the bias is not added"


def test_of_a_large_batch_the_samples_that_differ_most_are_looked_at() -> None:
    x = RNG.normal(size=(40, 100, 100))
    term = np.zeros_like(x)
    term[33] = 1.0
    assert x.size > LARGE
    assert explain_output(guilty(x, x + term, [("input 0", term)]), {}).startswith("input 0 is not")


def test_what_cannot_be_compared_is_left_alone() -> None:
    assert explain_output(guilty(X, X[:1]), {}) == guess_output(guilty(X, X[:1])) == ""
    assert explain_output(guilty(X * np.nan, X), {}) == guess_output(guilty(X * np.nan, X)) == ""


def test_options_that_differ_are_told_without_a_run() -> None:
    layer = SimpleNamespace(_epsilon=1e-5, exclusive=True, training=False, _stride=[2, 2])
    module = SimpleNamespace(eps=1e-6, count_include_pad=False, training=True, stride=2)
    said = "epsilon: Paddle's layer has 1e-05, PyTorch's 1e-06"
    assert guess_output(guilty(X, C), layer, module) == said


def test_the_convention_of_the_momentum_is_told() -> None:
    before, batch = RNG.uniform(0.5, 1.5, 4), RNG.uniform(0.5, 1.5, 4)
    expected = 0.9 * before + 0.1 * batch
    swapped = explain_statistic("bn", before, 0.1 * before + 0.9 * batch, expected)
    assert "use momentum=0.9" in swapped
    other = explain_statistic("bn", before, 0.7 * before + 0.3 * batch, expected)
    assert other == "bn: Paddle moves it 3 times as far as PyTorch: another momentum"
    assert "does not move it" in explain_statistic("bn", before, before, expected)
    for wrong in (RNG.normal(size=4), 0.9 * before + 0.1 * batch * 5 / 6):
        assert explain_statistic("bn", before, wrong, expected) == ""


SEED, TRUE, VALUES = (RNG.normal(size=(4, 5)) for _ in range(3))
RELU = SEED * (VALUES > 0)
SLIPS = {
    "cut": ((0 * TRUE, TRUE), "no gradient comes back: the graph is cut there (detach"),
    "cut in PyTorch": ((TRUE, 0 * TRUE), "PyTorch sends no gradient back here (detach"),
    "tripled": ((3 * TRUE, TRUE), "the gradient is 3.000 x the reference"),
    "straight through": ((SEED, RELU), "straight-through: the gradient passes unchanged in Paddle"),
    "shortcut": ((TRUE, TRUE + SEED), "the gradient through the residual connection is missing"),
    "shortcut twice": ((TRUE + SEED, TRUE), "counted once too often"),
    "padding row trained": (
        (TRUE, TRUE * [[1], [0], [1], [1]]),
        "padding_idx: row 1 of the embedding: Paddle trains it, PyTorch does not",
    ),
    "padding row not trained": (
        (TRUE * [[1], [0], [1], [1]], TRUE),
        "padding_idx: row 1 of the embedding: Paddle does not train it, PyTorch does",
    ),
    "transposed": ((SEED[:, :4].T, SEED[:, :4]), "looks transposed"),
}


def cause_of_gradient(ours: np.ndarray, expected: np.ndarray, said: str) -> str:
    arriving = [] if ours.shape != SEED.shape else [SEED]
    return explain_gradient(ours, expected, arriving, of_parameter="padding_idx" in said)


@pytest.mark.parametrize("name", SLIPS)
def test_a_wrong_gradient_is_named(name: str) -> None:
    given, expected = SLIPS[name]
    assert expected in cause_of_gradient(*given, expected)


@pytest.mark.parametrize("name", [name for name in SLIPS if name != "cut in PyTorch"])
def test_noise_on_top_of_a_gradient_is_not_explained(name: str) -> None:
    (ours, expected), said = SLIPS[name]
    noise = 0.5 * np.abs(ours - expected).max() * np.random.default_rng(0).normal(size=ours.shape)
    found = cause_of_gradient(ours + noise, expected, said)
    assert said not in found
    assert "perhaps the graph is cut in a part of it" in found


def test_other_shapes_and_nan_are_left_alone() -> None:
    assert explain_gradient(TRUE, TRUE[:2]) == ""
    assert explain_gradient(TRUE * np.nan, TRUE) == ""
