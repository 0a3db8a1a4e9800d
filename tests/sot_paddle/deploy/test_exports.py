"""Exports: complete, within their bound, named, translated, predicted with; both commands."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy import exporting, predictor
from sot_paddle.deploy.exporting import BOUND, ROWS, compare, export
from sot_paddle.deploy.graph import JSON, PARAMETERS
from sot_paddle.deploy.input_rows import InputOptions, Row, read_rows
from sot_paddle.deploy.onnx_file import translate
from sot_paddle.deploy.predictor import open_predictor, record
from sot_paddle.deploy.recipe import (
    RECIPE,
    Recipe,
    TextRecipe,
    read_recipe,
    recipe_json,
)
from sot_paddle.deploy.trained import open_trained
from sot_paddle.ops import bfloat16
from sot_paddle.reading import read_json
from tests.sot_paddle.explain import tiny_models as tiny


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """Name -> (trained folder, its export in both formats); not to be changed."""
    root = tmp_path_factory.mktemp("exports")
    options = dict(tiny.RUN)
    longest = {**options, "padding": "longest"}
    labels = ("entailment", "not_entailment")
    trained = {
        "cola": tiny.write_text_model(root / "cola", options=options),
        "rte": tiny.write_text_model(
            root / "rte", task="RTE", labels=labels, options=longest, mask_padding=True
        ),
        "swin": tiny.write_image_model(root / "swin", "swin_tiny", window_size=3),
    }
    made = {}
    for name, folder in trained.items():
        out = root / f"{name}_export"
        export(open_trained(folder, ema=False), out)
        made[name] = (folder, out)
    return made


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
    content = read_json(out / "export.json")
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
    with pytest.raises(ValueError, match="own logits on these inputs are not finite"):
        compare(inputs, lambda batch: model(batch) * np.nan, model)


def test_the_open_axis_of_images_has_a_name(exports):
    """Those of texts: tests/parity/test_whole_models.py."""
    graph = onnx.load(str(exports["swin"][1] / "model.onnx")).graph
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shapes == {"images": ["batch", 3, 16, 16], "logits": ["batch", 3]}


@pytest.mark.parametrize("name", ["rte", "swin"])
def test_no_node_is_left_that_nothing_takes(exports, name):
    """onnxruntime would warn of each at every load."""
    graph = onnx.load(str(exports[name][1] / "model.onnx")).graph
    taken = {value for node in graph.node for value in node.input} | {"logits"}
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    inner = [attribute.g for attribute in attributes if attribute.HasField("g")]
    taken |= {value for part in inner for node in part.node for value in node.input}
    assert not [node.name for node in graph.node if not taken & set(node.output)]


def test_what_paddle2onnx_lacks_is_one_line(tmp_path, monkeypatch):
    """As it says it, and aborts: in a process of its own."""
    said = subprocess.CompletedProcess([], -6, "", "[Paddle2ONNX] pinv: Cannot convert\nmore\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **named: said)
    files = (tmp_path / JSON, tmp_path / PARAMETERS, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="translate this model: pinv: Cannot convert; export it"):
        translate(*files, ["input_ids"])


PAIRS = [Row(None, (f"the {'old ' * n}cat", f"a dog {'runs ' * (n % 3)}.")) for n in range(7)]


@pytest.mark.parametrize("name", ["cola", "rte", "swin"])
def test_every_runtime_gives_the_training_models_logits(exports, tmp_path, name):
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
    folder, _ = exports["rte"]
    exact = open_predictor(folder, cpu=True).logits(PAIRS)
    try:
        rough = open_predictor(folder, cpu=True, cpu_precision="bf16").logits(PAIRS)
    finally:
        bfloat16.choose_products("float32")
    assert 0.0 < np.abs(rough - exact).max() < 0.05 * max(1.0, np.abs(exact).max())


def test_what_a_record_says_of_a_score_and_of_large_logits():
    """Other shares: tests/parity/test_scores.py."""
    recipe = Recipe("m", ("no", "yes", "may"), ("x",), TextRecipe("wordpiece", 9, "longest", True))
    shares = record(recipe, np.float32([900, -900, 0]), logits_too=False)["probabilities"]
    assert shares == {"no": 1.0, "yes": 0.0, "may": 0.0}
    regression = dataclasses.replace(recipe, labels=())
    assert record(regression, np.float32([2.5]), logits_too=False) == {"score": 2.5}
    small = record(regression, np.float32([1.25e-8]), logits_too=False)["score"]
    assert np.float32(small) == np.float32(1.25e-8)


def test_a_broken_model_and_a_broken_image_stop_it(exports, tmp_path):
    whole = open_predictor(exports["cola"][1])
    broken = dataclasses.replace(whole, run=lambda _: np.float32([[0, np.nan]]))
    with pytest.raises(ValueError, match="row 0: the model's output is not finite"):
        list(broken.predictions([Row(None, ("a",))], 1, logits=False))
    (tmp_path / "a.png").write_bytes(b"no image")
    images = open_predictor(exports["swin"][1])
    rows = read_rows([str(tmp_path / "a.png")], images.recipe, InputOptions())
    with pytest.raises(ValueError, match="a.png: the image cannot be decoded"):
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


@pytest.mark.parametrize(
    ("runtime", "name"), [("onnx", "model.onnx"), ("onnx", "vocab.txt"), ("jit", "model.json")]
)
def test_a_file_of_an_export_that_was_changed_is_seen(exports, tmp_path, runtime, name):
    out = shutil.copytree(exports["rte"][1], tmp_path / "out")
    content = bytearray((out / name).read_bytes())
    content[len(content) // 2] ^= 1
    (out / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: its size or checksum is not that of manifest"):
        open_predictor(out, runtime=runtime, cpu=True)


def test_a_runtime_that_is_not_needed_may_be_removed(exports, tmp_path):
    out = shutil.copytree(exports["rte"][1], tmp_path / "out")
    (out / "model.onnx").unlink()
    assert open_predictor(out, cpu=True).notes == ()


def test_a_recipe_comes_back(exports, tmp_path):
    score = dataclasses.replace(read_recipe(exports["rte"][1]), labels=())
    for recipe in (score, *(read_recipe(exports[name][1]) for name in ("rte", "swin"))):
        (tmp_path / RECIPE).write_text(recipe_json(recipe, {"bound": 1}), encoding="utf-8")
        assert read_recipe(tmp_path) == recipe
    (tmp_path / RECIPE).write_text('{"preparation": {"text": {}}}', encoding="utf-8")
    with pytest.raises(ValueError, match=f"{RECIPE}: the key 'model' is missing"):
        read_recipe(tmp_path)


@pytest.fixture
def run(ran):
    """Status, lines on stdout and stderr of a command."""
    return lambda command, *arguments: ran(command.run_command, *arguments)


def test_export_then_predict_a_file_and_stdin(exports, run, tmp_path, monkeypatch):
    folder, _ = exports["rte"]
    rows = [f"{n}\tthe {'old ' * n}cat\ta dog runs.\tentailment" for n in range(5)]
    data = tmp_path / "dev.tsv"
    data.write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n", "utf-8")
    out = tmp_path / "deep" / "export"
    status, printed, err = run(exporting, folder, out, "--data", data)
    assert status == 0, err
    assert [line.split(":")[0] for line in printed] == [
        str(out / name) for name in ("model.json", "model.onnx")
    ]
    assert all("(bound 0.0001), same class in 9 of 9 rows" in line for line in printed)
    file = tmp_path / "found" / "rte.jsonl"
    status, printed, err = run(predictor, out, data, "--out", file, "--batch-size", 2)
    assert (status, printed) == (0, []), err
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [one["index"] for one in records] == list(range(5))
    assert set(records[0]["probabilities"]) == {"entailment", "not_entailment"}
    for place, runtime in ((out, "jit"), (folder, "model")):
        status, printed, err = run(predictor, place, data, "--runtime", runtime, "--cpu")
        assert status == 0, err
        for ours, line in zip(records, printed, strict=True):
            theirs = json.loads(line)
            assert theirs["label"] == ours["label"]
            assert theirs["probability"] == pytest.approx(ours["probability"], abs=1e-4)
    lines = "\n".join("\t".join(row.split("\t")[1:3]) for row in rows) + "\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    status, printed, err = run(predictor, out, "--logits")
    assert status == 0, err
    assert [json.loads(line)["label"] for line in printed] == [one["label"] for one in records]
    assert all(len(json.loads(line)["logits"]) == 2 for line in printed)


def test_images_and_an_export_that_is_replaced(exports, run, tmp_path):
    folder, _ = exports["swin"]
    data, out = tiny.write_pictures(tmp_path / "data"), tmp_path / "export"
    flags = (folder, out, "--formats", "jit", "--no-ema")
    status, printed, err = run(exporting, *flags, "--data", data)
    assert status == 0, err
    assert "inputs 6x3x16x16, 1x3x16x16, 3x3x16x16" in printed[0]
    status, printed, err = run(exporting, *flags)
    assert (status, printed) == (2, [])
    assert "holds an export: name a new folder, or give --overwrite" in err
    status, _, err = run(exporting, *flags, "--overwrite")
    assert status == 0, err
    status, printed, err = run(predictor, out, data)
    assert status == 0, err
    first = json.loads(printed[0])
    assert first["image"] == str(data / "val" / "ant" / "ant0.png")
    assert set(first["probabilities"]) == set(tiny.CLASSES)
    assert sum(first["probabilities"].values()) == pytest.approx(1.0, abs=1e-5)


REFUSED = [
    (exporting, ("{folder}", "{new}", "--formats", "jit,onx"), "--formats takes jit and onnx"),
    (exporting, ("{folder}", "{tmp}"), "exists and is no export"),
    (
        predictor,
        ("{out}", "{bad}", "--out", "{tmp}/x"),
        "bad.tsv, line 3: expected 2 tab-separated columns",
    ),
]


@pytest.mark.parametrize(("command", "arguments", "told"), REFUSED)
def test_refusals_are_one_line_and_write_nothing(exports, run, tmp_path, command, arguments, told):
    bad = tmp_path / "bad.tsv"
    bad.write_text("sentence\tlabel\na\t0\nb\n", encoding="utf-8")
    folder, out = exports["cola"]
    names = {"folder": folder, "out": out, "new": tmp_path / "new", "bad": bad, "tmp": tmp_path}
    status, printed, err = run(command, *(text.format(**names) for text in arguments))
    assert (status, printed) == (2, [])
    assert told in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [bad]
