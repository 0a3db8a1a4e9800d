"""Rows of tables that are indexed and read again when they are asked for."""

from __future__ import annotations

import csv
import json
import sys
from types import FrameType
from typing import Any

import pytest

from sot_paddle.data.documents import row_files
from sot_paddle.data.documents.row_files import (
    COMMA,
    JSON_LINES,
    LABELLED,
    TAB,
    FolderRows,
    RowFile,
)
from sot_paddle.data.errors import DataError


def written(tmp_path, content: bytes, name: str = "rows"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def rows(file: RowFile) -> list[dict]:
    return [dict(file.row(position)) for position in range(len(file))]


def test_tabs_with_a_mark_windows_ends_and_no_last_newline(tmp_path) -> None:
    path = written(tmp_path, b'\xef\xbb\xbftext\tlabel\r\n"a\t1\r\n b \t2')
    file = RowFile(path, TAB)
    assert rows(file) == [{"text": '"a', "label": "1"}, {"text": " b ", "label": "2"}]
    assert file.columns == ("text", "label")
    other = RowFile(written(tmp_path, b"text\tlabel\na\t1\n", "other"), TAB)
    assert other.fingerprint != file.fingerprint


def test_a_row_without_a_header_above_it_may_hold_any_words(tmp_path) -> None:
    named = RowFile(written(tmp_path, b"a,b\n1,2\na,b\n"), COMMA, ("a", "b"))
    assert len(named) == 3
    line = b'{"a": "a", "b": "b"}\n'
    assert len(RowFile(written(tmp_path, line * 2), JSON_LINES)) == 2


def test_commas_with_line_ends_and_doubled_quotes_in_a_cell(tmp_path) -> None:
    path = written(tmp_path, '"1","a ""b"",\nc\n","ü"\n"2","",d\n'.encode())
    seen: list[str] = []
    file = RowFile(path, COMMA, ("n", "x", "y"), lambda row, where: seen.append(where))
    assert rows(file) == [
        {"n": "1", "x": 'a "b",\nc\n', "y": "ü"},
        {"n": "2", "x": "", "y": "d"},
    ]
    assert seen == [f"{path}, line 1", f"{path}, line 4"]


def test_a_cell_longer_than_the_csv_modules_own_limit(tmp_path) -> None:
    before = csv.field_size_limit(1000)
    long = "word " * 40_000
    file = RowFile(written(tmp_path, f'a,b\n1,"{long}"\n'.encode()), COMMA)
    assert file.row(0)["b"] == long
    assert csv.field_size_limit(before) == 1000  # as it was left by others


def test_a_quote_left_open_is_found_in_one_pass(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(row_files, "LARGEST_ROW", 4000)
    path = written(tmp_path, b'text,label\na 5" disk,1\n' + b"x,1\n" * 1000)
    counted = []

    def note(_: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ == "count":
            counted.append(len(called.__self__))

    sys.setprofile(note)
    try:
        with pytest.raises(DataError, match=r"line 2: a row of more than .*; is a quote left"):
            RowFile(path, COMMA)
    finally:
        sys.setprofile(None)
    assert 0 < sum(counted) <= path.stat().st_size  # a pass for every line: two million


def test_half_a_character_in_json_lines_is_refused_with_its_line(tmp_path) -> None:
    path = written(tmp_path, b'{"text": "a \\ud83d\\ude00"}\n{"text": "cut \\ud83d"}\n')
    with pytest.raises(ValueError, match=r"line 2, 'text': .* \\ud83d without .* 'cut '"):
        RowFile(path, JSON_LINES)


def test_json_lines_name_their_cells(tmp_path) -> None:
    lines = [{"a": "ü", "n": 3, "more": None}, {"n": 4, "a": "b\nc"}]
    path = written(tmp_path, "\n".join(map(json.dumps, lines)).encode())
    assert rows(RowFile(path, JSON_LINES)) == [{"a": "ü", "n": "3"}, {"n": "4", "a": "b\nc"}]


def test_labels_before_the_text_in_latin_1(tmp_path) -> None:
    path = written(tmp_path, b"LOC:city Where is M\xfcnchen ?\n")
    assert RowFile(path, LABELLED, ("label", "text")).row(0) == {
        "label": "LOC",
        "text": "Where is München ?",
    }


def test_rows_are_read_from_the_disk_each_time(tmp_path) -> None:
    path = written(tmp_path, b"0\taa\n1\tbb\n")
    file = RowFile(path, TAB, ("label", "text"))
    with path.open("r+b") as stream:
        stream.seek(2)
        stream.write(b"cc")
    assert file.row(0)["text"] == "cc"
    with path.open("r+b") as stream:
        stream.truncate(6)
    with pytest.raises(DataError, match="row 1: the file was cut off while it was used"):
        file.row(1)


@pytest.mark.parametrize(
    ("form", "content", "match"),
    [
        (TAB, b"a\tb\n1\n", "line 2: expected 2 columns"),
        (TAB, b"a\tb\n1\t\xff\n", "line 2: expected UTF-8 text, found byte 0xff"),
        (TAB, b"a\tb\n\n1\t2\n", "line 2: expected a row, found an empty line"),
        (TAB, b"a\tb\n", "holds no row"),
        (TAB, b"", "holds no row"),
        (TAB, b"a\ta\n1\t2\n", "different column names"),
        (COMMA, b'a,b\n1,"open\n2,3\n', "line 2: a quote is left open"),
        (COMMA, b'a,b\n1,"x"y\n', "line 2: no comma-separated row"),
        (COMMA, b"a,b\n1,x\ry\n", "line 2: no comma-separated row"),
        (JSON_LINES, b'{"a": 1}\n{"a": \n', "line 2: not JSON"),
        (JSON_LINES, b"[1]\n", "line 1: expected a JSON object, got a list"),
        (JSON_LINES, b"[" * 3000 + b"\n", "line 1: not JSON"),
        (LABELLED, b"LOC:city\n", "line 1: expected LABEL:detail and a text"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, form, content, match) -> None:
    columns = ("label", "text") if form is LABELLED else None
    with pytest.raises(ValueError, match=match):
        RowFile(written(tmp_path, content), form, columns)


def test_a_row_without_end_is_not_read_into_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(row_files, "LARGEST_ROW", 50)
    path = written(tmp_path, b"a\tb\n1\t2\n3\t" + b"x" * 100)
    with pytest.raises(DataError, match="line 3: a row of more than 50 bytes$"):
        RowFile(path, TAB)
    path = written(tmp_path, b'a,b\n1,"' + b"x\n" * 60)
    with pytest.raises(DataError, match="line 2: a row of more than 50 bytes; is a quote left"):
        RowFile(path, COMMA)


def test_a_folder_for_each_class(tmp_path) -> None:
    for label, name, text in (("neg", "2_1", "bad"), ("neg", "10_1", "worse"), ("pos", "1_9", "ü")):
        (tmp_path / label).mkdir(exist_ok=True)
        (tmp_path / label / f"{name}.txt").write_text(text, encoding="utf-8")
    found = FolderRows(tmp_path, ("neg", "pos"), lambda row, where: None)
    assert [found.row(n)["text"] for n in range(len(found))] == ["worse", "bad", "ü"]
    assert found.row(2)["label"] == "pos"
    (tmp_path / "pos" / "2_8.txt").write_bytes(b" \n")
    with pytest.raises(DataError, match="2_8.txt is empty"):
        FolderRows(tmp_path, ("neg", "pos"), lambda row, where: None)
    (tmp_path / "pos" / "2_8.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="2_8.txt, line 1: expected UTF-8 text"):
        FolderRows(tmp_path, ("neg", "pos"), lambda row, where: None)
    with pytest.raises(DataError, match="other holds no .txt file"):
        FolderRows(tmp_path, ("neg", "other"), lambda row, where: None)


def test_an_index_does_not_grow_with_the_texts(tmp_path) -> None:
    import tracemalloc

    def peak(length: int) -> int:
        path = written(tmp_path, b"".join(b"0\t" + b"x" * length + b"\n" for _ in range(500)))
        tracemalloc.start()
        RowFile(path, TAB, ("label", "text"))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(4000) < peak(40) + 100_000  # the file is 2 MB larger
