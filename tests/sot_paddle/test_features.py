"""The contract between backbones and heads."""

from __future__ import annotations

import dataclasses

import paddle
import pytest

from sot_paddle.features import Features, record


def test_features_are_frozen_and_the_mask_is_optional() -> None:
    cls, words = paddle.ones([2, 4]), paddle.ones([2, 5, 4])
    features = Features(cls, words)
    assert features.mask is None
    assert [field.name for field in dataclasses.fields(Features)] == [
        "cls",
        "words",
        "mask",
        "hidden",
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        features.cls = None


def test_record_returns_the_same_tensor_and_stores_it_when_asked() -> None:
    tensor, taps = paddle.ones([3]), {}
    assert record(None, "a", tensor) is tensor
    assert record(taps, "b", tensor) is tensor
    assert list(taps) == ["b"]
    assert taps["b"] is tensor
