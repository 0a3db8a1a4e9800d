"""ONNX files: names, open axes, and one line where paddle2onnx has no translation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import paddle
import pytest
from paddle import nn

from sot_paddle.deploy.graph import JSON, PARAMETERS, load_graph, run_model, save_graph
from sot_paddle.deploy.onnx_file import load_onnx, translate
from sot_paddle.deploy.trained import text_inputs
from sot_paddle.registry import create_model, list_models
from tests.sot_paddle.deploy.test_graph import NAMES, text_batch


def shapes(values) -> dict[str, list[int | str]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in values
    }


def test_names_and_open_axes(exports):
    graph = onnx.load(str(exports["rte"][1] / "model.onnx")).graph
    assert shapes(graph.input) == dict.fromkeys(NAMES, ["batch", "tokens"])
    assert shapes(graph.output) == {"logits": ["batch", 2]}
    graph = onnx.load(str(exports["swin"][1] / "model.onnx")).graph
    assert shapes(graph.input) == {"images": ["batch", 3, 16, 16]}
    assert shapes(graph.output) == {"logits": ["batch", 3]}


def test_onnxruntime_loads_an_export_without_a_word(exports):
    files = [str(folder / "model.onnx") for _, folder in exports.values()]
    load = "import sys, onnxruntime\nfor file in sys.argv[1:]: onnxruntime.InferenceSession(file)"
    done = subprocess.run(
        [sys.executable, "-c", load, *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Untranslatable(nn.Layer):
    """A model with an operator that ONNX has not."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([17, 17])

    def forward(self, input_ids: paddle.Tensor) -> paddle.Tensor:
        """(B, S) ids to (B, 17)."""
        rows = self.weight[input_ids[:, 0]]
        return paddle.matmul(rows, paddle.linalg.pinv(self.weight))


class Untraceable(nn.Layer):
    """A model that computes with a length."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([17, 17])

    def forward(self, input_ids: paddle.Tensor) -> paddle.Tensor:
        """(B, S) ids to (B, 17)."""
        return self.weight[input_ids[:, 0]] * float(np.zeros(input_ids.shape[1]).sum())


def _convolving(tiny) -> nn.Layer:
    sizes = {**tiny.BERT, "intermediate_size": 48, "pad_token_id": 0}
    return create_model("conv_bert_base", 3, **sizes)


@pytest.mark.parametrize("make", [lambda tiny: Untraceable(), _convolving])
def test_a_length_that_is_not_known_yet_is_one_line(tiny, tmp_path, make):
    model = make(tiny)
    model.eval()
    with pytest.raises(
        ValueError, match="^this model cannot be traced with open axes: .* -1 "
    ) as e:
        save_graph(model, {"input_ids": text_batch(2, 9, 0)["input_ids"]}, tmp_path)
    assert "\n" not in str(e.value)
    assert list(tmp_path.iterdir()) == []


def test_what_paddle2onnx_lacks_is_one_line(tmp_path):
    model = Untranslatable()
    model.eval()
    batch = {"input_ids": text_batch(2, 4, 0)["input_ids"]}
    save_graph(model, batch, tmp_path)
    files = (tmp_path / JSON, tmp_path / PARAMETERS, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="paddle2onnx cannot translate this model: .*; export it"):
        translate(*files, ["input_ids"])
    assert not files[2].exists()


def test_a_damaged_file_is_one_line(exports, tmp_path):
    with pytest.raises(ValueError, match="has no model.onnx: export with --formats onnx"):
        load_onnx(tmp_path)
    content = (exports["cola"][1] / "model.onnx").read_bytes()
    (tmp_path / "model.onnx").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="model.onnx cannot be loaded"):
        load_onnx(tmp_path)


SMALLEST = [
    name
    for name in list_models("text")
    if not name.endswith(("_large", "_mgcrp")) and name != "conv_bert_base"  # refused, see above
]


@pytest.mark.parametrize("name", SMALLEST)
def test_every_language_model_with_its_own_head(tiny, tmp_path, name):
    sizes = {key: value for key, value in tiny.BERT.items() if key != "vocab_size"}
    sizes |= {"vocab_size": 17, "head_dropout": 0.0, "intermediate_size": 48, "pad_token_id": 0}
    model = tiny.spread(create_model(name, 3, **sizes))
    names = list(text_inputs(model))
    batches = [text_batch(2, 9, 0), text_batch(3, 15, 1), text_batch(1, 4, 2)]
    if model.encoder_config.type_vocab_size == 1:
        for batch in batches:
            batch["token_type_ids"] *= 0
    save_graph(model, {name: batches[0][name] for name in names}, tmp_path)
    translate(tmp_path / JSON, tmp_path / PARAMETERS, tmp_path / "model.onnx", names)
    run, graph, direct = load_onnx(tmp_path), load_graph(tmp_path, names), run_model(model, names)
    for batch in batches:
        expected = direct(batch)
        scale = max(1.0, float(np.abs(expected).max()))
        for found in (run(batch), graph(batch)):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * scale)
