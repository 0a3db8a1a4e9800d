"""Question answering: every token scored as the first and as the last of the answer.

Shape legend: B samples, S tokens, C channels.
"""

from __future__ import annotations

import paddle
from paddle import nn

from sot_paddle.features import Features, Taps, record
from sot_paddle.heads.pooling import linear


class SpanHead(nn.Layer):
    """One linear layer on every token (transformers' ...ForQuestionAnswering).

    Args:
        dim: C.
        dropout: probability on the tokens; the original has none.
        std: standard deviation of the weight at the start.

    Source: C.4.
    """

    def __init__(self, dim: int, *, dropout: float, std: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.word_fc = linear(dim, 2, std=std)

    def forward(
        self, features: Features, taps: Taps | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Map class token and words to start and end logits, each (B, S)."""
        tokens = paddle.concat([features.cls.unsqueeze(1), features.words], axis=1)  # (B, S, C)
        scores = record(taps, "head.span_logits", self.word_fc(self.dropout(tokens)))  # (B, S, 2)
        return scores[..., 0], scores[..., 1]
