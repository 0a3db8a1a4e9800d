"""Evidence maps: finite differences, completeness, blank images, damage."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.explain.image_maps import explain_image, token_evidence
from sot_paddle.explain.parts import contrast, parts_of
from tests.sot_paddle.explain import tiny_models as tiny


def test_gradients_against_finite_differences(float64) -> None:
    """With one step the evidence is the slope, at the middle of the path, of moving one token."""
    model = tiny.image_model("sot_tiny")
    parts = parts_of(model)
    draw = np.random.default_rng(2)
    count = model.embed.num_tokens
    tokens = draw.normal(size=(count, 12))
    change = tokens - tokens.mean(axis=0)
    found = token_evidence(model, tokens, parts, 2, steps=1)
    middle = tokens.mean(axis=0) + 0.5 * change

    model.embed.forward = lambda x, taps: x
    step = 1e-6
    for token in (0, 5, count - 1):
        move = np.zeros_like(change)
        move[token] = step * change[token]
        pair = paddle.to_tensor(np.stack([middle + move, middle - move]))
        _, taps = model(pair, return_taps=True)
        for part, evidence in zip(parts, found, strict=True):
            logits = sum(taps[tap].numpy() for tap in part.taps)
            margins = logits @ contrast(2, 3)
            slope = (margins[0] - margins[1]) / (2 * step)
            assert evidence[token] == pytest.approx(slope, rel=1e-5, abs=1e-7)
    assert min(np.abs(each).max() for each in found) > 1e-3


def test_the_map_sums_to_what_the_tokens_change(float64) -> None:
    """Completeness: the evidence adds up to the margin less that of mean tokens."""
    model = tiny.image_model(pooling="gap")
    tokens = np.random.default_rng(4).normal(size=(16, 12))
    found = token_evidence(model, tokens, parts_of(model), 1, steps=200)
    model.embed.forward = lambda x, taps: x
    ends = np.stack([tokens, np.repeat(tokens.mean(axis=0, keepdims=True), 16, axis=0)])
    _, taps = model(paddle.to_tensor(ends), return_taps=True)
    for part, evidence in zip(parts_of(model), found, strict=True):
        margins = sum(taps[tap].numpy() for tap in part.taps) @ contrast(1, 3)
        assert abs(margins[0] - margins[1]) > 1e-2
        assert evidence.sum() == pytest.approx(margins[0] - margins[1], rel=2e-3)


def test_a_blank_image_has_no_evidence_and_damage_is_refused() -> None:
    model = tiny.image_model()
    model.train()
    image = np.random.default_rng(0).normal(size=(3, 16, 16))
    maps = [part.evidence for part in explain_image(model, image)]
    assert [each.shape for each in maps] == [(4, 4)] * 3
    np.testing.assert_allclose(maps[0] + maps[1], maps[2], atol=1e-12)
    assert model.training
    for part in token_evidence(model, np.ones((16, 12)), parts_of(model), 0):
        np.testing.assert_array_equal(part, 0.0)
    bias = model.head.cls_fc.bias
    paddle.assign(paddle.full_like(bias, float("nan")), output=bias)
    with pytest.raises(ValueError, match="not a finite number"):
        explain_image(model, image)
