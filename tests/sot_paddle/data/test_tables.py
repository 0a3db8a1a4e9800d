"""Rows of every form, the published data sets of whole texts, and own tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from sot_paddle.data.documents import (
    comma_rows,
    folder_rows,
    labelled_rows,
    read_own,
    read_published,
    tab_rows,
)
from sot_paddle.data.glue import MISSING, Example, own_task, read_split


@pytest.mark.parametrize(
    ("read", "columns", "content", "rows"),
    [
        (
            tab_rows,
            ("text", "label"),
            b'\xef\xbb\xbf"a\t1\r\n b \t2',
            [(1, {"text": '"a', "label": "1"}), (2, {"text": " b ", "label": "2"})],
        ),
        (
            comma_rows,
            ("n", "x", "y"),
            '\ufeff"1","a ""b"",\nc\r\n","ü"\r\n"2","",d\n\n'.encode(),
            [(3, {"n": "1", "x": 'a "b",\nc\r\n', "y": "ü"}), (4, {"n": "2", "x": "", "y": "d"})],
        ),
        (  # without a header above it a row may hold any words
            comma_rows,
            ("a", "b"),
            b"1,2\na,b\n",
            [(1, {"a": "1", "b": "2"}), (2, {"a": "a", "b": "b"})],
        ),
        (
            comma_rows,
            ("a", "b"),
            b'1,"' + b"word " * 40_000 + b'"\n',  # longer than the csv module's own limit
            [(1, {"a": "1", "b": "word " * 40_000})],
        ),
        (
            labelled_rows,
            None,
            b"LOC:city Where is M\xfcnchen ?\n",
            [(1, {"label": "LOC", "text": "Where is München ?"})],
        ),
    ],
)
def test_rows_and_their_lines(tmp_path, read, columns, content, rows) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    rows_of_file = read(path) if columns is None else read(path, columns)
    assert list(rows_of_file) == [(f"{path}, line {at}", row) for at, row in rows]


@pytest.mark.parametrize(
    ("read", "columns", "content", "match"),
    [
        (tab_rows, [("a", "b")], b"1\t2\n1\n", "line 2: expected 2 tab-separated columns"),
        (comma_rows, [("a", "b")], b"1,2\n\n1,\xff\n", "line 3: expected UTF-8 text"),
        (comma_rows, [("a", "b")], b'1,2\n1,"open\n2,3\n', "line 2: no comma-separated row"),
        (labelled_rows, [], b"LOC:city\n", "line 1: expected LABEL:detail and a text"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, read, columns, content, match) -> None:
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(ValueError, match=match):
        list(read(tmp_path / "rows", *columns))


def test_a_folder_for_each_class(tmp_path) -> None:
    for label, name, text in (("neg", "2_1", "bad"), ("neg", "10_1", "worse"), ("pos", "1_9", "ü")):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / f"{name}.txt").write_text(text, encoding="utf-8")
    rows = list(folder_rows(tmp_path, ("neg", "pos")))
    assert [row["text"] for _, row in rows] == ["worse", "bad", "ü"]
    assert rows[2] == (str(tmp_path / "pos" / "1_9.txt"), {"text": "ü", "label": "pos"})
    (tmp_path / "pos" / "2_8.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="2_8.txt, line 1: expected UTF-8 text"):
        list(folder_rows(tmp_path, ("pos",)))


def put(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")
    return folder


def test_the_official_files_win_and_d2s_own_are_read_too(tmp_path) -> None:
    put(tmp_path, train_dot_csv="1\tgood\n0\tbad\npos\tfine\n")
    task, rows = read_published("IMDB", tmp_path, ["train"])
    assert (task.title, task.labels, task.metrics) == ("IMDB", ("neg", "pos"), ("acc",))
    assert list(rows["train"].labels) == [1, 0, 1]
    assert rows["train"].rows == [("good",), ("bad",), ("fine",)]
    put(tmp_path, train__neg__1_1_dot_txt="awful", train__pos__1_9_dot_txt="lovely")
    _, rows = read_published("IMDB", tmp_path, ["train"])
    assert rows["train"].rows == [("awful",), ("lovely",)]


def test_own_tables_are_those_of_glue(tmp_path) -> None:
    put(
        tmp_path,
        train_dot_tsv="label\tsentence1\tsentence2\nb\tt\tu\na\t\tv\n",
        test_dot_tsv="sentence1\tsentence2\n1\t2\n",
    )
    task, rows = read_own(tmp_path, ["train", "test"])
    assert (task.labels, task.text) == (("a", "b"), ("sentence1", "sentence2"))
    assert rows["train"].rows == [("t", "u"), ("", "v")]
    assert list(rows["train"].labels) == [1, 0]
    assert rows["test"].labels is None
    assert rows["test"].rows == [("1", "2")]


def test_the_real_files(shared_file) -> None:
    folder = shared_file("data/README.md").parent
    task, rows = read_published("TREC", folder / "TREC", ["train", "dev"])
    assert [len(rows[name].rows) for name in ("train", "dev")] == [5452, 500]
    assert list(rows["train"].labels).count(task.labels.index("ABBR")) == 86
    _, rows = read_published("IMDB", folder / "aclImdb", ["dev"])
    assert (len(rows["dev"].rows), sum(rows["dev"].labels)) == (250, 125)
    _, rows = read_published("Yahoo", folder / "yahoo_answers_csv", ["train"])
    assert sorted(set(rows["train"].labels)) == list(range(10))
    assert len(rows["train"].rows) == 1000


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


def test_a_score_is_a_number_that_float32_holds(task_folder):
    folder = task_folder("own", train="sentence\tlabel\na\t0.5\nb\t-3\n")
    task = own_task(folder, regression=True)
    assert task.num_outputs == 1
    assert [row.label for row in read_split(folder, task, "train")] == [0.5, -3.0]
    for cell in ("x", "nan", "1e39"):
        task_folder("own", train=f"sentence\tlabel\na\t0.5\nb\t{cell}\n")
        with pytest.raises(ValueError, match=r"line 3: expected .* from -3.4.* to 3.4.*, found"):
            read_split(folder, task, "train")


def test_tables_without_a_column_or_a_second_class_are_refused(task_folder):
    folder = task_folder("own", train="words\tlabel\na\t1\nb\t2\n")
    with pytest.raises(ValueError, match="the column sentence or text, or sentence1 and sentence2"):
        own_task(folder)
    task_folder("own", train="sentence\tlabel\na\t1\nb\t1\n")
    with pytest.raises(ValueError, match="2 to 1000 different labels, found 1; .* --regression"):
        own_task(folder)


@pytest.mark.parametrize("cell", ["", " 1", *MISSING[:2]])
def test_what_is_no_label_is_no_class_of_its_own(task_folder, cell):
    folder = task_folder("own", train=f"sentence\tlabel\na\t0\nb\t1\nc\t{cell}\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 4: expected a label without blanks"):
        own_task(folder)
