"""The traced form computes what the model computes, and leaves no trace in the model."""

from __future__ import annotations

import contextlib

import numpy as np
import paddle
import pytest

from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.swin_blocks import WindowAttention
from sot_paddle.deploy.export_form import FORMS, export_form


@pytest.mark.parametrize("name", ["sot_tiny", "deit_tiny", "swin_tiny"])
def test_a_model_in_its_form_gives_the_same_logits(tiny, name):
    model = tiny.image_model(name)
    kinds = {type(layer) for layer in model.sublayers()} & set(FORMS)
    assert kinds == {WindowAttention if name.startswith("swin") else Attention}
    images = np.random.default_rng(3).normal(size=(3, 3, tiny.SIZE, tiny.SIZE))
    images = paddle.to_tensor(images.astype("float32"))
    expected = model(images).numpy()
    with export_form(model):
        found = model(images).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert not any("forward" in vars(layer) for layer in model.sublayers())
    np.testing.assert_array_equal(model(images).numpy(), expected)


def test_the_forms_are_in_place_only_inside_of_the_block_also_after_an_error(tiny):
    model = tiny.image_model("swin_tiny")
    layers = [layer for layer in model.sublayers() if type(layer) in FORMS]
    inside = []
    with contextlib.suppress(KeyError), export_form(model):
        inside += ["forward" in vars(layer) for layer in layers]
        raise KeyError("stop")
    assert len(inside) == 3
    assert all(inside)
    assert not any("forward" in vars(layer) for layer in layers)


def test_a_model_in_training_mode_is_refused(tiny):
    model = tiny.text_model()
    model.train()
    with pytest.raises(ValueError, match="evaluation mode: call eval"), export_form(model):
        pass
