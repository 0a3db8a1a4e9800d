"""Which images a command line means; the whole command, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sot_paddle.cli import lazy_command
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.explain import drawing
from tests.sot_paddle.explain import tiny_models as tiny


@pytest.fixture
def run(ran):
    """Status, lines on stdout and stderr of the command."""
    main = lazy_command("visualize", "sot_paddle.explain.command:run_command")
    return lambda *arguments: ran(main, *arguments, "--cpu")


def test_images_of_every_class(run, tmp_path, monkeypatch) -> None:
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
    monkeypatch.setattr(drawing, "MAX_ROWS", 1)
    status, _, err = run(folder, data, "--no-ema", "--out", out)
    assert (status, err.splitlines()) == (0, ["the first 1 of 3 are drawn", "1 of 1: ant0.png"])


def test_a_model_without_class_token_and_an_unknown_label(run, tmp_path) -> None:
    folder = tiny.write_image_model(tmp_path / "model", "swin_tiny")
    place = tmp_path / "zebra.png"
    Image.fromarray(np.full((9, 30, 3), 77, np.uint8)).save(place)
    status, _, err = run(folder, place, "--no-ema", "--out", tmp_path / "out")
    assert status == 0, err
    with Image.open(tmp_path / "out" / "images.png") as figure:
        assert figure.width < 700  # one part: a model without class token


def test_sentences_of_a_text_model(run, tmp_path) -> None:
    folder = tiny.write_text_model(tmp_path / "run", options=dict(tiny.RUN))
    lines = "1\tThe old cat runs.\n\nA red dog $ <b>\n"
    (tmp_path / "lines.txt").write_text(lines, encoding="utf-8")
    out = tmp_path / "out"
    status, printed, err = run(folder, "--sentences", tmp_path / "lines.txt", "--out", out)
    assert status == 0, err
    assert printed == [str(out / "words.png")]
    assert err.splitlines()[-2:] == ["1 of 2: 4 words", "2 of 2: 5 words"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "a.png"], "nowhere holds no trained model, nor probes of layers: give the"),
        (["image"], "image is an image model: name image files, a folder, or digits"),
        (["image", "bad.png"], "bad.png: the image cannot be decoded"),
        (["image", "data"], "has no ema.safetensors"),
        (["image", "data", "--count", "0"], "--count must be at least 1, got 0"),
        (["text"], "is a text model: give --sentences"),
        (["text", "--sentences", "pairs.txt"], "expected 1 text(s), got 2: ['2', 'a cat']"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(
    run, tmp_path, monkeypatch, arguments, message
) -> None:
    monkeypatch.chdir(tmp_path)
    if "image" in arguments:
        tiny.write_image_model(tmp_path / "image")
    if "text" in arguments:
        tiny.write_text_model(tmp_path / "text", options=dict(tiny.RUN))
    tiny.write_pictures(tmp_path / "data", count=1)
    (tmp_path / "bad.png").write_bytes(b"no image")
    (tmp_path / "pairs.txt").write_text("2\ta cat\n", encoding="utf-8")
    raw = [] if "ema" in message else ["--no-ema"]
    status, printed, err = run(*arguments, *raw, "--out", "out")
    assert (status, printed) == (2, [])
    assert len(err.splitlines()) == 1
    assert message in err
    assert not (tmp_path / "out").exists()


SMALL = EvalTransform(16)


@pytest.fixture
def root(tmp_path):
    return tiny.write_pictures(tmp_path / "data", count=3)


def chosen(places, count: int) -> list[tuple[str, str]]:
    """Class and file of what is chosen."""
    rows = drawing.choose_images(list(map(str, places)), count, SMALL)
    return [
        (source.classes[source.labels[index]], source.name(index).rpartition("/")[2])
        for source, index in rows
    ]


def test_folders_files_and_digits(root) -> None:
    two = [(name, f"{name}{index}.png") for name in tiny.CLASSES for index in range(2)]
    assert chosen([root], 2) == chosen([root / "val"], 2) == two
    files = [root / "val" / "cow" / "cow2.png", root / "val" / "ant" / "ant0.png"]
    assert chosen(files, 1) == [("cow", "cow2.png"), ("ant", "ant0.png")]
    assert [label for label, _ in chosen(["digits"], 1)] == list("0123456789")


def test_images_that_cannot_be_chosen(root, tmp_path) -> None:
    (tmp_path / "half" / "train" / "ant").mkdir(parents=True)
    for place in ("nowhere.png", tmp_path / "half", root / "val" / "ant"):
        with pytest.raises(ValueError, match="expected a folder with val"):
            chosen([place], 1)
