"""The real data beside the project: counts, labels, and tokens equal to transformers'."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from transformers import BertTokenizer, BertTokenizerFast

import sot_torch_ref  # noqa: F401  (makes transformers importable beside a CPU build of torch)
from sot_paddle.data.cache import cached_split
from sot_paddle.data.glue import available_splits, read_split
from sot_paddle.data.glue_tasks import TASKS, SplitFile, Task, standard_splits
from sot_paddle.data.tokenization import WordPieceTokenizer

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


def test_both_layouts_of_mrpc_hold_the_same_pairs(shared_data):
    folder = shared_data / "MRPC"
    listed, name = "dev_ids.tsv", "msr_paraphrase_train.txt"
    old = Task(
        **{
            field: getattr(TASKS["mrpc"], field)
            for field in TASKS["mrpc"].__dataclass_fields__
            if field != "splits"
        },
        splits=standard_splits(
            train=(SplitFile(name, member_ids=listed, members=False),),
            dev=(SplitFile(name, member_ids=listed),),
            test=(SplitFile("msr_paraphrase_test.txt"),),
        ),
    )
    for split, count in (("train", 3668), ("dev", 408)):
        rows = read_split(folder, old, split)
        assert len(rows) == count
        pairs = Counter((row.text_a, row.text_b, row.label) for row in rows)
        official = read_split(folder, "mrpc", split)
        assert pairs == Counter((row.text_a, row.text_b, row.label) for row in official)
    assert Counter(row.label for row in read_split(folder, old, "test")) == {1: 1147, 0: 578}


def sample(shared_data, task: str) -> tuple[list[str], ...]:
    """200 rows spread over the training file, as one or two lists of texts."""
    rows = read_split(shared_data / TASKS[task].title, task, "train")
    rows = [rows[position] for position in np.linspace(0, len(rows) - 1, 200).astype(int)]
    first = [row.text_a for row in rows]
    return (first,) if len(TASKS[task].text) == 1 else (first, [row.text_b for row in rows])


@pytest.mark.parametrize("task", REAL_TASKS)
@pytest.mark.parametrize(("vocabulary", "lower"), [("uncased", True), ("cased", True)])
def test_tokens_equal_transformers(shared_data, task, vocabulary, lower, capfd):
    """(cased, lower) is the original's own command."""
    path = shared_data / "vocab" / f"bert-base-{vocabulary}" / "vocab.txt"
    texts = sample(shared_data, task)
    options = {"padding": "max_length", "truncation": "longest_first", "max_length": 40}
    for kind, tie_break in ((BertTokenizer, "slow"), (BertTokenizerFast, "fast")):
        expected = kind(str(path), do_lower_case=lower)(*texts, return_tensors="np", **options)
        ours = WordPieceTokenizer(
            path, do_lower_case=lower, max_length=40, tie_break=tie_break
        ).encode_batch(*texts)
        for name, array in ours.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=f"{name} {tie_break}")
    capfd.readouterr()  # transformers talks about overflowing tokens


def test_the_cache_on_real_data(shared_data, tmp_path):
    tokenizer = WordPieceTokenizer(shared_data / "vocab" / "bert-base-cased" / "vocab.txt")
    folder = shared_data / "CoLA"
    first = cached_split(folder, "cola", "train", tokenizer, tmp_path)
    again = cached_split(folder, "cola", "train", tokenizer, tmp_path)
    assert len(first) == len(again) == 8551
    assert all(np.array_equal(a, again.arrays()[n]) for n, a in first.arrays().items())
