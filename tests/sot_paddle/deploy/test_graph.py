"""Traced graphs: heads that tests/parity does not trace, images; no trace of the form is left."""

from __future__ import annotations

import contextlib

import numpy as np
import paddle
import pytest

from sot_paddle.config import WORD_POOLINGS
from sot_paddle.deploy import onnx_file
from sot_paddle.deploy.graph import FORMS, export_form, load_graph, run_model, save_graph
from sot_paddle.ops import build
from sot_paddle.registry import create_model
from tests.sot_paddle.explain import tiny_models as tiny

HEADS = {
    "mgcrp, two triplets": {"pooling": "mgcrp", "num_sv": 2, "num_iter": 3},
    "gcp, all tokens, masked": {"pooling": "gcp", "fusion": "aggre_all", "mask_padding": True},
    "gcp_text, joined": {"pooling": "gcp_text", "fusion": "concat"},
    "gap, summed losses": {"pooling": "gap", "fusion": "sum_loss"},
}
_SEEN = {options.get("pooling", "mgcrp_qk") for options in HEADS.values()}
HEADS |= {name: {"pooling": name} for name in WORD_POOLINGS if name not in _SEEN}
NAMES = ("input_ids", "token_type_ids", "attention_mask")


def text_batch(rows: int, tokens: int, seed: int) -> dict[str, np.ndarray]:
    """Token ids of pairs; the first row is padded where it is long enough."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(5, 17, (rows, tokens))
    types = np.zeros_like(ids)
    types[:, tokens // 2 :] = 1
    mask = np.ones_like(ids)
    mask[0, max(2, tokens - 2) :] = 0
    return dict(zip(NAMES, (ids, types, mask), strict=True))


@pytest.mark.parametrize("head", HEADS)
def test_a_text_graph_is_open_in_rows_and_tokens(tmp_path, head, monkeypatch):
    # a graph holds Paddle's operators: the same ones on both sides
    monkeypatch.setattr(build, "why_not", lambda: "SOT_PADDLE_NATIVE=0")
    model = tiny.text_model(3, wr_dim=4, head_num_heads=2, qkv_dim=3, **HEADS[head])
    save_graph(model, text_batch(2, 9, 0), tmp_path)
    files = (tmp_path / name for name in ("model.json", "model.pdiparams", "model.onnx"))
    onnx_file.translate(*files)  # says so where an operator has no translation
    graph, direct = load_graph(tmp_path, NAMES), run_model(model, NAMES)
    for rows, tokens in ((1, 4), (2, 9), (5, 20)):
        batch = text_batch(rows, tokens, rows)
        expected, found = direct(batch), graph(batch)
        assert isinstance(found, np.ndarray)  # a Tensor would be compared as well
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1.0, scale))


def test_an_image_graph_is_open_in_rows(tmp_path):
    """Stem, dense blocks and transitions, native elsewhere, are traced as Paddle's."""
    sizes = {"img_size": 32, "embed_dim": 12, "depth": 1, "num_heads": 3}
    model = create_model("sot_tiny", 3, **sizes, wr_dim=4, head_num_heads=2)
    model.eval()
    draw = np.random.default_rng(0)
    images = {"images": draw.normal(size=(5, 3, 32, 32)).astype("float32")}
    save_graph(model, {"images": images["images"][:2]}, tmp_path)
    graph, direct = load_graph(tmp_path, ("images",)), run_model(model, ("images",))
    np.testing.assert_allclose(graph(images), direct(images), rtol=0, atol=2e-5)


def test_the_forms_are_in_place_only_inside_of_the_block_also_after_an_error():
    model = tiny.image_model("swin_tiny")
    layers = [layer for layer in model.sublayers() if type(layer) in FORMS]
    inside = []
    with contextlib.suppress(KeyError), export_form(model):
        inside += ["forward" in vars(layer) for layer in layers]
        raise KeyError("stop")
    assert len(inside) == 3
    assert all(inside)
    assert not any("forward" in vars(layer) for layer in layers)


def test_what_paddle2onnx_lacks_is_named(tmp_path):
    model = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.Softplus(beta=2))
    model.eval()
    inputs = [paddle.static.InputSpec([None, 4], "float32", "x")]
    paddle.jit.save(model, str(tmp_path / "model"), input_spec=inputs)
    files = (tmp_path / name for name in ("model.json", "model.pdiparams", "model.onnx"))
    with pytest.raises(ValueError, match=r"cannot translate this model: .*pd_op\.softplus"):
        onnx_file.translate(*files)
