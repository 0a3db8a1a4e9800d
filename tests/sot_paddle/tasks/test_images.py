"""Which images a training and an evaluation read."""

from __future__ import annotations

import pytest
from PIL import Image

from sot_paddle.command_line import parse
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.tasks.images import load_evaluation, load_images
from tests.sot_paddle.train import tiny_images

DIGITS = tuple("0123456789")


@pytest.mark.parametrize("there", ["nothing", "the output of a run", "a data set"])
def test_the_word_digits_is_a_data_set_of_that_name_where_there_is_one(
    tmp_path, monkeypatch, there
):
    monkeypatch.chdir(tmp_path)
    if there == "the output of a run":
        (tmp_path / "digits" / "best").mkdir(parents=True)
    if there == "a data set":
        tiny_images.write_images(tmp_path / "digits")
    expected = tiny_images.CLASSES if there == "a data set" else DIGITS
    config = parse(ImageTrainConfig, ["digits", "--model", "sot_tiny", "--img-size", "16"])
    assert load_images(config).classes == expected
    config = parse(ImageEvalConfig, ["digits", "--weights", "anything"])
    assert load_evaluation(config, EvalTransform(16)).source.classes == expected


def test_what_is_left_out_of_a_folder_is_told_once(tmp_path, caplog):
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            place = tmp_path / split / name
            place.mkdir(parents=True)
            Image.new("RGB", (7, 5)).save(place / "0.jpg")
    (tmp_path / "val" / "bee" / "1.gif").touch()
    told = f"{tmp_path}/val, left out: 1 files that are no images: bee/1.gif"
    task = load_images(
        parse(ImageTrainConfig, [str(tmp_path), "--model", "sot_tiny", "--img-size", "16"])
    )
    assert caplog.messages == [told]
    config = parse(ImageEvalConfig, [str(tmp_path), "--weights", "anything"])
    load_evaluation(config, task.dev["val"].images.transform)
    assert caplog.messages == [told] * 2
