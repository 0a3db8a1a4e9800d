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

from sot_paddle import cli
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.deploy import command, exporting, predictor
from sot_paddle.deploy.exporting import BOUND, difference, export
from sot_paddle.deploy.graph import JSON, PARAMETERS
from sot_paddle.deploy.onnx_file import translate
from sot_paddle.deploy.predictor import Row, open_predictor, read_rows, record
from sot_paddle.deploy.recipe import Recipe, TextRecipe, read_recipe
from sot_paddle.deploy.trained import open_trained
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
        TextRecipe("wordpiece", 20, "longest", True, 2),
    )
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
    with pytest.raises(ValueError, match="model.json is not the model: it differs by .*e-0"):
        export(trained, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_difference_is_in_units_of_the_largest_logit():
    batches = [{"x": np.zeros((2, 3))}, {"x": np.zeros((1, 4))}]
    logits = np.array([[4.0, -8.0], [1.0, 2.0]], np.float32)

    def model(batch):
        return logits[: len(batch["x"])]

    assert difference(batches, model, lambda x: model(x) + np.float32([0.0, 0.5])) == 0.5 / 8
    small = difference(batches, lambda x: model(x) / 100, lambda x: model(x) / 50)
    assert small == pytest.approx(0.08)
    assert np.isnan(difference(batches, model, lambda x: model(x) * np.nan))
    with pytest.raises(ValueError, match="own logits on these inputs are not finite"):
        difference(batches, lambda x: model(x) * np.nan, model)


@pytest.mark.parametrize("name", ["rte", "swin"])
def test_an_onnx_file_names_its_open_axes_and_holds_no_node_in_vain(exports, name):
    """onnxruntime would warn of each such node at every load."""
    graph = onnx.load(str(exports[name][1] / "model.onnx")).graph
    taken = {value for node in graph.node for value in node.input} | {"logits"}
    assert not [node.name for node in graph.node if not taken & set(node.output)]
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    if name == "swin":  # those of texts: tests/parity/test_whole_models.py
        assert shapes == {"images": ["batch", 3, 16, 16], "logits": ["batch", 3]}


def test_what_paddle2onnx_lacks_is_one_line(tmp_path, monkeypatch):
    """As it says it, and aborts: in a process of its own."""
    ended = subprocess.CompletedProcess([], -6, "", "[Paddle2ONNX] pinv: Cannot convert\nmore\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **named: ended)
    with pytest.raises(ValueError, match="translate this model: .* pinv: Cannot convert$"):
        translate(tmp_path / JSON, tmp_path / PARAMETERS, tmp_path / "model.onnx")


PAIRS = [Row(None, (f"the {'old ' * n}cat", f"a dog {'runs ' * (n % 3)}.")) for n in range(7)]


@pytest.mark.parametrize("name", ["cola", "rte", "swin"])
def test_an_export_gives_the_training_models_logits(exports, tmp_path, name):
    folder, out = exports[name]
    model, exported = open_predictor(folder, ema=False, cpu=True), open_predictor(out)
    if name == "swin":
        rows = list(read_rows([str(tiny.write_pictures(tmp_path / "data"))], model.recipe))
    else:
        rows = PAIRS if name != "cola" else [Row(None, row.value[:1]) for row in PAIRS]
    expected = model.logits(rows)
    assert expected.shape == (len(rows), len(model.recipe.labels) or 1)
    scale = max(1.0, float(np.abs(expected).max()))
    assert exported.recipe == model.recipe
    assert np.abs(exported.logits(rows) - expected).max() <= BOUND * scale
    alone = np.concatenate([exported.logits([row]) for row in rows])
    assert np.abs(alone - expected).max() <= BOUND * scale
    if name == "swin":
        (first, *_) = exported.predictions(rows, 4)
        assert (first["image"], set(first["probabilities"])) == (rows[0].name, set(tiny.CLASSES))


def test_a_score_has_all_digits_of_float32():
    """Probabilities: tests/parity/test_scores.py."""
    recipe = Recipe("m", (), ("x",), TextRecipe("wordpiece", 9, "longest", True))
    assert record(recipe, np.float32([2.5])) == {"score": 2.5}
    assert np.float32(record(recipe, np.float32([1.25e-8]))["score"]) == np.float32(1.25e-8)


def test_a_broken_model_and_a_broken_image_stop_it(exports, tmp_path):
    whole = open_predictor(exports["cola"][1])
    broken = dataclasses.replace(whole, run=lambda _: np.float32([[0, np.nan]]))
    with pytest.raises(ValueError, match="row 0: the model's output is not finite"):
        list(broken.predictions([Row(None, ("a",))], 1))
    (tmp_path / "a.png").write_bytes(b"no image")
    images = open_predictor(exports["swin"][1])
    rows = read_rows([str(tmp_path / "a.png")], images.recipe)
    with pytest.raises(ValueError, match="a.png: the image cannot be decoded"):
        list(images.predictions(rows, 4))


@pytest.mark.parametrize("name", ["model.onnx", "vocab.txt"])
def test_a_file_of_an_export_that_was_changed_is_seen(exports, tmp_path, name):
    out = shutil.copytree(exports["rte"][1], tmp_path / "out")
    content = bytearray((out / name).read_bytes())
    content[len(content) // 2] ^= 1
    (out / "model.json").unlink()  # Paddle's graph is not needed
    assert open_predictor(out).recipe.labels
    (out / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name}: its size or checksum is not that of manifest"):
        open_predictor(out)


@pytest.fixture
def run(ran):
    """Status, lines on stdout and stderr of a command."""
    programs = {command: "export", predictor: "predict"}
    return lambda module, *arguments: ran(
        cli.command(programs[module])(module.run_command), *arguments
    )


def test_export_then_predict_a_file_and_stdin(exports, run, tmp_path, monkeypatch):
    folder, _ = exports["rte"]
    lines = "".join(f"the {'old ' * n}cat\ta dog runs.\n" for n in range(5))
    (tmp_path / "pairs.txt").write_text(lines, encoding="utf-8")
    out = tmp_path / "deep" / "export"
    status, printed, err = run(command, folder, out)
    assert status == 0, err
    assert [line.split(":")[0] for line in printed] == [
        str(out / name) for name in ("model.json", "model.onnx")
    ]
    assert all("of the largest logit (bound 0.0001)" in line for line in printed)
    status, printed, err = run(predictor, out, tmp_path / "pairs.txt", "--batch-size", 2)
    assert status == 0, err
    records = list(map(json.loads, printed))
    assert [one["index"] for one in records] == list(range(5))
    assert set(records[0]["probabilities"]) == {"entailment", "not_entailment"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    status, printed, err = run(predictor, folder, "--cpu")
    assert status == 0, err
    for ours, line in zip(records, printed, strict=True):
        assert json.loads(line)["label"] == ours["label"]


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (command, ("{folder}", "{out}"), "exists: name a new folder, or remove it"),
        (predictor, ("{pairs}", "{bad}"), "bad.txt, line 1: expected two texts with a TAB"),
        (predictor, ("{out}", "{bad}", "--no-ema"), "is an export, with weights of its own"),
        (predictor, ("{questions}", "{bad}"), "is neither exported nor predicted with"),
        (predictor, ("{states}", "{bad}"), "hidden states, whose encoder it does not hold"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(
    exports, run, tmp_path, command, arguments, message
):
    (folder, out), before = exports["cola"], sorted(exports["cola"][1].iterdir())
    names = {"folder": folder, "out": out, "bad": tmp_path / "bad.txt"}
    names["bad"].write_text("a\n b\tc\n", encoding="utf-8")
    names |= {"pairs": exports["rte"][1], "questions": tmp_path / "squad"}
    tiny.write_text_model(names["questions"], options=dict(tiny.RUN), pooling="spans")
    names["states"] = tmp_path / "states"
    names["states"].mkdir()
    content = {"sot_model": "adapter_classifier", "num_layers": 3, "hidden_size": 12}
    (names["states"] / "config.json").write_text(json.dumps(content), encoding="utf-8")
    status, printed, err = run(command, *(text.format(**names) for text in arguments))
    assert (status, printed) == (2, [])
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(out.iterdir()) == before
