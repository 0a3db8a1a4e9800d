"""The whole command on tiny trained folders, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sot_paddle.explain.command import run_command


@pytest.fixture
def run(ran):
    """Status, lines on stdout and stderr of the command."""
    return lambda *arguments: ran(run_command, *arguments, "--cpu")


def test_images_of_every_class(tiny, run, tmp_path) -> None:
    folder = tiny.write_image_model(tmp_path / "model")
    data = tiny.write_pictures(tmp_path / "data")
    out = tmp_path / "deep" / "seen"
    status, printed, err = run(folder, data, "--count", 2, "--no-ema", "--out", out)
    assert status == 0, err
    assert printed == [str(out / "images.png"), str(out / "images.html")]
    assert sorted(path.name for path in out.iterdir()) == ["images.html", "images.png"]
    text = (out / "images.html").read_text(encoding="utf-8")
    assert text.count("<section>") == 6
    assert text.count("<img") == 1
    assert "bee1.png" in text
    with Image.open(out / "images.png") as figure:
        assert figure.height > 1500
    one = data / "val" / "cow" / "cow0.png"
    status, _, err = run(folder, one, "--target", "bee", "--no-ema", "--out", out)
    assert status == 0, err
    text = (out / "images.html").read_text(encoding="utf-8")
    assert "explained: bee" in text


def test_a_model_without_class_token_and_an_unknown_label(tiny, run, tmp_path) -> None:
    folder = tiny.write_image_model(tmp_path / "model", "swin_tiny")
    place = tmp_path / "zebra"
    place.mkdir()
    Image.fromarray(np.full((9, 30, 3), 77, np.uint8)).save(place / "z.png")
    status, _, err = run(folder, place, "--no-ema", "--out", tmp_path / "out")
    assert status == 0, err
    text = (tmp_path / "out" / "images.html").read_text(encoding="utf-8")
    assert "class not known" in text
    assert "<dt>WordT</dt><dd>scores of the pooled words alone</dd>" in text


def test_sentences_of_a_text_model(tiny, run, tmp_path) -> None:
    folder = tiny.write_text_model(tmp_path / "run", options=dict(tiny.RUN))
    (tmp_path / "lines.txt").write_text("1\tThe old cat runs.\n", encoding="utf-8")
    out = tmp_path / "out"
    flags = ("--sentences", tmp_path / "lines.txt", "--text", "A red dog $ <b>", "--out", out)
    status, printed, err = run(folder, *flags)
    assert status == 0, err
    assert printed == [str(out / "words.png"), str(out / "words.html")]
    text = (out / "words.html").read_text(encoding="utf-8")
    assert text.count("<section>") == 2
    assert "label 1" in text
    assert "class not known" in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "a.png"], "nowhere holds no trained model: give the folder that"),
        (["image"], "image is an image model: name image files, a folder, or digits"),
        (["image", "missing.png"], "missing.png: there is no such image or folder"),
        (["image", "bad.png"], "bad.png: the image cannot be decoded"),
        (["image", "--text", "a cat"], "is an image model: give images, not --text"),
        (["image", "data", "--target", "be"], "no class 'be'; did you mean bee?"),
        (["image", "data", "--count", "0"], "--count must be at least 1"),
        (["image", "data"], "has no ema.safetensors"),
        (["text", "data"], "is a text model: give --text or --sentences"),
        (["text"], "is a text model: give --text or --sentences"),
        (["text", "--text", "a", "b"], "--text: expected one sentence, got 2 texts"),
        (["text", "--text", ""], "sentence 1 of [''] has no words"),
        (["text", "--sentences", "gone.txt"], "cannot read gone.txt"),
        (["text", "--text", "a", "--target", "7"], "no class '7'; known: 0, 1"),
        (["text", "--text", "a", "--max-seq-length", "99"], "positions for 24 tokens, asked for"),
        (["text", "--text", "a", "--max-seq-length", "x"], "argument --max-seq-length: invalid"),
        (["text", "--text", "a", "--out", "bad.png"], "--out bad.png is a file"),
        (["text", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(
    tiny, run, tmp_path, monkeypatch, arguments, said
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
