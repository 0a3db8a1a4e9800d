"""The published data sets of whole texts, and own tables, by their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sot_paddle.data.documents.layouts import read_own, read_published, task_title
from sot_paddle.data.errors import DataError


def put(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")
    return folder


@pytest.mark.parametrize(
    ("name", "title"),
    [("imdb", "IMDB"), ("TREC", "TREC"), ("Yahoo Answers", "Yahoo"), ("yahoo_answers", "Yahoo")],
)
def test_names_in_any_case(name, title) -> None:
    assert task_title(name) == title
    with pytest.raises(DataError, match="unknown task 'AG'; expected one of: IMDB, TREC, Yahoo"):
        task_title("AG")


def test_the_official_files_win_and_d2s_own_are_read_too(tmp_path) -> None:
    put(tmp_path, train_dot_csv="1\tgood\n0\tbad\npos\tfine\n")
    task, rows = read_published("IMDB", tmp_path, ["train"])
    assert (task.title, task.labels, task.metrics) == ("IMDB", ("neg", "pos"), ("acc",))
    assert list(rows["train"].labels) == [1, 0, 1]
    assert rows["train"].rows == [("good",), ("bad",), ("fine",)]
    put(tmp_path, train__neg__1_1_dot_txt="awful", train__pos__1_9_dot_txt="lovely")
    _, rows = read_published("IMDB", tmp_path, ["train"])
    assert rows["train"].rows == [("awful",), ("lovely",)]


def test_own_tables_of_three_forms_with_named_columns(tmp_path) -> None:
    put(
        tmp_path,
        train_dot_jsonl='{"topic": "b", "title": "t", "body": "u"}\n'
        '{"topic": "a", "title": "", "body": "v"}\n',
        dev_dot_csv='body,topic,title\n"x, y",a,z\n',
        test_dot_tsv="title\tbody\n1\t2\n",
    )
    task, rows = read_own(tmp_path, ["train", "dev", "test"], ("title", "body"), "topic")
    assert (task.labels, task.text, task.label) == (("a", "b"), ("title", "body"), "topic")
    assert list(rows["train"].labels) == [1, 0]
    assert rows["dev"].rows == [("z", "x, y")]
    assert rows["test"].labels is None
    assert rows["test"].rows == [("1", "2")]


@pytest.mark.parametrize(
    ("files", "options", "match"),
    [
        ({}, {}, "expected one of train.tsv, train.csv, train.jsonl in .*, found none"),
        (
            {"train_dot_tsv": "a", "train_dot_csv": "a"},
            {},
            "found train.tsv and train.csv",
        ),
        ({"train_dot_tsv": "text\tlabel\na\t1\nb\t1\n"}, {}, "expected 2 to 1000 different labels"),
        ({"train_dot_tsv": "text\tlabel\na\t1\nb\t2\n"}, {"label": "no"}, "line 2: .* column no"),
        (
            {"train_dot_tsv": "words\tlabel\na\t1\nb\t2\n"},
            {},
            "expected the column sentence or text",
        ),
        (
            {"train_dot_tsv": "text\tlabel\na\t1\nb\t2\n", "dev_dot_tsv": "text\tlabel\na\t3\n"},
            {},
            "dev.tsv, line 2: expected a label of 1, 2 in label, found '3'",
        ),
        (
            {"train_dot_jsonl": '{"text": "a", "label": 1}\n{"label": 2}\n'},
            {},
            "line 2: expected the column text",
        ),
    ],
)
def test_refusals_of_own_tables(tmp_path, files, options, match) -> None:
    splits = ["train", "dev"] if "dev_dot_tsv" in files else ["train"]
    with pytest.raises(DataError, match=match):
        read_own(put(tmp_path, **files), splits, (), options.get("label", "label"))


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
