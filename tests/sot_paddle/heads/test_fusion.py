"""Where the dropout of a fusion acts; values are compared by the alignment's cases head_*."""

from __future__ import annotations

import paddle
import pytest

from sot_paddle.features import Features
from sot_paddle.heads import fusion
from sot_paddle.heads.pooling import AveragePooling

B, N, C, CLASSES = 3, 5, 12, 2


@pytest.mark.parametrize(
    "kind", [fusion.SumHead, fusion.ConcatHead, fusion.AllTokensHead, fusion.SumLossHead]
)
def test_dropout_acts_on_the_representation_alone(float64, kind) -> None:
    """The tap before dropout is whole."""
    cls, words = (paddle.normal(shape=shape) for shape in ([B, C], [B, N, C]))
    options = {"dim": C, "mask_padding": False}
    dropped, plain = (
        kind(AveragePooling(C), CLASSES, **options, dropout=rate) for rate in (0.5, 0.0)
    )
    plain.set_state_dict(dropped.state_dict())
    taps, whole = {}, {}
    dropped(Features(cls, words), taps)
    plain(Features(cls, words), whole)
    gap = {name: float((taps[name] - whole[name]).abs().max()) for name in whole}
    assert gap.pop("head.representation") == 0.0
    assert gap.pop("head.word_logits") > 1e-3
    assert gap in ({}, {"head.cls_logits": 0.0})
