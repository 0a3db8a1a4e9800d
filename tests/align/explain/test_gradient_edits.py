"""Causes of wrong gradients, from the gradients at both ends of a layer."""

from __future__ import annotations

import numpy as np
import pytest

from align.explain.arrays.gradient_edits import explain_gradient

RNG = np.random.default_rng(2)
SEED, TRUE, VALUES = (RNG.normal(size=(4, 5)) for _ in range(3))
RELU = SEED * (VALUES > 0)
CLIP = np.where(VALUES > 0.8, 0.0, TRUE)
SLIPS = {
    "cut": ((0 * TRUE, TRUE), "no gradient comes back: the graph is cut there (detach"),
    "cut in PyTorch": ((TRUE, 0 * TRUE), "PyTorch sends no gradient back here (detach"),
    "tripled": ((3 * TRUE, TRUE), "the gradient is 3.000 x the reference"),
    "1/N": (
        (5 * TRUE, TRUE),
        "a division by n is missing (1/N): n = 5 is the length of axis 1",
    ),
    "1/N too often": ((TRUE / 4, TRUE), "one division by n is too many (1/N): n = 4 is the length"),
    "reversed": ((-TRUE, TRUE), "the opposite sign"),
    "straight through": ((SEED, RELU), "straight-through: the gradient passes unchanged in Paddle"),
    "straight through in PyTorch": (
        (RELU, SEED),
        "Paddle sends no gradient back for 8 of 20 elements, where the input is negative",
    ),
    "shortcut": ((TRUE, TRUE + SEED), "the gradient through the residual connection is missing"),
    "shortcut twice": ((TRUE + SEED, TRUE), "counted once too often"),
    "blocked": ((CLIP, TRUE), "elements, where the input is above 0.2739"),
    "clipped": ((np.clip(TRUE, -0.7, 0.7), TRUE), "clipped at 0.7 in Paddle"),
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


def cause(ours: np.ndarray, expected: np.ndarray, said: str) -> str:
    seeds = [] if ours.shape != SEED.shape else [SEED]
    values = VALUES if seeds and "padding_idx" not in said else None
    return explain_gradient(ours, expected, seeds, values)


@pytest.mark.parametrize("name", SLIPS)
def test_a_wrong_gradient_is_named(name: str) -> None:
    given, expected = SLIPS[name]
    assert expected in cause(*given, expected)


@pytest.mark.parametrize("name", [name for name in SLIPS if name != "cut in PyTorch"])
def test_noise_on_top_is_not_explained(name: str) -> None:
    (ours, expected), said = SLIPS[name]
    noise = 0.5 * np.abs(ours - expected).max() * np.random.default_rng(0).normal(size=ours.shape)
    found = cause(ours + noise, expected, said)
    assert said not in found
    assert "perhaps the graph is cut in a part of it" in found


def test_other_shapes_and_nan_are_left_alone() -> None:
    assert explain_gradient(TRUE, TRUE[:2]) == ""
    assert explain_gradient(TRUE * np.nan, TRUE) == ""
