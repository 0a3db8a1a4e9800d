"""The evaluation command: trained folders, classes, ImageNet-A, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import paddle
import pytest
from PIL import Image

from sot_paddle.convert.formats.checkpoint_reading import read_for_model
from sot_paddle.data.imagenet_a import INDICES, SYNSETS
from sot_paddle.registry import create_model
from sot_paddle.train import model_folder
from sot_paddle.weights import save_weights
from tests.sot_paddle.train import tiny_images
from tests.sot_paddle.train.run_output import in_process, only_line

TINY = {"token_type": "patch", "patch_size": 8, "embed_dim": 12, "depth": 1}
TINY |= {"num_heads": 3, "wr_dim": 4, "head_num_heads": 2}
OPTIONS = [text for name, value in TINY.items() for text in ("--set", f"{name}={value}")]


@pytest.fixture
def evaluate(ran) -> Callable[..., tuple[str, str]]:
    """Run the command in this process, to the end unless another status is expected."""

    def run(*flags, convert=read_for_model, status: int = 0) -> tuple[str, str]:
        flags = (*flags, "--workers", "0", "--cpu")
        with mock.patch.object(model_folder, "read_for_model", convert):
            ended, lines, err = ran(in_process("eval_image"), *flags)
        assert ended == status, err
        return "\n".join(lines), err

    return run


@pytest.fixture
def refused(evaluate) -> Callable[..., str]:
    """Run it into a refusal of one line; stderr."""

    def run(*flags, **options) -> str:
        _, err = evaluate(*flags, status=2, **options)
        only_line(err, "eval_image")
        return err

    return run


@pytest.fixture(scope="module")
def trained(image_folder, tmp_path_factory) -> Path:
    """The folder of a finished run; not to be changed."""
    out = tmp_path_factory.mktemp("trained") / "out"
    flags = tiny_images.command(image_folder, out, "--max-steps", "6")
    assert in_process("train_image")(flags) == 0
    return out


def test_a_trained_folder_needs_no_flag(image_folder, trained, evaluate, tmp_path):
    scores = tmp_path / "deep" / "scores.json"
    out, err = evaluate(image_folder, "--weights", trained, "--output", scores)
    content = json.loads(scores.read_text(encoding="utf-8"))
    best = json.loads((trained / "metrics.json").read_text(encoding="utf-8"))["best"]
    assert content["scores"]["top1"] == best["ema_top1"]
    assert content["weights"].endswith("best/ema.safetensors")
    assert content["scores"]["loss"] == pytest.approx(best["ema_loss"], rel=1e-6)
    assert f"top-1 {best['ema_top1']:.2f} %, loss" in out
    out, err = evaluate(image_folder, "SoT_Tiny", "--weights", trained, "--no-ema")
    assert "best/model.safetensors" in err
    assert f"top-1 {best['top1']:.2f} %" in out


def test_a_file_of_weights_needs_no_model(image_folder, evaluate, tmp_path):
    """It says which one, and its sizes."""
    sizes = {"patch_size": 8, "embed_dim": 12, "depth": 1, "num_heads": 3, "img_size": 16}
    for name, options in (("sot_tiny", {**TINY, "img_size": 16}), ("deit_tiny", sizes)):
        file = tmp_path / f"{name}.safetensors"
        save_weights(create_model(name, 3, **options), file)
        out, err = evaluate(image_folder, "--weights", file, "--img-size", "16")
        assert f"{name}: weights {file}" in err
        assert "top-1" in out


def test_weights_alone_have_the_classes_of_the_data(image_folder, trained, evaluate, tmp_path):
    place, results = tmp_path / "alone.safetensors", []
    shutil.copy(trained / "best" / "model.safetensors", place)
    options = ("--set", "depth=2", "--img-size", tiny_images.SIZE)
    for weights, flags in ((trained, ("--no-ema",)), (place, (*OPTIONS, *options))):
        file = tmp_path / "scores.json"
        evaluate(image_folder, "sot_tiny", "--weights", weights, "--output", file, *flags)
        results.append(json.loads(file.read_text(encoding="utf-8")))
    assert results[1]["scores"] == results[0]["scores"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--weights", "nowhere"), "there is no such file or folder"),
        (("--weights", __file__), "test_image_evaluation.py: "),
        (("sot_base",), "is of a sot_tiny, and --model is sot_base"),
        (("--num-classes", "7"), "has 3 classes, and --num-classes is 7"),
        (("--imagenet-a",), "expected the 200 synset folders"),
    ],
)
def test_refusals(image_folder, trained, refused, flags, said):
    weights = () if "--weights" in flags else ("--weights", trained)
    err = refused(image_folder, *flags, *weights)
    assert said in err


def test_other_classes_are_refused(trained, refused, tmp_path):
    other = tiny_images.write_images(tmp_path / "a", train=1, classes=("ant", "bee", "dog"))
    assert "'dog' where the model has 'cow'" in refused(other, "--weights", trained)
    four = tiny_images.write_images(tmp_path / "b", train=1, classes=("a", "b", "c", "d"))
    assert "expected 3 classes, as the model has, got 4 class folders" in refused(
        four, "--weights", trained
    )


@pytest.fixture(scope="module")
def imagenet_root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("imagenet-a")
    for synset in SYNSETS:
        (root / synset).mkdir()
        Image.new("RGB", (16, 16)).save(root / synset / "0.png")
    return root


def test_imagenet_a_takes_the_best_of_its_200_columns(imagenet_root, evaluate, tmp_path):
    """A model that always answers one column; the others of the 1000 must not count."""
    model = create_model("sot_tiny", **TINY, img_size=16)
    for parameter in model.head.parameters():
        parameter.set_value(paddle.zeros_like(parameter))
    bias = np.zeros(1000, "float32")
    bias[INDICES[7]] = 1.0
    bias[0] = 9.0  # column 0 is no class of ImageNet-A
    assert 0 not in INDICES
    model.head.word_fc.bias.set_value(bias)
    place = tmp_path / "w.safetensors"
    save_weights(model, place)

    class Own:
        notes, fresh, metadata, averaged = (), (), {}, True
        arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    flags = (imagenet_root, "SoT_Tiny", "--b", 100, "--eval_checkpoint", place, "--IN_A")
    flags += ("--img-size", 16, "--output", tmp_path / "s.json")
    convert = lambda place, model, shapes, ema=None: Own  # noqa: E731
    out, err = evaluate(*flags, *OPTIONS, convert=convert)
    content = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert "taken: the moving average" in err
    assert content["scores"]["top1"] == pytest.approx(0.5)


def test_options_and_names_that_contradict_the_weights_are_refused(
    image_folder, trained, evaluate, refused
):
    flags = (image_folder, "--weights", trained)
    for option, said in (
        ("num_heads=2", "trained with num_heads=3, and this asks for num_heads=2"),
        ("pooling=gap", "gives no value to head."),
        ("depth=1", "has what the model lacks: blocks.1"),
    ):
        assert said in refused(*flags, "--set", option)
    _, err = evaluate(*flags, "--set", "num_heads=3")
    assert "best/ema.safetensors" in err
