"""Every form of input, and what is wrong with a file in one line that names it."""

from __future__ import annotations

import io
import json
import sys

import pytest

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy.input_rows import InputOptions, read_rows
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from tests.sot_paddle.explain import tiny_models as tiny

IMAGES = Recipe("sot_tiny", ("a",), ("images",), EvalTransform(16, 1.0))


def texts(num_texts=None, columns=()) -> Recipe:
    return Recipe(
        "m", ("a",), ("x",), TextRecipe("wordpiece", 20, "longest", True, num_texts, columns)
    )


def read(path, recipe=None, **options):
    rows = read_rows([str(path)], recipe or texts(), InputOptions(**options))
    return [row.value for row in rows]


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


@pytest.fixture
def stdin(monkeypatch):
    def feed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def test_tables(tmp_path):
    tsv = write(tmp_path / "a.tsv", 'index\tquestion\tsentence\n0\ta "b\tc, d\n1\te\tf\n')
    assert read(tsv, texts(2, ("question", "sentence"))) == [('a "b', "c, d"), ("e", "f")]
    assert read(tsv, texts(1)) == [("c, d",), ("f",)]
    assert read(tsv, columns="sentence,question") == [("c, d", 'a "b'), ("f", "e")]
    csv = write(tmp_path / "a.csv", 'text,label\n"one, ""two""\nthree",0\nfour,1\n')
    assert read(csv) == [('one, "two"\nthree',), ("four",)]


def test_json_lines(tmp_path):
    lines = [{"sentence2": "b", "sentence1": "a", "n": 1}, ["c", "d"]]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    assert read(path, texts(2)) == [("a", "b"), ("c", "d")]
    assert read(write(tmp_path / "b.ndjson", '"a"\n{"text": "b"}\n')) == [("a",), ("b",)]


def test_lines_and_stdin(tmp_path, stdin, caplog):
    assert read(write(tmp_path / "a.txt", "\ufeffa b\r\n\r\nc\n")) == [("a b",), ("",), ("c",)]
    assert read(write(tmp_path / "b", "a\tb\nc\td\n")) == [("a", "b"), ("c", "d")]
    assert read(tmp_path / "b", texts(1)) == [("a\tb",), ("c\td",)]
    stdin("\ufeffone\ntwö\n".encode())
    assert read("-") == [("one",), ("twö",)]
    stdin(b"one\n\n \ntwo\n")
    assert read("-") == [("one",), ("two",)]
    assert caplog.messages == [f"stdin, line {n}: an empty line, left out" for n in (2, 3)]


@pytest.mark.parametrize(
    ("name", "content", "options", "told"),
    [
        ("a.tsv", "index\tbody\n0\tx\n", {}, "a.tsv, line 2: expected a header with sentence1 and"),
        ("a.tsv", "text\n", {}, "holds a header and no usable row"),
        ("a.tsv", "text\nx\n", {"columns": "txt"}, "no column 'txt'; did you mean text?"),
        ("a.csv", 'text\n"x\n', {}, "a.csv, line 2: no comma-separated row"),
        ("a.jsonl", '"a"\n{\n', {}, "a.jsonl, line 2: not JSON"),
        ("a.txt", "a\nb\tc\n", {}, "line 2: expected one text, got"),
        ("a.txt", "a\n", {"columns": "a"}, "--columns: .* is read as lines"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, name, content, options, told):
    with pytest.raises(ValueError, match=told):
        read(write(tmp_path / name, content), **options)


def test_what_a_task_does_not_take(tmp_path):
    path = write(tmp_path / "a.txt", "a\n")
    with pytest.raises(ValueError, match="a.txt, line 1: expected two texts, got"):
        read(path, texts(2))
    for place in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ValueError, match="expected a file of texts, there is none"):
            read(place)
    with pytest.raises(ValueError, match="expected one file of texts, got 2"):
        read_rows(["a", "b"], texts(), InputOptions())


def test_images(tmp_path, stdin):
    data = tiny.write_pictures(tmp_path / "data")
    rows = list(read_rows([str(data)], IMAGES, InputOptions()))
    assert [row.name.removeprefix(f"{data}/") for row in rows] == [
        f"val/{name}/{name}{index}.png" for name in tiny.CLASSES for index in range(2)
    ]
    assert rows[0].value().size == (18, 20)
    stdin(f"{rows[3].name}\n\n{rows[1].name}\n".encode())
    named = list(read_rows(["-"], IMAGES, InputOptions()))
    assert [row.name for row in named] == [rows[3].name, rows[1].name]
    digits = list(read_rows(["digits"], IMAGES, InputOptions()))
    assert len(digits) == 364
    assert digits[0].value().size == (16, 16)
    for places, told in (
        ([tmp_path / "none"], "there is no such image or folder"),
        ([tmp_path / "empty"], "expected images .*, got none"),
    ):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match=told):
            read_rows(list(map(str, places)), IMAGES, InputOptions())
    with pytest.raises(ValueError, match="are for texts, and this is an image model"):
        read_rows(["digits"], IMAGES, InputOptions(format="tsv"))
