"""Rows of tables of every form, and what is no row."""

from __future__ import annotations

import pytest

from sot_paddle.data.documents.row_files import (
    comma_rows,
    folder_rows,
    json_rows,
    labelled_rows,
    tab_rows,
)


@pytest.mark.parametrize(
    ("read", "columns", "content", "rows"),
    [
        (
            tab_rows,
            (),
            b'\xef\xbb\xbftext\tlabel\r\n"a\t1\r\n b \t2',
            [(2, {"text": '"a', "label": "1"}), (3, {"text": " b ", "label": "2"})],
        ),
        (
            comma_rows,
            ("n", "x", "y"),
            '\ufeff"1","a ""b"",\nc\r\n","ü"\r\n"2","",d\n\n'.encode(),
            [(1, {"n": "1", "x": 'a "b",\nc\r\n', "y": "ü"}), (4, {"n": "2", "x": "", "y": "d"})],
        ),
        (  # without a header above it a row may hold any words
            comma_rows,
            ("a", "b"),
            b"1,2\na,b\n",
            [(1, {"a": "1", "b": "2"}), (2, {"a": "a", "b": "b"})],
        ),
        (
            comma_rows,
            (),
            b'a,b\n1,"' + b"word " * 40_000 + b'"\n',  # longer than the csv module's own limit
            [(2, {"a": "1", "b": "word " * 40_000})],
        ),
        (
            json_rows,
            (),
            '\ufeff{"a": "ü", "n": 3, "more": null}\n\n{"n": 4, "a": "b\\nc"}'.encode(),
            [(1, {"a": "ü", "n": "3"}), (3, {"n": "4", "a": "b\nc"})],
        ),
        (
            labelled_rows,
            (),
            b"LOC:city Where is M\xfcnchen ?\n",
            [(1, {"label": "LOC", "text": "Where is München ?"})],
        ),
    ],
)
def test_rows_and_their_lines(tmp_path, read, columns, content, rows) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    assert list(read(path, columns)) == [(f"{path}, line {at}", row) for at, row in rows]


@pytest.mark.parametrize(
    ("read", "content", "match"),
    [
        (tab_rows, b"a\tb\n1\n", "line 2: expected 2 tab-separated columns"),
        (tab_rows, b"a\tb\n1\t\xff\n", "line 2: expected UTF-8 text"),
        (tab_rows, b"a\tb\n\n1\t2\n", "line 2: expected 2 tab-separated columns"),
        (tab_rows, b"a\tb\n", "no usable row"),
        (tab_rows, b"", "is empty"),
        (tab_rows, b"a\ta\n1\t2\n", "different column names"),
        (comma_rows, b"a,b\n1\n", r"line 2: expected 2 columns \(a, b\), found 1 in '1'"),
        (comma_rows, b"a,b\n\n1,\xff\n", "line 3: expected UTF-8 text"),
        (comma_rows, b"a,a\n1,2\n", "line 1: expected different column names"),
        (comma_rows, b'a,b\n1,"open\n2,3\n', "line 2: no comma-separated row"),
        (comma_rows, b'a,b\n1,2\n1,"x"y\n', "line 3: no comma-separated row"),
        (comma_rows, b"a,b\n1,x\ry\n", "line 3: expected 2 columns"),
        (json_rows, b'{"a": 1}\n{"a": \n', "line 2: not JSON"),
        (json_rows, b"[1]\n", "line 1: expected a JSON object"),
        (json_rows, b'{"a": "b"}\n{"a": "cut \\ud83d"}\n', r"line 2, 'a': .* \\ud83d without"),
        (labelled_rows, b"LOC:city\n", "line 1: expected LABEL:detail and a text"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, read, content, match) -> None:
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(ValueError, match=match):
        list(read(tmp_path / "rows", ()))


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
    with pytest.raises(ValueError, match="other holds no .txt file"):
        list(folder_rows(tmp_path, ("other",)))
