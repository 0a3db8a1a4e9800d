"""Names of attention kernels and projections; what they compute: cases conv_bert_*."""

from __future__ import annotations

import dataclasses

import pytest

from sot_paddle.backbones.attention import (
    Kernel,
    Projection,
    parse_kernel,
    parse_projection,
)


@pytest.mark.parametrize(
    ("text", "changes", "needs"),
    [
        ("dot_product", {}, (True, True)),
        ("qk_convk_convq 8", {"terms": ("qk", "convq", "convk"), "reach": 8}, (True, True)),
        ("convfixed 3", {"terms": ("convfixed",), "reach": 3}, (False, False)),
        ("convq 1", {"terms": ("convq",), "reach": 1}, (True, False)),
        ("convfixed_convk 2", {"terms": ("convfixed", "convk"), "reach": 2}, (False, True)),
        ("convolution 5", {"reach": 5, "convolution": True}, (True, True)),
        (
            "convolution_scaled_convq 5",
            {"terms": ("convq",), "reach": 5, "convolution": True, "scaled": True},
            (True, False),
        ),
        ("convbert", {"spans": True}, (True, True)),
    ],
)
def test_names_of_kernels(text, changes, needs):
    plain = Kernel(("qk",), 0, convolution=False, scaled=False, spans=False)
    assert parse_kernel(text) == dataclasses.replace(plain, **changes)
    assert parse_kernel(text).needs == needs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("qk_convz 8", r"unknown word 'convz' in 'qk_convz 8'; did you mean convq or convk"),
        ("convq", "expected one number after the names, the tokens to each side, got 'convq'"),
        ("qk 8", "expected no number, got 'qk 8'"),
        ("convq 0", "expected whole numbers from 1 on after the names, got 'convq 0'"),
        ("convq -1", "expected whole numbers"),
        ("convq 1 2", "expected one number"),
        ("scaled 2", "scaled belongs to convolution, got 'scaled 2'"),
        ("convbert_qk", "convbert stands alone, got 'convbert_qk'"),
        ("", "unknown word ''"),
    ],
)
def test_kernels_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_kernel(text)


def test_names_of_projections():
    assert parse_projection("qk", "linear") == Projection()
    assert parse_projection("value_forward", "feedforward") == Projection()
    assert parse_projection("qk", "convolution 3 2") == Projection(3, 2)
    assert parse_projection("qk", "convolution_mixed_depth_no_act 3 2") == Projection(
        3, 2, depth=True, mixed=True, activated=False
    )
    for option, text in (("qk", "feedforward"), ("value_forward", "linear"), ("qk", "conv 1 1")):
        with pytest.raises(ValueError, match=f"{option}: unknown word"):
            parse_projection(option, text)
    for text in ("convolution 3", "convolution_no 3 1", "depth 3 1"):
        with pytest.raises(ValueError, match="qk: expected 'linear', or 'convolution' with"):
            parse_projection("qk", text)
