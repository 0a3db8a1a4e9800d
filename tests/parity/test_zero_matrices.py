"""Compare the power norms at the edge: matrices of zeros, nearly zeros, rank one.

The published svPN and MPN have no gradient at a matrix of zeros: NaN has to be at the same places.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sot_paddle.heads import power_norm as paddle_norms
from sot_torch_ref.heads import power_norm as torch_norms
from tests.parity.sides import assert_same, on_paddle, on_torch, paddle_precision

DIM = 5
KINDS = ("a covariance", "zeros", "nearly zeros", "rank one", "a zero row", "small", "at the limit")
NORMS = [("svpn", "nan"), ("svpn", "zero"), ("mpn", "nan"), ("mpn", "zero"), ("epn", "")]


@pytest.mark.parametrize(("norm", "on_zero"), NORMS)
def test_power_norm_at_the_edge(norm: str, on_zero: str) -> None:
    paddle_values, torch_values = of_paddle(norm, on_zero), of_torch(norm, on_zero)
    assert_same(paddle_values, torch_values, finite=False)
    without = {name for name, value in torch_values.items() if np.isnan(value).any()}
    published = {
        ("svpn", "nan"): {"gradient (zeros)", "gradient of the start"},
        ("mpn", "nan"): {"gradient (zeros)", "output (zeros)"},
    }
    assert without == published.get((norm, on_zero), set())


def of_paddle(norm: str, on_zero: str) -> dict[str, np.ndarray]:
    """Return output and gradient of our norm, matrix by matrix, and the gradient of its start."""
    options = {"on_zero": on_zero} if on_zero else {}
    with paddle_precision("float64"):
        if norm == "svpn":
            layer = paddle_norms.SvPN(DIM, **options)
            layer.set_state_dict({name: START for name, _ in layer.named_parameters()})
        elif norm == "mpn":
            layer = paddle_norms.MatrixSqrt(**options)
        else:
            layer = paddle_norms.EntrywisePowerNorm()
    values = on_paddle(layer, [edge_matrices()])
    return by_matrix(values, [parameter.grad.numpy() for parameter in layer.parameters()])


def of_torch(norm: str, on_zero: str) -> dict[str, np.ndarray]:
    """Return output and gradient of the reference's norm, matrix by matrix."""
    options = {"on_zero": on_zero} if on_zero else {}
    if norm == "svpn":
        layer = torch_norms.SvPN(DIM, **options).double()
        layer.load_state_dict({name: torch.tensor(START) for name, _ in layer.named_parameters()})
    else:
        layer = torch_norms.MPN(**options) if norm == "mpn" else torch_norms.EPN()
    values = on_torch(layer, [edge_matrices()])
    return by_matrix(values, [parameter.grad.numpy() for parameter in layer.parameters()])


START = np.random.default_rng(4).normal(size=DIM)


def by_matrix(values: dict[str, np.ndarray], gradients: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Name output and gradient of each matrix: beside large ones the small ones would be lost."""
    named = {f"gradient of the start{'' if i == 0 else i}": g for i, g in enumerate(gradients)}
    for index, kind in enumerate(KINDS):
        named[f"output ({kind})"] = values["value"][index]
        named[f"gradient ({kind})"] = values["gradient 0"][index]
    return named


def edge_matrices() -> np.ndarray:
    """Draw symmetric matrices (KINDS, DIM, DIM), nearly zeros of norm 1e-13, small of 1.5e-12.

    A matrix of norm 1e-12 still counts as zeros: of a single entry, whose norm is not rounded.
    """
    factor = np.random.default_rng(3).normal(size=(len(KINDS), DIM, 9))
    matrices = factor @ factor.transpose(0, 2, 1) / 9
    matrices[1] = 0.0
    matrices[2] *= 1e-13 / np.linalg.norm(matrices[2])
    matrices[3] = np.outer(factor[3, :, 0], factor[3, :, 0])
    matrices[4, 2, :] = matrices[4, :, 2] = 0.0
    matrices[5] *= 1.5e-12 / np.linalg.norm(matrices[5])
    matrices[6] = 0.0
    matrices[6, 1, 1] = 1e-12
    return matrices
