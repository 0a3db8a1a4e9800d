"""The parts of every head's score and the margin that is explained."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.explain.parts import PartEvidence, contrast, part_logits, parts_of

THREE = ["ClassT", "WordT", "ClassT+WordT"]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("sot_tiny", {}, THREE),
        ("sot_tiny", {"fusion": "sum_loss"}, THREE),
        ("sot_tiny", {"pooling": "gap"}, THREE),
        ("sot_tiny", {"fusion": "word_tokens"}, ["WordT"]),
        ("sot_tiny", {"fusion": "class_token"}, ["ClassT"]),
        ("sot_tiny", {"fusion": "concat"}, ["ClassT+WordT"]),
        ("sot_tiny", {"fusion": "aggre_all"}, ["ClassT+WordT"]),
        ("sot_tiny", {"pooling": "none"}, ["ClassT"]),
        ("sot_tiny", {"pooling": "fc"}, ["ClassT"]),
        ("sot_tiny", {"pooling": "pooler"}, ["ClassT"]),
        ("swin_tiny", {}, ["WordT"]),
        ("swin_tiny", {"pooling": "mgcrp", "fusion": "aggre_all"}, ["WordT"]),
    ],
)
def test_the_last_part_is_what_the_model_predicts_with(tiny, name, options, expected) -> None:
    model = tiny.image_model(name, **options)
    parts = parts_of(model)
    assert [part.name for part in parts] == expected
    assert all(part.note for part in parts)
    images = paddle.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 16, 16)), "float32")
    logits, taps = model(images, return_taps=True)
    found = part_logits(parts, taps)
    np.testing.assert_allclose(found[-1], logits.numpy(), rtol=1e-5, atol=1e-5)
    if len(found) == 3:
        np.testing.assert_array_equal(found[0] + found[1], found[2])


def test_a_head_of_somebody_else_is_refused(tiny) -> None:
    model = tiny.image_model()
    model.head = paddle.nn.Linear(12, 3)
    with pytest.raises(ValueError, match="parts of a Linear are not known"):
        parts_of(model)


def test_the_margin_does_not_see_a_number_added_to_all_logits() -> None:
    logits = np.array([0.5, -1.0, 3.0, 0.1])
    found = [PartEvidence(None, values, 2, np.zeros(1)) for values in (logits, logits + 7.0)]
    assert found[0].margin == pytest.approx(3.0 - (0.5 - 1.0 + 0.1) / 3)
    assert found[1].margin == pytest.approx(found[0].margin)
    assert found[0].choice == 2
    assert found[0].probability == pytest.approx(np.exp(3.0) / np.exp(logits).sum())
    np.testing.assert_allclose(contrast([1, 0], 3), [[-0.5, 1, -0.5], [1, -0.5, -0.5]])
    np.testing.assert_array_equal(contrast([0, 0], 1), [[1], [1]])
