"""Compare whole models: a plain call, an exported graph, the statistics that batch norms keep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import paddle
import pytest
import torch

from sot_paddle.deploy.graph import JSON, PARAMETERS, load_graph, save_graph
from sot_paddle.deploy.onnx_file import ONNX, load_onnx, translate
from tests.parity.model_inputs import image_inputs, text_inputs
from tests.parity.models import BERT, models_of_equal_weights, to_paddle_names
from tests.parity.sides import assert_same, paddle_precision

GPT = {**BERT, "intermediate_size": 80, "type_vocab_size": 1}
CONV_BERT = {**BERT, "embedding_size": 20, "pad_token_id": 0, "layer_norm_eps": 1e-3}
SOT = {
    "embed_dim": 20,
    "depth": 1,
    "num_heads": 4,
    "mlp_ratio": 1.5,
    "head_num_heads": 3,
    "wr_dim": 4,
    "head_dropout": 0.0,
}
LINEAR_SOT = {**SOT, "token_type": "linear", "img_size": 28}
SWIN = {"embed_dim": 12, "num_heads": (2, 3), "mlp_ratio": 2.0}
MASKED = {"mask_padding": True}
PLAIN_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("bert_base_mgcrp", {**BERT, **MASKED, "pooling": "mgcrp", "fusion": "sum_fc"}),
    ("bert_base_mgcrp", {**BERT, **MASKED, "pooling": "mgcrp", "fusion": "aggre_all"}),
    ("openai_gpt", {**GPT, "layer_norm_eps": 1e-3}),
    ("openai_gpt_mgcrp", {**GPT, **MASKED}),
    ("conv_bert_base_mgcrp", {**CONV_BERT, **MASKED}),
    ("sot_tiny", LINEAR_SOT),
    ("swin_tiny", {**SWIN, "depths": (1, 1), "window_size": 3, "img_size": 24}),
]


@pytest.mark.parametrize(("name", "options"), PLAIN_CALLS)
def test_logits_of_a_plain_call(name: str, options: Mapping[str, Any]) -> None:
    """As in a README: ``model(input_ids)`` or ``model(images)``; no taps, and at first no mask.

    A text model is then given masks of every type, of which it hands truth values to its head.
    """
    inputs = inputs_of(options)
    model, torch_model = models_in_evaluation(name, options, "float64")
    first = inputs.get("images", inputs.get("input_ids"))
    mask = inputs.get("attention_mask")
    with paddle_precision("float64"), paddle.no_grad(), torch.no_grad():
        tensor, torch_tensor = paddle.to_tensor(first), torch.tensor(first)
        logits, torch_logits = {"plain": model(tensor)}, {"plain": torch_model(torch_tensor)}
        for dtype in () if mask is None else ("int64", "bool", "float64"):
            valid = paddle.to_tensor(mask.astype(dtype))
            logits[dtype] = model(tensor, attention_mask=valid)
            torch_logits[dtype] = torch_model(torch_tensor, attention_mask=torch.tensor(mask))
            assert model.features(tensor, None, valid).mask.dtype == paddle.bool
    assert_same(
        {kind: value.numpy() for kind, value in logits.items()},
        {kind: value.numpy() for kind, value in torch_logits.items()},
    )


# PADDLE: a saved graph holds a Python number as float32 (4e-8 off), in float64 too: models with
# such numbers are compared in float32 alone, in which exports are made
GRAPHS: list[tuple[str, str, dict[str, Any], str]] = [
    # name, precision, options, type of our mask: an export takes either, as the model does
    (
        "bert_base_mgcrp",
        "float64",
        {**BERT, **MASKED, "pooling": "mgcrp", "vec": "triu"},
        "int64",
    ),
    ("bert_base_mgcrp", "float64", BERT, "int64"),
    ("bert_base_mgcrp", "float64", {**BERT, "pooling": "gcp_text"}, "int64"),
    # padding is pooled too
    ("openai_gpt_mgcrp", "float32", {**GPT, "pooling": "mgcrp", "num_hidden_layers": 6}, "bool"),
    ("openai_gpt_mgcrp", "float32", {**GPT, **MASKED}, "bool"),
    ("sot_tiny", "float32", LINEAR_SOT, ""),
    # 5 x 5 tokens in windows of 4: padded to 8 x 8
    ("swin_tiny", "float32", {**SWIN, "depths": (2, 1), "window_size": 4, "img_size": 20}, ""),
]
EXPORT_BOUNDS = {
    "float64": 1e-10,
    "float32": 2e-5,  # an operator rounds below 1e-6 of its largest value, some in a row
}


@pytest.mark.parametrize(("name", "dtype", "options", "mask"), GRAPHS)
def test_logits_of_a_saved_graph(
    name: str, dtype: str, options: Mapping[str, Any], mask: str, tmp_path: Path
) -> None:
    """Of the batch that it was traced with, of one row, and of fewer tokens."""
    inputs = export_inputs(options, dtype, mask or "int64")
    model, torch_model = models_in_evaluation(name, options, dtype)
    with paddle_precision(dtype):
        save_graph(model, inputs, tmp_path)
        run = load_graph(tmp_path, list(inputs))
        paddle_values = {shape: run(some) for shape, some in calls_of(inputs).items()}
    torch_values = torch_logits_of(torch_model, inputs)
    assert_same(paddle_values, torch_values, bound=EXPORT_BOUNDS[dtype])


ONNX_FILES: list[tuple[str, dict[str, Any]]] = [
    ("bert_base_mgcrp", {**BERT, **MASKED}),
    ("openai_gpt", {**GPT, "initializer_range": 0.5}),  # so large that both forms of GELU differ
]


@pytest.mark.parametrize(("name", "options"), ONNX_FILES)
def test_logits_of_an_onnx_file(name: str, options: Mapping[str, Any], tmp_path: Path) -> None:
    """In onnxruntime; the axes of rows and of tokens are open."""
    inputs = export_inputs(options, "float32", "int64")
    model, torch_model = models_in_evaluation(name, options, "float32")
    save_graph(model, inputs, tmp_path)
    translate(tmp_path / JSON, tmp_path / PARAMETERS, tmp_path / ONNX)
    run = load_onnx(tmp_path)
    paddle_values = {shape: run(some) for shape, some in calls_of(inputs).items()}
    torch_values = torch_logits_of(torch_model, inputs)
    assert_same(paddle_values, torch_values, bound=EXPORT_BOUNDS["float32"])
    graph = onnx.load(str(tmp_path / ONNX)).graph
    open_axes = []
    for item in (*graph.input, *graph.output):
        names = [axis.dim_param for axis in item.type.tensor_type.shape.dim]
        open_axes.append([axis for axis in names if axis])
    assert open_axes == [["batch", "tokens"]] * len(inputs) + [["batch"]]


def test_running_statistics_in_float32() -> None:
    """After a forward pass in training mode; the model has both momenta, .9 and .99."""
    options = {**SOT, "token_type": "resnet", "token_dim": 8, "img_size": 32}
    images = image_inputs(4, 32)["images"].astype("float32")
    model, torch_model = models_of_equal_weights("sot_tiny", options, "float32")
    with paddle.no_grad(), torch.no_grad():
        model(paddle.to_tensor(images))
        torch_model(torch.tensor(images))
    statistics = {n: t for n, t in torch_model.state_dict().items() if "running" in n}
    assert_same(
        {name: t.numpy() for name, t in model.state_dict().items() if "running" in name},
        to_paddle_names("sot_tiny", torch_model, statistics),
        # a batch moves a value by 1 to 10 %: its moments' rounding shows as less than 1e-6
        bound=1e-5,
    )


def models_in_evaluation(
    name: str, options: Mapping[str, Any], dtype: str
) -> tuple[paddle.nn.Layer, torch.nn.Module]:
    """Build both sides of equal weights: five classes of images, three of texts."""
    classes = 5 if "img_size" in options else 3
    model, torch_model = models_of_equal_weights(name, dict(options), dtype, classes=classes)
    model.eval()
    return model, torch_model.eval()


def inputs_of(options: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Draw two images of the model's size, or four rows of token ids."""
    return image_inputs(2, options["img_size"]) if "img_size" in options else text_inputs(options)


def export_inputs(options: Mapping[str, Any], dtype: str, mask: str) -> dict[str, np.ndarray]:
    """Draw what an export is traced with: no token types where the model knows one alone."""
    inputs = inputs_of(options)
    if options.get("type_vocab_size") == 1:
        del inputs["token_type_ids"]
    dtypes = {"images": dtype, "attention_mask": mask}
    return {name: array.astype(dtypes.get(name, "int64")) for name, array in inputs.items()}


def calls_of(inputs: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """Return the batch, one row of it and, of texts, its first five tokens."""
    calls = {"batch": dict(inputs), "one row": {name: a[1:2] for name, a in inputs.items()}}
    if "images" not in inputs:
        calls["fewer tokens"] = {name: a[:, :5] for name, a in inputs.items()}
    return calls


def torch_logits_of(
    torch_model: torch.nn.Module, inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Run the reference on every batch of `calls_of`."""
    logits = {}
    for shape, arrays in calls_of(inputs).items():
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        if "attention_mask" in tensors:
            tensors["attention_mask"] = tensors["attention_mask"].long()
        with torch.no_grad():
            logits[shape] = torch_model(**tensors).numpy()
    return logits
