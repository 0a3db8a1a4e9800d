"""GLUE's files, layouts, refusals, prediction files, the embedded corpus and the real data.

Rows of all nine tasks: tests/parity/test_glue.py.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter

import numpy as np
import pytest

from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import (
    Example,
    read_split,
    table_task,
    write_predictions,
)
from sot_paddle.data.glue_tasks import TASKS, get_task, resolve_split

RTE = "index\tsentence1\tsentence2\tlabel\n"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"


def test_cola_has_a_header_in_the_test_file_only(task_folder):
    folder = task_folder(
        "CoLA",
        train='gj04\t1\t\tOne "more.\ngj04\t0\t*\tMore one\u2028still one line.',
        dev="gj04\t0\t*\tOnly row.",
        test="index\tsentence\n7\tA sentence.\n",
    )
    assert read_split(folder, "CoLA", "train") == [
        Example(0, 'One "more.', None, 1),
        Example(1, "More one\u2028still one line.", None, 0),
    ]
    assert read_split(folder, "cola", "dev") == [Example(0, "Only row.", None, 0)]
    assert read_split(folder, "cola", "test") == [Example(7, "A sentence.", None, None)]


def test_quotes_carriage_returns_and_empty_last_lines_make_no_rows(task_folder):
    content = RTE + '0\t"A\tb\tentailment\n1\tc\t"d\tnot_entailment\n\n'
    folder = task_folder("RTE", dev=content.replace("\n", "\r\n"))
    assert read_split(folder, "rte", "dev") == [Example(0, '"A', "b", 0), Example(1, "c", '"d', 1)]


def test_stsb_scores(task_folder):
    row = "0\tg\tf\ty\to\ts\tt\tA.\tB.\t"
    folder = task_folder("STS-B", train=STSB + row + "3.750\n")
    assert read_split(folder, "sts-b", "train") == [Example(0, "A.", "B.", 3.75)]
    for cell in ("5.1", "nan"):
        task_folder("STS-B", dev=STSB + row + cell)
        with pytest.raises(ValueError, match=f"line 2: expected .* from 0 to 5, found '{cell}'"):
            read_split(folder, "sts-b", "dev")


def test_qqp_skips_malformed_rows_with_a_message(task_folder, caplog):
    good = "5\t1\t2\tA?\tB?\t1\n"
    folder = task_folder("QQP", train=QQP + good + "6\t3\t4\tC?\tD?0\n" + "rest\n" + good)
    with caplog.at_level(logging.WARNING):
        rows = read_split(folder, "qqp", "train")
    assert rows == [Example(5, "A?", "B?", 1)] * 2
    assert "skipped 2 of 4 rows without exactly 6 columns (the first is line 3)" in caplog.text
    task_folder("QQP", train=QQP + good + "6\t3\t4\tC")
    with pytest.raises(ValueError, match="line 3: expected 6 .* looks truncated"):
        read_split(folder, "qqp", "train")


def test_the_diagnostic_set_lies_in_mnli_s_folder(task_folder):
    folder = task_folder("MNLI")
    match = "MNLI test_diagnostic: expected diagnostic.tsv in"
    with pytest.raises(ValueError, match=match):
        read_split(folder, "mnli", "test_diagnostic")
    rows = '0\tThe "cat sat.\tIt did not.\r\n1\tB.\tC.'
    task_folder("MNLI", diagnostic="index\tsentence1\tsentence2\r\n" + rows)
    assert read_split(folder, "mnli", "test_diagnostic") == [
        Example(0, 'The "cat sat.', "It did not.", None),
        Example(1, "B.", "C.", None),
    ]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"dev.tsv is empty; expected tab-separated rows"),
        (RTE, r"dev.tsv holds a header and no usable row"),
        (RTE + "0\ta\tb\n1\ta\tb\tentailment\n", r"line 2: expected 4 .*found 3 in .*its tabs"),
        (RTE + "0\ta\tb\tentailment\n1\ta", r"line 3: expected 4 .*looks truncated"),
        (RTE + "0\ta\tb\tentail", r"line 2: expected the label entailment or not_ent.*'entail'"),
        (RTE + "x\ta\tb\tentailment\n", r"line 2: invalid literal for int.* 'x'"),
        ("index\tsentence1\tlabel\n", r"line 1: .*missing sentence2, found 'index', 'sentence1'"),
        (RTE.encode() + b"0\ta\t\xff\tentailment\n", r"line 2: expected UTF-8 text.*byte 0xff"),
    ],
)
def test_bad_files_are_refused_in_one_line(task_folder, content, match):
    folder = task_folder("RTE", dev=content)
    with pytest.raises(ValueError, match=match) as refusal:
        read_split(folder, "rte", "dev")
    assert "\n" not in str(refusal.value)
    assert "dev.tsv" in str(refusal.value)


def test_a_wrong_folder_is_described(task_folder, tmp_path):
    task_folder("RTE", dev=RTE)
    for folder, match in (
        ("RTE", r"RTE train: expected train.tsv in .*, which holds dev.tsv"),
        ("", "which holds RTE; give the folder"),
        ("none", "which is no folder; give the folder"),
    ):
        with pytest.raises(ValueError, match=match):
            read_split(tmp_path / folder, "rte", "train")


def test_names_in_any_spelling():
    spellings = {"RTE": "rte", "sst2": "sst-2", "STS-B": "sts-b", "sts_b": "sts-b", "CoLA": "cola"}
    for spelling, name in spellings.items():
        assert get_task(spelling) is TASKS[name]
    with pytest.raises(ValueError, match="unknown GLUE task 'qnly'; expected one of: CoLA, SST-2"):
        get_task("qnly")


def test_splits_of_mnli_and_of_the_others():
    assert resolve_split(TASKS["mnli"], "dev") == "dev_matched"
    assert resolve_split(TASKS["mnli"], "test") == "test_matched"
    assert resolve_split(TASKS["mnli"], "test_mismatched") == "test_mismatched"
    assert TASKS["mnli"].dev_splits == ("dev_matched", "dev_mismatched")
    assert TASKS["rte"].dev_splits == ("dev",)
    with pytest.raises(ValueError, match="RTE has no split 'dev_matched'; expected one of: train"):
        resolve_split(TASKS["rte"], "dev_matched")


@pytest.mark.parametrize(
    ("task", "split", "name", "cells"),
    [
        ("cola", "test", "CoLA.tsv", ["1", "0"]),
        ("rte", "test", "RTE.tsv", ["not_entailment", "entailment"]),
        ("mnli", "test", "MNLI-m.tsv", ["entailment", "contradiction"]),
        ("mnli", "test_diagnostic", "AX.tsv", ["entailment", "contradiction"]),
    ],
)
def test_the_format_of_each_task(tmp_path, task, split, name, cells):
    path = write_predictions(tmp_path / "new", task, [4, 3], np.array([1, 0]), split)
    assert path == tmp_path / "new" / name
    expected = f"index\tprediction\n4\t{cells[0]}\n3\t{cells[1]}\n"
    assert path.read_bytes() == expected.encode()


def test_scores_are_clipped_with_three_decimals_but_those_of_an_own_table(tmp_path):
    """Three decimals made one number of the scores of a table that are of the size of 1e-4."""
    values = np.array([-0.2, 5.7, 2.34567, -0.0], dtype=np.float32)
    path = write_predictions(tmp_path, "STS-B", range(4), values)
    rows = path.read_text().splitlines()[1:]
    assert rows == ["0\t0.000", "1\t5.000", "2\t2.346", "3\t0.000"]
    values = np.array([1.25e-5, 12345.678, -0.5], dtype=np.float32)
    path = write_predictions(tmp_path, table_task(("sentence",)), range(3), values)
    cells = [row.split("\t")[1] for row in path.read_text().splitlines()[1:]]
    assert [np.float32(cell) for cell in cells] == list(values)


CORPUS = {
    "train": (3000, "ddaefc484280"),
    "dev": (500, "5a636bde7509"),
    "test": (500, "c977c23211a6"),
}


def test_the_files_do_not_change_unnoticed():
    texts = set()
    for split, (size, digest) in CORPUS.items():
        content = (FOLDER / f"{split}.tsv").read_bytes()
        assert hashlib.sha256(content).hexdigest().startswith(digest)
        rows = read_split(FOLDER, "cola", split)
        texts |= {row.text_a for row in rows}
        assert len(rows) == size
        if split != "test":
            assert 0.6 <= sum(row.label for row in rows) / size <= 0.7
    assert len(texts) == 4000


# rows and class counts, from the data's own page
COUNTS = {
    ("cola", "train"): {1: 6023, 0: 2528},
    ("rte", "test"): {None: 3000},
    ("mrpc", "dev"): {1: 279, 0: 129},
    ("sst-2", "train"): {1: 37569, 0: 29780},
    ("qqp", "dev"): {0: 3154, 1: 1846},
    ("mnli", "dev_matched"): {1: 3479, 0: 3213, 2: 3123},
}


@pytest.mark.parametrize(("task", "split"), COUNTS)
def test_row_and_label_counts(shared_file, task, split):
    rows = read_split(shared_file(f"data/{TASKS[task].title}"), task, split)
    assert Counter(row.label for row in rows) == COUNTS[task, split]
