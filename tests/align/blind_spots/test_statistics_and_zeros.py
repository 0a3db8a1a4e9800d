"""Faults in float32 running statistics and in power norms at zero: caught, at the right array."""

import pytest

from align.cases.tables.cases_models import STATISTICS
from align.cases.tables.cases_values import ZERO_MATRICES
from align.cases.values.zero_matrix_values import at_the_edge
from align.frameworks import on_torch
from sot_paddle import functional
from sot_paddle.backbones.layers import BatchNorm2D


@pytest.mark.parametrize("case", [case.name for case in STATISTICS])
def test_the_statistics_pass_as_the_product_is(case, run_case):
    result = run_case(case, "forward", "float32")
    assert (result.failures, result.problems) == ([], [])
    kinds = {name.rpartition(".")[2] for name in (c.name for c in result.comparisons)}
    assert kinds == {"running_mean", "running_var"}


EACH = "(self.running_mean, mean), (self.running_var, unbiased)"
KEPT = "buffer * self.momentum + batch.astype(buffer.dtype) * (1.0 - self.momentum)"
OF_TORCH = "buffer * (1.0 - self.momentum) + batch.astype(buffer.dtype) * self.momentum"
UPDATES = [
    (EACH, "(self.running_mean, mean),", "var"),
    (EACH, "(self.running_var, unbiased),", "mean"),
    ("var * (count / (count - 1.0).clip(min=1.0))", "var", "var"),
    (KEPT, OF_TORCH, ""),
]


@pytest.mark.parametrize("case", [case.name for case in STATISTICS])
@pytest.mark.parametrize("change", UPDATES, ids=lambda change: change[1])
def test_a_statistic_that_is_updated_otherwise_in_float32(change, case, caught):
    *planted, kind = change
    names = caught(f"{case} forward float32", BatchNorm2D, "_update_running", *planted, "*")
    assert all(name.endswith(kind) for name in names)


def test_the_published_gradient_at_zero_is_nan_in_the_reference():
    for case in ZERO_MATRICES:
        found, _ = at_the_edge(on_torch, **{"on_zero": "nan", **case.given})
        missing = {name for name, value in found.items() if (value != value).any()}
        published = {
            "zero_matrix_svpn_nan": {"gradient (zeros)", "gradient of the start"},
            "zero_matrix_mpn_nan": {"gradient (zeros)", "output (zeros)"},
        }
        assert missing == published.get(case.name, set()), case.name


@pytest.mark.parametrize(
    ("norm", "place"),
    [("svpn", "output (nearly zeros)"), ("mpn", "output (zeros) (where NaN)")],
)
def test_a_published_nan_that_is_mended_is_a_difference(norm, place, caught):
    planted = (functional, "_guard_zero", 'if on_zero == "nan":', "if False:")
    caught(f"zero_matrix_{norm}_nan backward float64", *planted, place)


def test_nan_where_zero_is_asked_for(caught):
    planted = (functional, "_guard_zero", 'if on_zero == "nan":', "if True:")
    wrong = caught("zero_matrix_svpn_zero backward float64", *planted, "*")
    assert "gradient (zeros) (where NaN)" in wrong
    assert not any("a covariance" in name or "rank one" in name for name in wrong)


@pytest.mark.parametrize(
    ("threshold", "kinds"),
    [
        (0.0, {"nearly zeros", "at the limit"}),
        (0.99e-12, {"at the limit"}),
        (2e-12, {"small"}),
        (1e-2, {"small"}),
    ],
)
def test_another_size_of_what_counts_as_zero(threshold, kinds, run_case, failed, monkeypatch):
    monkeypatch.setattr(functional, "ZERO_NORM", threshold)
    wrong = failed(run_case("zero_matrix_mpn_zero", "backward", "float64"))
    assert {name.partition("(")[2].partition(")")[0] for name in wrong} == kinds


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ("zero_matrix_epn backward float64", "output (zeros)"),
        ("head_mgcrp_epn_few_words forward float64", "head.power_norm"),
    ],
)
def test_epn_of_zero_by_the_side_of_its_root(job, place, caught):
    """sqrt(eps) instead of 0 where an entry is 0."""
    signs = "(1.0 - 2.0 * (x < 0).astype(x.dtype))"
    change = (functional, "entrywise_power_norm", "paddle.sign(x)", signs)
    assert not any("a covariance" in name for name in caught(job, *change, place))
