"""Which images and sentences a command line means; the whole command, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.explain.choice import MAX_ROWS, choose_images, choose_sentences
from sot_paddle.explain.command import run_command
from tests.sot_paddle.explain import tiny_models as tiny


@pytest.fixture
def run(ran):
    """Status, lines on stdout and stderr of the command."""
    return lambda *arguments: ran(run_command, *arguments, "--cpu")


def test_images_of_every_class(run, tmp_path) -> None:
    folder = tiny.write_image_model(tmp_path / "model")
    data = tiny.write_pictures(tmp_path / "data")
    out = tmp_path / "deep" / "seen"
    status, printed, err = run(folder, data, "--count", 2, "--no-ema", "--out", out)
    assert status == 0, err
    assert printed == [str(out / "images.png")]
    assert [path.name for path in out.iterdir()] == ["images.png"]
    assert "4 of 6: bee1.png" in err
    with Image.open(out / "images.png") as figure:
        assert figure.height > 1500


def test_a_class_that_is_asked_for_is_explained(run, tmp_path) -> None:
    folder, pixels = tiny.write_image_model(tmp_path / "model"), []
    image = tiny.write_pictures(tmp_path / "data") / "val" / "cow" / "cow0.png"
    for target in ("ant", "bee", "1"):
        flags = ("--target", target, "--no-ema", "--out", tmp_path / "out")
        assert run(folder, image, *flags)[0] == 0
        pixels.append(np.asarray(Image.open(tmp_path / "out" / "images.png")))
    assert not np.array_equal(pixels[0], pixels[1])
    np.testing.assert_array_equal(pixels[1], pixels[2])


def test_a_model_without_class_token_and_an_unknown_label(run, tmp_path) -> None:
    folder = tiny.write_image_model(tmp_path / "model", "swin_tiny")
    place = tmp_path / "zebra"
    place.mkdir()
    Image.fromarray(np.full((9, 30, 3), 77, np.uint8)).save(place / "z.png")
    status, _, err = run(folder, place, "--no-ema", "--out", tmp_path / "out")
    assert status == 0, err
    with Image.open(tmp_path / "out" / "images.png") as figure:
        assert figure.width < 700  # one part: a model without class token


def test_sentences_of_a_text_model(run, tmp_path) -> None:
    folder = tiny.write_text_model(tmp_path / "run", options=dict(tiny.RUN))
    (tmp_path / "lines.txt").write_text("1\tThe old cat runs.\n", encoding="utf-8")
    out = tmp_path / "out"
    flags = ("--sentences", tmp_path / "lines.txt", "--text", "A red dog $ <b>", "--out", out)
    status, printed, err = run(folder, *flags)
    assert status == 0, err
    assert printed == [str(out / "words.png")]
    assert err.splitlines()[-2:] == ["1 of 2: 5 words", "2 of 2: 4 words"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "a.png"], "nowhere holds no trained model: give the folder that"),
        (["image"], "image is an image model: name image files, a folder, or digits"),
        (["image", "bad.png"], "bad.png: the image cannot be decoded"),
        (["image", "data", "--target", "be"], "no class 'be'; did you mean bee?"),
        (["image", "data"], "has no ema.safetensors"),
        (["text"], "is a text model: give --text or --sentences"),
        (["text", "--text", ""], "sentence 1 of [''] has no words"),
        (["text", "--text", "a", "--max-seq-length", "99"], "positions for 24 tokens, asked for"),
        (["text", "--text", "a", "--out", "bad.png"], "--out bad.png is a file"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(
    run, tmp_path, monkeypatch, arguments, said
) -> None:
    monkeypatch.chdir(tmp_path)
    if "image" in arguments:
        tiny.write_image_model(tmp_path / "image")
    if "text" in arguments:
        tiny.write_text_model(tmp_path / "text", options=dict(tiny.RUN))
    tiny.write_pictures(tmp_path / "data", count=1)
    (tmp_path / "bad.png").write_bytes(b"no image")
    raw = [] if "ema" in said else ["--no-ema"]
    out = [] if "--out" in arguments else ["--out", "out"]
    status, printed, err = run(*arguments, *raw, *out)
    assert status == 2
    assert printed == []
    assert len(err.splitlines()) == 1
    assert said in err
    assert not (tmp_path / "out").exists()


SMALL = EvalTransform(16)


@pytest.fixture
def root(tmp_path):
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


def test_images_that_cannot_be_chosen(root, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "half" / "train" / "ant").mkdir(parents=True)
    for places, count, said in (
        (["nowhere.png"], 1, "nowhere.png: there is no such image or folder"),
        ([str(tmp_path / "empty")], 1, "expected images"),
        ([str(tmp_path / "half")], 1, "expected a folder with val"),
        ([str(root)] * 11, 2, f"66 images are asked for, at most {MAX_ROWS}"),
    ):
        with pytest.raises(ValueError, match=said):
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
        ([], "2\tA cat.\n", "lines.txt:1: expected one sentence, got 2 texts"),
        ([], "ok\n0\tA\tB\n", "lines.txt:2: expected one sentence, got 2 texts"),
    ],
)
def test_sentences_that_cannot_be_chosen(tmp_path, texts, content, said) -> None:
    file = tmp_path / "lines.txt"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        choose_sentences(texts, None if content is None else str(file), ("0", "1"), 1)
