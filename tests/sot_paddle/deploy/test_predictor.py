"""Predictions: the training model's from every runtime, in any batches; names and shares."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from sot_paddle.data.image_folder import CorruptImage
from sot_paddle.deploy.exporting import BOUND
from sot_paddle.deploy.input_rows import InputOptions, Row, read_rows
from sot_paddle.deploy.predictor import open_predictor, record
from sot_paddle.deploy.recipe import Recipe, TextRecipe
from sot_paddle.ops import bfloat16

PAIRS = [Row(None, (f"the {'old ' * n}cat", f"a dog {'runs ' * (n % 3)}.")) for n in range(7)]


@pytest.mark.parametrize("name", ["cola", "rte", "stsb", "swin"])
def test_every_runtime_gives_the_training_models_logits(exports, tiny, tmp_path, name):
    folder, out = exports[name]
    model = open_predictor(folder, ema=False, cpu=True)
    if name == "swin":
        data = str(tiny.write_pictures(tmp_path / "data"))
        rows = list(read_rows([data], model.recipe, InputOptions()))
    else:
        rows = PAIRS if name != "cola" else [Row(None, row.value[:1]) for row in PAIRS]
    expected = model.logits(rows)
    assert expected.shape == (len(rows), len(model.recipe.labels) or 1)
    scale = max(1.0, float(np.abs(expected).max()))
    for runtime in ("auto", "onnx", "jit"):
        other = open_predictor(out, runtime=runtime, cpu=True)
        assert other.recipe == model.recipe
        assert np.abs(other.logits(rows) - expected).max() <= BOUND * scale
        alone = np.concatenate([other.logits([row]) for row in rows])
        assert np.abs(alone - expected).max() <= BOUND * scale


@pytest.mark.skipif(bool(bfloat16.why_not()), reason=f"bfloat16: {bfloat16.why_not()}")
def test_products_in_bfloat16_move_the_logits_a_little(exports):
    folder, out = exports["rte"]
    exact = open_predictor(folder, cpu=True).logits(PAIRS)
    try:
        rough = open_predictor(folder, cpu=True, cpu_precision="bf16").logits(PAIRS)
    finally:
        bfloat16.choose_products("float32")
    assert 0.0 < np.abs(rough - exact).max() < 0.05 * max(1.0, np.abs(exact).max())


def test_records_come_in_order_whatever_the_batch(exports):
    predictor = open_predictor(exports["rte"][1])
    by_two, at_once = (
        list(predictor.predictions(iter(PAIRS), size, logits=True)) for size in (2, 50)
    )
    assert [one["index"] for one in by_two] == list(range(7))
    assert len({one["probability"] for one in by_two}) == 7
    for ours, theirs in zip(by_two, at_once, strict=True):
        np.testing.assert_allclose(ours["logits"], theirs["logits"], rtol=0, atol=1e-4)
    assert list(predictor.predictions([], 2, logits=False)) == []


def test_what_a_record_says():
    recipe = Recipe("m", ("no", "yes", "may"), ("x",), TextRecipe("wordpiece", 9, "longest", True))
    logits = np.log(np.array([0.2, 0.7, 0.1])).astype(np.float32)
    found = record(recipe, logits, logits_too=True)
    assert found["label"] == "yes"
    assert found["probability"] == pytest.approx(0.7, abs=1e-6)
    assert found["probabilities"] == pytest.approx({"no": 0.2, "yes": 0.7, "may": 0.1}, abs=1e-6)
    assert found["logits"] == [float(value) for value in logits]
    assert (
        record(recipe, np.float32([900, -900, 0]), logits_too=False)["probabilities"]["no"] == 1.0
    )
    regression = Recipe("m", (), ("x",), TextRecipe("wordpiece", 9, "longest", True))
    assert record(regression, np.float32([2.5]), logits_too=False) == {"score": 2.5}
    small = record(regression, np.float32([1.25e-8]), logits_too=False)["score"]
    assert np.float32(small) == np.float32(1.25e-8)


def test_a_broken_model_and_a_broken_image_stop_it(exports, tmp_path):
    predictor = open_predictor(exports["cola"][1])
    broken = type(predictor)(
        predictor.recipe, predictor.prepare, lambda _: np.float32([[0, np.nan]])
    )
    with pytest.raises(ValueError, match="row 0: the model's output is not finite"):
        list(broken.predictions([Row(None, ("a",))], 1, logits=False))
    (tmp_path / "a.png").write_bytes(b"no image")
    images = open_predictor(exports["swin"][1])
    rows = read_rows([str(tmp_path / "a.png")], images.recipe, InputOptions())
    with pytest.raises(CorruptImage, match="a.png: the image cannot be decoded"):
        list(images.predictions(rows, 4, logits=False))


def test_a_runtime_that_is_not_there_is_refused(exports, tmp_path):
    folder, out = exports["cola"]
    for place, options, told in (
        (folder, {"runtime": "onnx"}, "is no export: --runtime onnx needs tools/export.py"),
        (out, {"runtime": "model"}, "is an export: give the training's folder"),
        (out, {"cpu_precision": "bf16"}, "is an export, which computes in float32: drop cpu_prec"),
        (tmp_path, {}, "holds no trained model: give the folder"),
    ):
        with pytest.raises(ValueError, match=told):
            open_predictor(place, cpu=True, **options)


FLIPPED = [
    *(("onnx", name) for name in ("model.onnx", "export.json", "vocab.txt")),
    *(("jit", name) for name in ("model.json", "model.pdiparams", "export.json", "vocab.txt")),
]


@pytest.mark.parametrize(("runtime", "name"), FLIPPED)
def test_a_file_of_an_export_that_was_changed_is_seen(exports, tmp_path, runtime, name):
    out = shutil.copytree(exports["rte"][1], tmp_path / "out")
    content = bytearray((out / name).read_bytes())
    content[len(content) // 2] ^= 1
    (out / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: its size or checksum is not that of manifest"):
        open_predictor(out, runtime=runtime, cpu=True)


def test_an_export_without_checksums_is_refused(exports, tmp_path):
    """A runtime that is not needed may be removed."""
    out = shutil.copytree(exports["rte"][1], tmp_path / "out")
    (out / "model.onnx").unlink()
    assert open_predictor(out, cpu=True).notes == ()
    (out / "manifest.json").unlink()
    with pytest.raises(ValueError, match="export.json: no manifest.json is beside it"):
        open_predictor(out, cpu=True)
