"""The real data beside the project: counts and labels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sot_paddle.data.glue import available_splits, read_split
from sot_paddle.data.glue_tasks import TASKS

# rows and class counts, from the data's own page
COUNTS = {
    ("cola", "train"): {1: 6023, 0: 2528},
    ("cola", "dev"): {1: 721, 0: 322},
    ("cola", "test"): {None: 1063},
    ("rte", "train"): {0: 1249, 1: 1241},
    ("rte", "dev"): {0: 146, 1: 131},
    ("rte", "test"): {None: 3000},
    ("mrpc", "train"): {1: 2474, 0: 1194},
    ("mrpc", "dev"): {1: 279, 0: 129},
    ("mrpc", "test"): {None: 1725},
    ("sst-2", "train"): {1: 37569, 0: 29780},
    ("sst-2", "dev"): {1: 444, 0: 428},
    ("sst-2", "test"): {None: 1821},
    ("qnli", "train"): {0: 4000, 1: 4000},
    ("qnli", "dev"): {0: 2702, 1: 2761},
    ("qqp", "train"): {0: 11595, 1: 6901},
    ("qqp", "dev"): {0: 3154, 1: 1846},
    ("mnli", "train"): {0: 160, 1: 160, 2: 160},
    ("mnli", "dev_matched"): {1: 3479, 0: 3213, 2: 3123},
    ("sts-b", "test"): {None: 1379},
}
MEANS = {("sts-b", "train"): (5749, 2.701), ("sts-b", "dev"): (1500, 2.364)}
REAL_TASKS = ["cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte"]


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_row_and_label_counts(shared_data, task, split):
    rows = read_split(shared_data / TASKS[task].title, task, split)
    assert Counter(row.label for row in rows) == COUNTS[task, split]


@pytest.mark.parametrize(("task", "split"), MEANS)
def test_scores(shared_data, task, split):
    scores = [row.label for row in read_split(shared_data / TASKS[task].title, task, split)]
    count, mean = MEANS[task, split]
    assert len(scores) == count
    assert np.mean(scores) == pytest.approx(mean, abs=5e-4)
    assert (min(scores), max(scores)) == (0.0, 5.0)


def test_which_splits_are_there(shared_data):
    found = {name: available_splits(shared_data / TASKS[name].title, name) for name in REAL_TASKS}
    assert found["mnli"] == ("train", "dev_matched")
    assert found["qqp"] == found["qnli"] == ("train", "dev")
    assert all(found[name] == ("train", "dev", "test") for name in ("cola", "rte", "mrpc"))
