"""The head of question answering. Dims: B 2, S 5, C 12."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.config import HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import build_head
from sot_paddle.heads.spans import SpanHead

B, S, C = 2, 5, 12

pytestmark = pytest.mark.usefixtures("float64")


def test_every_token_is_scored_the_class_token_first(check_gradient) -> None:
    head = build_head(HeadConfig(pooling="spans"), dim=C, num_classes=2)
    tokens = np.random.default_rng(8).normal(size=(B, S, C))
    expected = tokens @ head.word_fc.weight.numpy() + head.word_fc.bias.numpy()

    def scores(given: paddle.Tensor) -> paddle.Tensor:
        return paddle.stack(head(Features(given[:, 0], given[:, 1:])), axis=-1)

    np.testing.assert_allclose(scores(paddle.to_tensor(tokens)).numpy(), expected, rtol=1e-12)
    check_gradient(scores, tokens)


def test_the_deviation_at_the_start_is_the_encoder_s() -> None:
    head = SpanHead(4000, dropout=0.0, std=0.05)
    assert head.word_fc.weight.numpy().std() == pytest.approx(0.05, rel=0.05)
    assert not head.word_fc.bias.numpy().any()


@pytest.mark.parametrize(
    ("options", "classes", "class_token"),
    [({}, 3, True), ({"fusion": "concat"}, 2, True), ({}, 2, False)],
)
def test_what_cannot_score_spans_is_refused(options, classes, class_token) -> None:
    with pytest.raises(ValueError, match="pooling 'spans' scores the start and the end"):
        build_head(
            HeadConfig(pooling="spans", **options),
            dim=C,
            num_classes=classes,
            has_class_token=class_token,
        )
