"""An export is complete and within its bound, or it is not there."""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy import exporting
from sot_paddle.deploy.exporting import BOUND, ROWS, batches, compare, export, real_rows
from sot_paddle.deploy.recipe import Recipe, TextRecipe, preparation_of, read_recipe
from sot_paddle.deploy.trained import open_trained
from sot_paddle.reading import read_json

TEXT_FILES = ["export.json", "manifest.json", "model.json", "model.onnx", "model.pdiparams"]
TEXT_FILES += ["vocab.txt"]


def test_what_an_export_holds(exports):
    _, out = exports["rte"]
    assert sorted(path.name for path in out.iterdir()) == TEXT_FILES
    assert read_recipe(out) == Recipe(
        "bert_base_mgcrp",
        ("entailment", "not_entailment"),
        ("input_ids", "token_type_ids", "attention_mask"),
        TextRecipe("wordpiece", 20, "longest", True, 2, ("sentence1", "sentence2")),
    )
    content = read_json(out / "export.json", strict=True)
    for check in content["checks"].values():
        assert check["size"] <= content["bound"] == BOUND
        assert check["rows"] == ROWS + 4
        assert len({tuple(shape) for shape in check["shapes"]}) == 3
    assert sorted(path.name for path in exports["swin"][1].iterdir()) == TEXT_FILES[:-1]
    recipe = read_recipe(exports["swin"][1])
    half = (0.5, 0.5, 0.5)
    assert recipe.preparation == EvalTransform(16, 1.0, "bicubic", half, half)


def test_an_export_far_from_its_model_is_not_left_behind(exports, tmp_path, monkeypatch):
    trained = open_trained(exports["cola"][0])
    real = exporting.save_graph

    def wrong(model, example, folder):
        weight = model.head.word_fc.bias
        before = weight.numpy()
        weight.set_value(before + np.float32(1e-3))
        real(model, example, folder)
        weight.set_value(before)

    monkeypatch.setattr(exporting, "save_graph", wrong)
    with pytest.raises(ValueError, match="the jit export is not the model: largest difference"):
        export(trained, tmp_path / "out", formats=("jit",))
    assert list(tmp_path.iterdir()) == []


def test_the_shapes_that_are_compared(exports):
    trained = open_trained(exports["rte"][0])
    prepare = preparation_of(trained.recipe, trained.folder)
    rows = real_rows(trained.recipe)
    assert len(rows) == ROWS
    assert {len(row) for row in rows} == {2}
    full, single, few = (batch["input_ids"].shape for batch in batches(rows, prepare))
    assert (full[0], single[0], few[0]) == (ROWS, 1, 3)
    assert single[1] < few[1] <= full[1] == 20
    short = [("the cat", "a dog"), ("the old cat runs .", "a red dog")]
    assert [batch["input_ids"].shape[0] for batch in batches(short, prepare)] == [2, 1, 1]


def test_a_difference_is_in_units_of_the_largest_logit():
    inputs = [{"x": np.zeros((2, 3))}, {"x": np.zeros((1, 4))}]
    logits = np.array([[4.0, -8.0], [1.0, 2.0]], np.float32)

    def model(batch):
        return logits[: len(batch["x"])]

    found = compare(inputs, model, lambda batch: model(batch) + np.float32([0.0, 0.5]))
    assert found.size == pytest.approx(0.5 / 8)
    assert (found.scale, found.rows, found.same) == (8.0, 3, 3)
    assert found.shapes == ((2, 3), (1, 4))
    small = compare(inputs, lambda batch: model(batch) / 100, lambda batch: model(batch) / 50)
    assert small.scale == 1.0
    assert small.size == pytest.approx(0.08)
    swapped = compare(inputs, model, lambda batch: model(batch)[:, ::-1])
    assert swapped.same == 0
    assert compare(inputs, model, lambda batch: model(batch) * np.nan).size == np.inf
    with pytest.raises(ValueError, match=r"gives logits \(2, 1\), the model \(2, 2\)"):
        compare(inputs, model, lambda batch: model(batch)[:, :1])
    with pytest.raises(ValueError, match="own logits on these inputs are not finite"):
        compare(inputs, lambda batch: model(batch) * np.nan, model)
