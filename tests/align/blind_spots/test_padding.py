"""Faults in packing and padding rows: caught, at the array and in the way that is wrong."""

import numpy as np
import pytest

from align.cases.tables.cases_values import PADDING
from sot_paddle.data import paddle_dataset, token_features
from sot_paddle.data.token_features import TokenFeatures

right_pad = token_features.pad_rows
FULL, LONGEST = "data_padding", "data_padding_longest"


@pytest.fixture
def wrong(run_case, failed):
    """The failing comparisons of a case."""
    return lambda case: failed(run_case(case, "data"))


@pytest.mark.parametrize("case", [case.name for case in PADDING])
def test_the_cases_pass_as_the_product_is(case, run_case):
    result = run_case(case, "data")
    assert (result.failures, result.problems) == ([], [])
    labels = [c for c in result.comparisons if c.name.endswith("labels")]
    assert bool(labels) == (case != "data_padding_unlabelled")


def changed(monkeypatch, change):
    """Both ways to a batch end in this function."""

    def pad(features, positions, **options):
        return change(features, positions, options)

    from align.cases.values import padded_values

    for place in (padded_values, paddle_dataset):
        monkeypatch.setattr(place, "pad_rows", pad)


def test_the_pad_id_ignored(wrong, monkeypatch):
    changed(monkeypatch, lambda f, p, o: right_pad(f, p, **{**o, "pad_id": 0}))
    for case in (FULL, LONGEST):
        assert wrong(case)
        assert all(name.endswith("input_ids") for name in wrong(case))
    assert wrong("data_padding_unlabelled") == []


def test_the_pad_id_lost_by_the_collator(wrong, monkeypatch):
    build = paddle_dataset.PadCollator.__init__
    monkeypatch.setattr(
        paddle_dataset.PadCollator, "__init__", lambda self, *a: build(self, *a[:2])
    )
    assert all(name.startswith("collated") for name in wrong(FULL))
    assert wrong(FULL)[0] == "collated 0/input_ids"


def test_padding_on_the_left(wrong, monkeypatch):
    def left(features, positions, options):
        batch = right_pad(features, positions, **options)
        return {n: v[:, ::-1].copy() if v.ndim == 2 else v for n, v in batch.items()}

    changed(monkeypatch, left)
    assert wrong(FULL)[0] == "batch 0/input_ids"


def test_the_whole_length_instead_of_the_longest_row_s(wrong, monkeypatch):
    def longer(features, positions, options):
        if options.get("max_length"):
            options["pad"] = "max_length"
        return right_pad(features, positions, **options)

    changed(monkeypatch, longer)
    assert wrong(LONGEST)[0] == "batch 0/input_ids"
    assert wrong(FULL) == []


def test_types_of_the_second_sentence_go_on_into_the_padding(wrong, monkeypatch):
    def further(features, positions, options):
        batch = right_pad(features, positions, **options)
        second = features.boundaries[list(positions)][:, None]
        columns = np.arange(batch["input_ids"].shape[1])
        return {**batch, "token_type_ids": (columns >= second).astype(np.int64)}

    changed(monkeypatch, further)
    assert wrong(FULL)
    assert all(name.endswith("token_type_ids") for name in wrong(FULL))


def test_labels_of_other_rows(wrong, monkeypatch):
    right = TokenFeatures.with_targets
    monkeypatch.setattr(
        TokenFeatures, "with_targets", lambda self, i, y, kind: right(self, i, y[::-1], kind)
    )
    assert wrong(FULL)
    assert all(name.endswith("labels") for name in wrong(FULL))


def test_scores_cast_to_integers(wrong, monkeypatch):
    right = TokenFeatures.with_targets
    monkeypatch.setattr(
        TokenFeatures, "with_targets", lambda self, i, labels, _: right(self, i, labels, np.int64)
    )
    assert all(name.endswith("labels") for name in wrong(FULL))
    assert wrong(FULL)[0] == "batch 0/labels"
