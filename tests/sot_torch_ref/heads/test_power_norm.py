"""Power normalization layers: parameters, defaults, warnings."""

import warnings

import pytest
import torch

from sot_torch_ref import functional
from sot_torch_ref.heads.power_norm import EPN, MPN, ScaleNorm, SvPN

B, ROWS, COLUMNS = 2, 5, 4


def names(layer: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in layer.state_dict().items()}


def test_svpn_applies_the_function_with_its_options() -> None:
    layer = SvPN(COLUMNS, alpha=0.3, num_iter=3, num_sv=2)
    x = torch.randn(B, ROWS, COLUMNS)
    expected = functional.sv_power_norm(x, layer.weight, alpha=0.3, num_iter=3, num_sv=2)
    assert torch.equal(layer(x), expected)
    assert names(layer) == {"weight": (COLUMNS,)}


def test_svpn_start_is_standard_normal() -> None:
    weight = SvPN(5000).weight
    assert abs(weight.mean().item()) < 0.06
    assert abs(weight.std().item() - 1.0) < 0.05


def test_svpn_start_one_has_no_state() -> None:
    layer = SvPN(COLUMNS, start="one")
    x = torch.randn(B, ROWS, COLUMNS)
    assert names(layer) == {}
    assert torch.equal(layer(x), functional.sv_power_norm(x, torch.ones(COLUMNS)))


def test_svpn_on_zero_reaches_the_function() -> None:
    for mode, finite in (("nan", False), ("zero", True)):
        x = torch.zeros(B, ROWS, COLUMNS, requires_grad=True)
        SvPN(COLUMNS, on_zero=mode)(x).sum().backward()
        assert bool(torch.isfinite(x.grad).all()) is finite


@pytest.mark.parametrize("num_sv", [2, 3, None])
def test_ill_posed_svpn_warns(num_sv: int | None) -> None:
    with pytest.warns(UserWarning, match="ill-posed"):
        SvPN(COLUMNS, num_iter=1, num_sv=num_sv)


@pytest.mark.parametrize(("num_iter", "num_sv"), [(1, 1), (2, 2), (5, None)])
def test_well_posed_svpn_does_not_warn(num_iter: int, num_sv: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SvPN(COLUMNS, num_iter=num_iter, num_sv=num_sv)


def test_unknown_start_is_refused() -> None:
    with pytest.raises(ValueError, match="start must be one of learn, one"):
        SvPN(COLUMNS, start="zeros")


def test_scale_norm() -> None:
    x = torch.randn(B, ROWS, COLUMNS)
    fixed, learnt = ScaleNorm(0.25, learnable=False), ScaleNorm(0.25, learnable=True)
    assert names(fixed) == {}
    assert names(learnt) == {"factor": ()}
    assert torch.equal(fixed(x), x / 4)
    learnt(x).sum().backward()
    torch.testing.assert_close(learnt.factor.grad, x.sum())


def test_epn_and_mpn_apply_their_functions() -> None:
    x = torch.randn(B, 7, COLUMNS)
    square = x.transpose(1, 2) @ x
    assert torch.equal(EPN()(x), functional.entrywise_power_norm(x))
    assert torch.equal(MPN(5)(square), functional.matrix_sqrt(square, 5))
    assert names(EPN()) == names(MPN()) == {}
    assert torch.equal(MPN(on_zero="zero")(0 * square), 0 * square)
