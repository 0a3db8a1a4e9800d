"""Faults in float32 running statistics and in EPN at zero: caught, at the right array."""

import pytest

from align.cases.tables.cases_models import STATISTICS
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


def test_epn_of_zero_by_the_side_of_its_root(caught):
    """sqrt(eps) instead of 0 where an entry is 0."""
    signs = "(1.0 - 2.0 * (x < 0).astype(x.dtype))"
    change = (functional, "entrywise_power_norm", "paddle.sign(x)", signs)
    caught("head_mgcrp_epn_few_words forward float64", *change, "head.power_norm")
