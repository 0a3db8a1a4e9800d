"""Layouts that differ from the plain one, and every refusal, on small files.

Rows of all nine tasks: tests/parity/test_glue.py.
"""

from __future__ import annotations

import logging

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.glue import Example, available_splits, read_split, split_paths

RTE = "index\tsentence1\tsentence2\tlabel\n"
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
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


MRPC_ROWS = ["1\t11\t12\tA b.\tB a.", "0\t21\t22\tC.\tD.", "1\t12\t11\tE.\tF."]


def test_both_layouts_of_mrpc_give_the_same_rows(task_folder):
    old = task_folder(
        "old",
        msr_paraphrase_train_txt=MRPC + "\r\n".join(MRPC_ROWS) + "\r\n",
        msr_paraphrase_test_txt=MRPC + "1\t31\t32\tG.\tH.",
        dev_ids="21\t22\n",
    )
    new = task_folder(
        "new",
        train=MRPC + MRPC_ROWS[0] + "\n" + MRPC_ROWS[2] + "\n",
        dev=MRPC + MRPC_ROWS[1] + "\n",
        test="index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t31\t32\tG.\tH.\n",
    )
    for split in ("train", "dev"):
        assert read_split(old, "mrpc", split) == read_split(new, "mrpc", split)
    assert read_split(old, "mrpc", "dev") == [Example(0, "C.", "D.", 0)]
    assert [row.text_a for row in read_split(old, "mrpc", "train")] == ["A b.", "E."]
    assert read_split(new, "mrpc", "test") == [Example(0, "G.", "H.", None)]
    assert read_split(old, "mrpc", "test") == [Example(0, "G.", "H.", 1)]  # labelled there
    assert [path.name for path in split_paths(old, "mrpc", "dev")] == [
        "msr_paraphrase_train.txt",
        "dev_ids.tsv",
    ]


def test_mrpc_needs_a_whole_list_of_ids(task_folder):
    folder = task_folder("MRPC", msr_paraphrase_train_txt=MRPC + MRPC_ROWS[0])
    match = "expected dev.tsv or msr_paraphrase_train.txt with dev_ids.tsv in"
    with pytest.raises(DataError, match=match):
        read_split(folder, "mrpc", "dev")
    for listed, match in (
        ("1\n", "dev_ids.tsv, line 1: expected 2 tab-separated columns"),
        ("8\t9\n", "holds no row of the split 'dev' of MRPC"),
    ):
        task_folder("MRPC", dev_ids=listed)
        with pytest.raises(DataError, match=match):
            read_split(folder, "mrpc", "dev")


def test_stsb_scores(task_folder):
    row = "0\tg\tf\ty\to\ts\tt\tA.\tB.\t"
    folder = task_folder("STS-B", train=STSB + row + "3.750\n", dev=STSB + row + "5.1\n")
    assert read_split(folder, "sts-b", "train") == [Example(0, "A.", "B.", 3.75)]
    with pytest.raises(DataError, match=r"line 2: expected a score from 0 to 5, found '5.1'"):
        read_split(folder, "sts-b", "dev")
    for cell in ("high", "nan", ""):
        task_folder("STS-B", dev=STSB + row + cell + "\n")
        with pytest.raises(DataError, match=f"expected a score from 0 to 5, found '{cell}'"):
            read_split(folder, "sts-b", "dev")


def test_qqp_skips_malformed_rows_with_a_message(task_folder, caplog):
    good = "5\t1\t2\tA?\tB?\t1\n"
    folder = task_folder("QQP", train=QQP + good + "6\t3\t4\tC?\tD?0\n" + "rest\n" + good)
    with caplog.at_level(logging.WARNING):
        rows = read_split(folder, "qqp", "train")
    assert rows == [Example(5, "A?", "B?", 1)] * 2
    assert "skipped 2 of 4 rows without exactly 6 columns (the first is line 3)" in caplog.text
    task_folder("QQP", train=QQP + good + "6\t3\t4\tC")
    with pytest.raises(DataError, match="line 3: expected 6 .* looks truncated"):
        read_split(folder, "qqp", "train")
    task_folder("QQP", train=QQP + "6\t3\t4\tC\n")
    with pytest.raises(DataError, match="no usable row"):
        read_split(folder, "qqp", "train")


@pytest.mark.parametrize(
    ("place", "name"),
    [("MNLI", "diagnostic"), ("MNLI", "AX"), ("diagnostic", "diagnostic"), ("AX", "AX")],
)
def test_the_diagnostic_set_lies_in_mnli_s_folder_or_beside_it(task_folder, place, name):
    folder = task_folder("MNLI")
    assert "test_diagnostic" not in available_splits(folder, "mnli")
    match = "MNLI test_diagnostic: expected diagnostic.tsv or AX.tsv or ../diagnostic/diagnostic.ts"
    with pytest.raises(DataError, match=match):
        read_split(folder, "mnli", "test_diagnostic")
    rows = '0\tThe "cat sat.\tIt did not.\r\n1\tB.\tC.'
    task_folder(place, **{name: "index\tsentence1\tsentence2\r\n" + rows})
    assert available_splits(folder, "mnli") == ("test_diagnostic",)
    assert read_split(folder, "mnli", "test_diagnostic") == [
        Example(0, 'The "cat sat.', "It did not.", None),
        Example(1, "B.", "C.", None),
    ]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"dev.tsv is empty; expected tab-separated rows"),
        ("\ufeff\n\n", "is empty"),
        (RTE, r"dev.tsv holds a header and no usable row"),
        (RTE + "0\ta\tb\n1\ta\tb\tentailment\n", r"line 2: expected 4 .*found 3 in .*row's tabs"),
        (RTE + "0\ta\tb\tc\tentailment\n", r"line 2: expected 4 tab-separated .*found 5"),
        (RTE + "0\ta\tb\tentailment\n1\ta", r"line 3: expected 4 .*looks truncated"),
        (RTE + "0\ta\tb\tentailment\n\n0\ta\tb\tentailment\n", r"line 3: expected 4 .*found 1"),
        (RTE + "0\ta\tb\tentail", r"line 2: expected the label entailment or not_ent.*'entail'"),
        (RTE + "0\ta\tb\t\n", r"line 2: expected the label .* found ''"),
        (RTE + "x\ta\tb\tentailment\n", r"line 2: invalid literal for int.* 'x'"),
        (RTE + f"{2**63}\ta\tb\tentailment\n", r"line 2: expected a row number, found 9223"),
        ("index\tsentence1\tlabel\n", r"line 1: .*missing sentence2, found 'index', 'sentence1'"),
        ("<html>\n", r"line 1: expected a header with the columns sentence1, sentence2, label"),
        (RTE.replace("index", "label"), "expected different column names"),
        ("gj04\t1\t\tA row of CoLA.\n", "expected a header with the columns sentence1"),
        (RTE.encode() + b"0\ta\t\xff\tentailment\n", r"line 2: expected UTF-8 text.*byte 0xff"),
    ],
)
def test_bad_files_are_refused_in_one_line(task_folder, content, match):
    folder = task_folder("RTE", dev=content)
    with pytest.raises(DataError, match=match) as refusal:
        read_split(folder, "rte", "dev")
    assert "\n" not in str(refusal.value)
    assert "dev.tsv" in str(refusal.value)


def test_a_wrong_folder_is_described(task_folder, tmp_path):
    task_folder("RTE", dev=RTE)
    with pytest.raises(
        DataError, match=r"RTE train: expected train.tsv in .*, which holds dev.tsv"
    ):
        read_split(tmp_path / "RTE", "rte", "train")
    with pytest.raises(DataError, match=r"which holds RTE/; did you mean .*RTE\?"):
        read_split(tmp_path, "rte", "dev")
    with pytest.raises(DataError, match="does not exist; give the folder"):
        read_split(tmp_path / "none", "rte", "dev")
    with pytest.raises(DataError, match="is a file, not a folder"):
        read_split(tmp_path / "RTE" / "dev.tsv", "rte", "dev")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="which holds nothing"):
        read_split(tmp_path / "empty", "rte", "dev")
