"""Every form of input, and what is wrong with a file in one line that names it."""

from __future__ import annotations

import io
import sys

import pytest

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy.predictor import read_rows
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from tests.sot_paddle.explain import tiny_models as tiny

IMAGES = Recipe("sot_tiny", ("a",), ("images",), EvalTransform(16, 1.0))


def texts(num_texts=None) -> Recipe:
    return Recipe("m", ("a",), ("x",), TextRecipe("wordpiece", 20, "longest", True, num_texts))


def read(path, num_texts=None):
    return [row.value for row in read_rows([str(path)], texts(num_texts))]


def write(path, content):
    path.write_text(content, encoding="utf-8")
    return path


@pytest.fixture
def stdin(monkeypatch):
    def feed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return feed


def test_lines_and_stdin(tmp_path, stdin, caplog):
    assert read(write(tmp_path / "a.txt", "\ufeffa b\r\n\r\nc\n")) == [("a b",), ("c",)]
    assert read(write(tmp_path / "b", "a\tb\nc\td\n")) == [("a", "b"), ("c", "d")]
    assert read(tmp_path / "b", 1) == [("a\tb",), ("c\td",)]
    stdin("\ufeffone\ntwö\n".encode())
    assert read("-") == [("one",), ("twö",)]
    stdin(b"one\n\n \ntwo\n")
    assert read("-") == [("one",), ("two",)]
    left_out = [f"{tmp_path}/a.txt, line 2", "stdin, line 2", "stdin, line 3"]
    assert caplog.messages == [f"{where}: an empty line, left out" for where in left_out]


@pytest.mark.parametrize(
    ("name", "content", "num_texts", "message"),
    [
        ("a.txt", "a\nb\tc\n", None, "a.txt, line 2: expected one text, got"),
        ("a.txt", "a\n", 2, "a.txt, line 1: expected two texts with a TAB between, got"),
        ("a.txt", "a\tb\tc\n", None, "a.txt, line 1: expected two texts with a TAB between, got"),
        ("a.tsv", "sentence\na\n", 1, "a.tsv: expected a text per line, got a table by its name"),
        ("a.txt", "\n", None, "a.txt is empty"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, name, content, num_texts, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path / name, content), num_texts)


def test_places_that_hold_no_texts(tmp_path):
    for place in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(ValueError, match="expected a file of texts, there is none"):
            read(place)
    with pytest.raises(ValueError, match="expected one file of texts, got 2"):
        read_rows(["a", "b"], texts())


def test_images(tmp_path, stdin):
    data = tiny.write_pictures(tmp_path / "data")
    rows = list(read_rows([str(data)], IMAGES))
    assert [row.name.removeprefix(f"{data}/") for row in rows] == [
        f"val/{name}/{name}{index}.png" for name in tiny.CLASSES for index in range(2)
    ]
    assert rows[0].value().size == (18, 20)
    stdin(f"{rows[3].name}\n\n{rows[1].name}\n".encode())
    named = list(read_rows(["-"], IMAGES))
    assert [row.name for row in named] == [rows[3].name, rows[1].name]
    digits = list(read_rows(["digits"], IMAGES))
    assert len(digits) == 364
    assert digits[0].value().size == (16, 16)
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("none", "there is no such image or folder"),
        ("empty", "expected images .*, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            read_rows([str(tmp_path / name)], IMAGES)
