"""The record of what is asked: documented and spelled once, checked, and close names suggested."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import paddle
import pytest
import torch

import align
from align.record.request import FIELDS, Request, nearest
from tests.certificate.scene import Scene

X, LABELS = np.ones((2, 4)), np.array([0, 2])
TRAINED = {"loss": "cross_entropy", "labels": LABELS, "optimizer": "sgd", "steps": 2}


def test_compare_shows_every_field_with_its_default_and_its_meaning() -> None:
    shown = inspect.signature(align.compare).parameters
    assert tuple(shown) == (*FIELDS, "out")
    for field in dataclasses.fields(Request)[3:]:
        assert shown[field.name].default == field.default
        assert shown[field.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"        {field.name}: " in align.compare.__doc__
    assert "out: folder for report.html" in align.compare.__doc__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": 2}, "unknown argument 'step': did you mean 'steps'"),
        ({"Optimiser": "sgd"}, "did you mean 'optimizer'"),
        ({"colour": 2}, "unknown argument 'colour': known: loss, labels, batches"),
    ],
)
def test_an_unknown_argument_is_named_with_the_one_that_is_meant(options, message) -> None:
    with pytest.raises(TypeError, match=message):
        align.compare(torch.nn.Identity(), paddle.nn.Identity(), X, **options)
    assert nearest("BATCHE") == "batches"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "expected some of float64, float32"),
        ({"dtype": 64}, "dtype 64: expected some of float64, float32"),
        ({"train": "no"}, "train 'no': expected True or False"),
        ({"name": 3}, "name 3: expected text"),
        ({"seed": -1}, "seed -1: expected a whole number >= 0"),
        ({"optimizer": "sgd", "steps": True}, "steps True: expected a whole number"),
        ({"loss": "hinge"}, "expected None, cross_entropy, mse"),
        ({"loss": "mse"}, "needs labels"),
        ({"loss": "mse", "labels": {"y": X}}, "labels: got dict, expected one NumPy array"),
        ({"labels": LABELS}, "say what they are for"),
        ({"steps": 2}, "needs optimizer"),
        ({"optimizer": "sgd"}, "without steps"),
        ({"optimizer": "adam", "steps": 1}, "expected one of sgd, adamw"),
        ({"optimizer": 5, "steps": 1}, "optimizer: got int, expected a name or a dict"),
        ({"optimizer": {"name": "sgd", "beta": 1}, "steps": 1}, "unknown option 'beta'"),
        ({"inputs": {}}, "expected NumPy arrays"),
        ({"inputs": (X, paddle.ones([2]))}, "inputs: '1' is a paddle.Tensor, expected a NumPy"),
        ({"inputs": {"ids": torch.ones(2)}}, "inputs: 'ids' is a torch.Tensor, expected a NumPy"),
        ({"metric": max}, "metric: got builtin_function_or_method, expected a pair"),
        ({"schedule": (1, 2)}, "schedule: expected a pair of callables"),
        ({"schedule_steps": 3}, "schedule_steps= needs schedule="),
        ({"dropout": "on"}, "dropout 'on': expected one of off, compare"),
        ({"dropout": "compare"}, "needs train=True or steps="),
        ({"accumulate": 2}, "accumulate 2: expected 1 or more batches"),
        ({"batches": [(X, None)]}, "batches= needs optimizer= and steps="),
        ({**TRAINED, "batches": 5}, "batches: got int, expected a sequence"),
        ({**TRAINED, "batches": []}, "batches: there is none"),
        ({**TRAINED, "batches": [(X, LABELS), X[0]]}, r"batches\[1\] is a ndarray, expected"),
        ({**TRAINED, "batches": [(X, None)]}, r"batches\[0\] has none, labels= has some"),
        ({**TRAINED, "batches": [((X, X), LABELS)]}, r"batches\[0\] has the inputs 0, 1, inputs= "),
        ({**TRAINED, "batches": [(5, LABELS)]}, r"batches\[0\]: got int, expected NumPy arrays"),
    ],
)
def test_a_request_that_means_nothing_is_refused_in_one_line(options, message) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        Request(None, None, **{"inputs": X, **options})
    assert len(str(raised.value).splitlines()) == 1


def test_what_was_asked_stays_and_a_scene_is_a_request() -> None:
    asked = Request(None, None, X, **TRAINED)
    assert asked.inputs[0] is X
    assert asked.optimizer == {"name": "sgd", "lr": 0.01, "momentum": 0.0, "weight_decay": 0.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        asked.steps = 3
    scene = Scene(None, None, X, **TRAINED)
    assert scene.dtypes == ("float64",)
    assert dataclasses.replace(scene, steps=3).optimizer == asked.optimizer
