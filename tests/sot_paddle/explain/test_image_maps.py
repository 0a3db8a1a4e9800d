"""Evidence maps: a linear head, finite differences, additivity, completeness, a planted patch."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.explain.image_maps import explain_image, token_evidence
from sot_paddle.explain.parts import contrast, parts_of
from sot_paddle.features import Features
from sot_paddle.heads.factory import HeadConfig, build_head
from sot_paddle.registry import create_model
from tests.sot_paddle.explain import tiny_models as tiny


def pictures(batch: int = 2, size: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, 3, size, size))


class Linear(nn.Layer):
    """Tokens of 4 x 4 pixels, and scores that are linear in their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Conv2D(3, 5, 4, 4), nn.LayerNorm(5)
        config = HeadConfig(pooling="gap", fusion="word_tokens")
        self.head = build_head(config, dim=5, num_classes=3)

    def forward(self, images, return_taps=False):
        tokens = self.embed(images)
        if tokens.ndim == 4:
            tokens = tokens.flatten(2).transpose([0, 2, 1])
        taps = {"embed": tokens}
        taps["logits"] = self.head(Features(None, tokens), taps)
        return taps["logits"], taps


def test_the_map_of_a_linear_head_is_known(float64) -> None:
    paddle.seed(4)
    model = Linear()
    images = pictures(1)
    (part,) = explain_image(model, images[0])
    logits, taps = model(paddle.to_tensor(images), return_taps=True)
    tokens = taps["embed"][0].numpy()  # (16, 5)
    weight = model.head.word_fc.weight.numpy() @ contrast(int(logits.argmax()), 3)  # (5,)
    expected = (tokens - tokens.mean(axis=0)) @ weight / 16
    np.testing.assert_allclose(part.evidence, expected.reshape(4, 4), atol=1e-14)
    assert np.abs(expected).max() > 1e-3


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


def planted(draw: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noise, and but for class 3 an 8 x 8 patch whose colour decides; its cell of a 4 x 4 grid."""
    images = draw.normal(0.0, 0.3, (count, 3, 32, 32)).astype("float32")
    labels, cells = draw.integers(0, 4, count), draw.integers(0, 16, count)
    for image, label, cell in zip(images, labels, cells, strict=True):
        row, column = divmod(int(cell), 4)
        place = image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        if label < 3:
            place -= 1.0
            place[label] += 3.0
    return images, labels, cells


def test_the_map_peaks_at_the_patch_that_decides_the_class() -> None:
    draw = np.random.default_rng(0)
    paddle.seed(3)
    sizes = {"img_size": 32, "token_type": "patch", "patch_size": 8, "embed_dim": 24, "depth": 2}
    model = create_model("sot_tiny", 4, **sizes, num_heads=3, wr_dim=4, head_num_heads=2)
    optimizer = paddle.optimizer.Adam(3e-3, parameters=model.parameters())
    for _ in range(160):
        images, labels, _ = planted(draw, 32)
        loss = F.cross_entropy(model(paddle.to_tensor(images)), paddle.to_tensor(labels))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    images, labels, cells = (each[:20] for each in planted(draw, 40))
    with_patch = labels < 3
    found = [explain_image(model, image) for image in images]
    assert model.training
    assert "forward" not in vars(model.embed)
    assert np.mean([row[-1].choice for row in found] == labels) > 0.9
    for place in range(3):  # ClassT, WordT, both
        maps = np.array([row[place].evidence.reshape(16) for row in found]).clip(0.0)
        shares = maps[np.arange(20), cells] / np.maximum(maps.sum(axis=1), 1e-9)
        # one cell of 16 would be chance: six of 14 happen by it once in 10,000 times; how much more
        # a short run learns depends on the processor
        assert np.sum((maps.argmax(axis=1) == cells)[with_patch]) >= 6, place
        assert np.mean(shares[with_patch]) > 0.5, (place, shares.round(2), labels)


def test_a_blank_image_has_no_evidence_and_damage_is_refused() -> None:
    model = tiny.image_model()
    for part in token_evidence(model, np.ones((16, 12)), parts_of(model), 0):
        np.testing.assert_array_equal(part, 0.0)
    bias = model.head.cls_fc.bias
    paddle.assign(paddle.full_like(bias, float("nan")), output=bias)
    with pytest.raises(ValueError, match="not a finite number"):
        explain_image(model, pictures(1)[0])
