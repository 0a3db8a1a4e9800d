"""Faults in packing and padding rows: caught, at the array and in the way that is wrong."""

import pytest

from align.cases.tables.cases_values import PADDING
from align.cases.values import padded_values
from sot_paddle.data import token_features
from sot_paddle.data.token_features import PadCollator, TokenFeatures

FULL, LONGEST = "data_padding data", "data_padding_longest data"
ROWS = (padded_values, token_features), "pad_rows"
"""Both ways to a batch end in this function."""
REVERSED = "return {n: v[:, ::-1].copy() if v.ndim == 2 else v for n, v in batch.items()}"
LABELS = "np.asarray(labels, dtype=dtype)"

CHANGES = [  # the first that fails, and what is all that fails
    (FULL, *ROWS, "np.full(mask.shape, pad_id", "np.full(mask.shape, 0", "*", "input_ids"),
    (LONGEST, *ROWS, "np.full(mask.shape, pad_id", "np.full(mask.shape, 0", "*", "input_ids"),
    (FULL, PadCollator, "__call__", "pad_id=self.pad_id", "pad_id=0")
    + ("collated 0/input_ids", ""),
    (FULL, *ROWS, "return batch", REVERSED, "batch 0/input_ids", ""),
    # the whole length instead of the longest row's
    (LONGEST, *ROWS, 'if pad == "max_length":', "if max_length:", "batch 0/input_ids", ""),
    (FULL, *ROWS, "types = mask & (column", "types = (column", "*", "token_type_ids"),
    # of other rows, and scores cast to whole numbers
    (
        FULL,
        TokenFeatures,
        "with_targets",
        LABELS,
        LABELS.replace("ls,", "ls[::-1],"),
        "*",
        "labels",
    ),
    (FULL, TokenFeatures, "with_targets", LABELS, LABELS.replace("=dtype", "=np.int64"))
    + ("batch 0/labels", "labels"),
]


@pytest.mark.parametrize("case", [case.name for case in PADDING])
def test_labels_are_compared_where_there_are_any(case, run_case):
    result = run_case(case, "data")
    assert (result.failures, result.problems) == ([], [])
    labels = [c for c in result.comparisons if c.name.endswith("labels")]
    assert bool(labels) == (case != "data_padding_unlabelled")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]} {change[4]}")
def test_a_change_is_caught_and_placed(caught, change):
    *planted, kind = change
    assert all(name.endswith(kind) for name in caught(*planted))
