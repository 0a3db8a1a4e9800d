"""Faults in float32 running statistics and in power norms at zero: caught, at the right array."""

import paddle
import pytest

from align.cases.tables.cases_models import STATISTICS
from align.cases.tables.cases_values import ZERO_MATRICES
from align.cases.values.zero_matrix_values import at_the_edge
from align.frameworks import on_torch
from sot_paddle import functional
from sot_paddle.backbones.layers import BatchNorm2D

right_update = BatchNorm2D._update_running


@pytest.mark.parametrize("case", [case.name for case in STATISTICS])
def test_the_statistics_pass_as_the_product_is(case, run_case):
    result = run_case(case, "forward", "float32")
    assert (result.failures, result.problems) == ([], [])
    kinds = {name.rpartition(".")[2] for name in (c.name for c in result.comparisons)}
    assert kinds == {"running_mean", "running_var"}


def only_mean(self, mean, var, count):
    paddle.assign(self.running_mean * self.momentum + mean * (1 - self.momentum), self.running_mean)


def only_var(self, mean, var, count):
    kept = self.running_mean.clone()
    right_update(self, mean, var, count)
    paddle.assign(kept, self.running_mean)


def biased(self, mean, var, count):
    right_update(self, mean, var * (count - 1) / count, count)


def momentum_of_torch(self, mean, var, count):
    kept = self.momentum
    self.momentum = 1 - kept
    right_update(self, mean, var, count)
    self.momentum = kept


@pytest.mark.parametrize("case", [case.name for case in STATISTICS])
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (only_mean, "running_var"),
        (only_var, "running_mean"),
        (biased, "running_var"),
        (momentum_of_torch, "running_mean"),
    ],
)
def test_a_statistic_that_is_updated_otherwise_in_float32(
    change, kind, case, run_case, failed, monkeypatch
):
    monkeypatch.setattr(BatchNorm2D, "_update_running", paddle.no_grad()(change))
    wrong = failed(run_case(case, "forward", "float32"))
    assert wrong
    assert wrong[0].endswith(kind)
    both = change is momentum_of_torch
    assert both or all(name.endswith(kind) for name in wrong)


@pytest.mark.parametrize("case", [case.name for case in ZERO_MATRICES])
def test_power_norms_pass_as_the_product_is(case, run_case):
    result = run_case(case, "backward", "float64")
    assert (result.failures, result.problems) == ([], [])


def test_the_published_gradient_at_zero_is_nan_in_the_reference():
    for case in ZERO_MATRICES:
        found, _ = at_the_edge(on_torch, **{"on_zero": "nan", **case.given})
        missing = {name for name, value in found.items() if (value != value).any()}
        published = {
            "zero_matrix_svpn_nan": {"gradient (zeros)", "gradient of the start"},
            "zero_matrix_mpn_nan": {"gradient (zeros)", "output (zeros)"},
        }
        assert missing == published.get(case.name, set()), case.name


def test_a_published_nan_that_is_mended_is_a_difference(run_case, failed, monkeypatch):
    right = functional._guard_zero
    monkeypatch.setattr(functional, "_guard_zero", lambda x, _, apply: right(x, "zero", apply))
    assert failed(run_case("zero_matrix_svpn_nan", "backward", "float64"))[0] == (
        "output (nearly zeros)"
    )
    assert failed(run_case("zero_matrix_mpn_nan", "backward", "float64"))[0] == (
        "output (zeros) (where NaN)"
    )


def test_nan_where_zero_is_asked_for(run_case, failed, monkeypatch):
    right = functional._guard_zero
    monkeypatch.setattr(functional, "_guard_zero", lambda x, _, apply: right(x, "nan", apply))
    wrong = failed(run_case("zero_matrix_svpn_zero", "backward", "float64"))
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


def test_epn_of_zero_by_the_side_of_its_root(run_case, failed, monkeypatch):
    """sqrt(eps) instead of 0 where an entry is 0."""

    def epn(x, *, eps=1e-8):
        sign = paddle.where(x < 0, -paddle.ones_like(x), paddle.ones_like(x))
        return functional._unit(sign * paddle.sqrt(paddle.abs(x) + eps))

    monkeypatch.setattr(functional, "entrywise_power_norm", epn)
    wrong = failed(run_case("zero_matrix_epn", "backward", "float64"))
    assert wrong[0] == "output (zeros)"
    assert not any("a covariance" in name for name in wrong)
    assert failed(run_case("head_mgcrp_epn_few_words", "forward", "float64"))[0] == (
        "head.power_norm"
    )
