"""svPN: the warning where it is ill-posed."""

import warnings

import pytest

from sot_torch_ref.heads.power_norm import SvPN

COLUMNS = 4


@pytest.mark.parametrize("num_sv", [2, 3, None])
def test_ill_posed_svpn_warns(num_sv: int | None) -> None:
    with pytest.warns(UserWarning, match="ill-posed"):
        SvPN(COLUMNS, num_iter=1, num_sv=num_sv)


@pytest.mark.parametrize(("num_iter", "num_sv"), [(1, 1), (2, 2), (5, None)])
def test_well_posed_svpn_does_not_warn(num_iter: int, num_sv: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SvPN(COLUMNS, num_iter=num_iter, num_sv=num_sv)
