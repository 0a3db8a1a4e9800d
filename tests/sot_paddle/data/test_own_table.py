"""A user's own TSV files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sot_paddle.data.documents.layouts import read_own
from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import Example, read_split
from sot_paddle.data.own_table import MISSING, own_task


def test_single_sentences_with_words_as_labels(task_folder):
    folder = task_folder(
        "own",
        train="label\tnote\tsentence\nspam\t-\tBuy!\nham\t-\tHi.\nspam\t-\tNow!\n",
        dev="sentence\tlabel\nHi.\tham\n",
        test="sentence\tlabel\nHi.\tunknown here\n",
    )
    task = own_task(folder)
    assert (task.labels, task.text, task.metrics) == (("ham", "spam"), ("sentence",), ("acc",))
    assert [row.label for row in read_split(folder, task, "train")] == [1, 0, 1]
    assert read_split(folder, task, "dev") == [Example(0, "Hi.", None, 0)]
    assert read_split(folder, task, "test") == [Example(0, "Hi.", None, None)]


def test_pairs_with_numbers_as_labels_in_numeric_order(task_folder):
    rows = "".join(f"s{n}\tt{n}\t{n}\n" for n in (10, 2, -1))
    folder = task_folder("own", train="sentence1\tsentence2\tlabel\n" + rows)
    task = own_task(folder)
    assert task.labels == ("-1", "2", "10")
    assert read_split(folder, task, "train")[0] == Example(0, "s10", "t10", 2)


def test_regression(task_folder):
    folder = task_folder("own", train="sentence\tlabel\na\t0.5\nb\t-3\n")
    task = own_task(folder, regression=True)
    assert task.num_outputs == 1
    assert [row.label for row in read_split(folder, task, "train")] == [0.5, -3.0]


@pytest.mark.parametrize("cell", ["x", "inf", "nan", "1e39"])
def test_a_score_is_a_number_that_float32_holds(task_folder, cell):
    folder = task_folder("own", train=f"sentence\tlabel\na\t0.5\nb\t{cell}\n")
    with pytest.raises(DataError, match=r"line 3: expected a score from -3.4.* to 3.4.*, found"):
        read_split(folder, own_task(folder, regression=True), "train")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("words\tlabel\na\t1\nb\t2\n", "the column sentence or text, or sentence1 and sentence2"),
        ("sentence\tclass\na\t1\n", "missing label"),
        (
            "sentence\tlabel\na\t1\nb\t1\n",
            "expected 2 to 1000 different labels, found 1; .* train_glue.py --regression",
        ),
        ("sentence\tlabel\na\n", "line 2: expected 2 tab-separated columns"),
    ],
)
def test_refusals(task_folder, content, match):
    folder = task_folder("own", train=content)
    with pytest.raises(DataError, match=match):
        own_task(folder)


def test_a_folder_without_train_file(tmp_path):
    with pytest.raises(DataError, match="expected train.tsv in"):
        own_task(tmp_path)


@pytest.mark.parametrize("cell", ["", " ", " 1", "1 ", "\u00a01", *MISSING])
def test_what_is_no_label_is_no_class_of_its_own(task_folder, cell):
    folder = task_folder("own", train=f"sentence\tlabel\na\t0\nb\t1\nc\t{cell}\n")
    with pytest.raises(DataError, match=r"train\.tsv, line 4: expected a label without blanks"):
        own_task(folder)
    (folder / "train.csv").write_text(f"text,label\na,0\nb,1\nc,{cell}\n", "utf-8")
    (folder / "train.tsv").unlink()
    with pytest.raises(DataError, match=r"train\.csv, line 4: expected a label without blanks"):
        read_own(folder, ["train"], (), "label")


def test_what_pandas_writes_for_missing_labels_is_known():
    values = [float("nan"), np.float64("nan"), None, pd.NA, pd.NaT]
    assert {str(value) for value in values} <= set(MISSING)
    assert {str(value) for value in pd.Series(values, dtype=object).astype(str)} <= set(MISSING)


def test_a_missing_label_in_json_lines_is_refused(tmp_path):
    for value, told in (("NaN", "found 'nan'"), ("null", "the column label")):
        lines = ['{"text": "a", "label": 0}', '{"text": "b", "label": 1}']
        lines.append(f'{{"text": "c", "label": {value}}}')
        (tmp_path / "train.jsonl").write_text("\n".join(lines), "utf-8")
        with pytest.raises(DataError, match=f"line 3: expected .*{told}"):
            read_own(tmp_path, ["train"], (), "label")


def test_files_that_were_joined_are_refused_at_the_second_header(task_folder):
    table = "sentence\tlabel\na\t0\nb\t1\n"
    folder = task_folder("own", train=table, dev=table, test=table + table)
    told = r"test.tsv, line 4: expected a row, found the header again \(sentence, label\)"
    for read in (
        lambda: read_split(folder, own_task(folder), "test"),
        lambda: read_own(folder, ["test"], (), "label"),
    ):
        with pytest.raises(DataError, match=told):
            read()
    task_folder("own", test="sentence\na\nsentence\n")  # the only column's name is a row
    assert len(read_split(folder, own_task(folder), "test")) == 2
    assert len(read_own(folder, ["test"], (), "label")[1]["test"].rows) == 2
