"""The traced form leaves no trace in the model; its numbers: tests/parity/test_whole_models.py."""

from __future__ import annotations

import contextlib

import pytest

from sot_paddle.deploy.export_form import FORMS, export_form


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
