"""Which images and sentences a command line means."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.explain.choice import MAX_ROWS, choose_images, choose_sentences

SMALL = EvalTransform(16)


@pytest.fixture
def root(tiny, tmp_path):
    return tiny.write_pictures(tmp_path / "data", count=3)


def names(chosen) -> list[tuple[str, str]]:
    return [(one.label, one.name) for one in chosen]


def test_folders_files_and_digits(root) -> None:
    two = [("ant", "ant0.png"), ("ant", "ant1.png"), ("bee", "bee0.png"), ("bee", "bee1.png")]
    two += [("cow", "cow0.png"), ("cow", "cow1.png")]
    assert names(choose_images([str(root)], 2, SMALL)) == two
    assert names(choose_images([str(root / "val")], 2, SMALL)) == two
    assert names(choose_images([str(root / "val" / "bee")], 2, SMALL)) == two[2:4]
    files = [str(root / "val" / "cow" / "cow2.png"), str(root / "val" / "ant")]
    chosen = choose_images(files, 1, SMALL)
    assert names(chosen) == [("cow", "cow2.png"), ("ant", "ant0.png")]
    assert chosen[0].read().size == (18, 20)
    digits = choose_images(["digits"], 1, SMALL)
    assert [one.label for one in digits] == list("0123456789")
    assert np.asarray(digits[3].read()).shape == (16, 16, 3)


def test_photographs_are_turned_where_the_model_s_were(tmp_path) -> None:
    place, exif = tmp_path / "data" / "val" / "ant", Image.Exif()
    place.mkdir(parents=True)
    exif[0x0112] = 6
    Image.new("RGB", (7, 5)).save(place / "0.jpg", exif=exif)
    turned = EvalTransform(16, exif_orientation=True)
    for folder in (tmp_path / "data", place.parent, place, place / "0.jpg"):
        (one,) = choose_images([str(folder)], 1, turned)
        assert one.read().size == (5, 7)
        (one,) = choose_images([str(folder)], 1, SMALL)
        assert one.read().size == (7, 5)


def test_images_that_cannot_be_chosen(root, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / "train" / "ant").mkdir(parents=True)
    for places, count, said in (
        (["nowhere.png"], 1, "nowhere.png: there is no such image or folder"),
        ([str(tmp_path / "empty")], 1, "expected images"),
        ([str(tmp_path / "half")], 1, "expected a folder with val"),
        ([str(root)], 0, "--count must be at least 1"),
        ([str(root)] * 11, 2, f"66 images are asked for, at most {MAX_ROWS}"),
    ):
        with pytest.raises(DataError, match=said):
            choose_images(places, count, SMALL)


def test_sentences_with_and_without_labels(tmp_path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("0\tA cat.\n\nA dog, 0.\n", encoding="utf-8")
    chosen = choose_sentences([["First."]], str(file), ("0", "1"), 1)
    assert [(one.label, one.texts) for one in chosen] == [
        *(("", ("First.",)), ("0", ("A cat.",)), ("", ("A dog, 0.",)))
    ]
    file.write_text("0\tA cat.\tA dog.\nA cat.\tA dog.\n", encoding="utf-8")
    for known in (2, None):
        chosen = choose_sentences([], str(file), ("0", "1"), known)
        assert [one.label for one in chosen] == ["0", ""]
        assert {one.texts for one in chosen} == {("A cat.", "A dog.")}


@pytest.mark.parametrize(
    ("texts", "content", "said"),
    [
        ([["a", "b"]], None, "--text: expected one sentence, got 2 texts"),
        ([], "2\tA cat.\n", "lines.txt:1: the first of 2 columns is a label, expected one of 0, 1"),
        ([], "ok\n0\tA\tB\n", "lines.txt:2: expected one sentence, got 3 texts"),
        ([], "\n \n", "lines.txt is empty"),
        ([], "a\n" * 65, "65 sentences, at most 64"),
    ],
)
def test_sentences_that_cannot_be_chosen(tmp_path, texts, content, said) -> None:
    file = tmp_path / "lines.txt"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        choose_sentences(texts, None if content is None else str(file), ("0", "1"), 1)
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="lines.txt, line 1: expected UTF-8 text"):
        choose_sentences([], str(file), ("0", "1"), 1)
