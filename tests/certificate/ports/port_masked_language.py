"""Masked language modelling in Paddle: an encoder, its projection tied to the embedding.

Shapes: B samples, N tokens, C width, V vocabulary.
"""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F


class Projection(nn.Layer):
    """Scores by an embedding's table: its own bias, not its own weight."""

    def __init__(self, weight: paddle.Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.bias = self.create_parameter([weight.shape[0]], is_bias=True)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """(B, N, C) to (B, N, V)."""
        return x @ self.weight.T + self.bias


class MaskedLanguage(nn.Layer):
    """An encoder with a ``words`` embedding, a transform, and the tied projection."""

    def __init__(self, encoder: nn.Layer, dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.transform = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, epsilon=1e-12)
        self.project = Projection(encoder.words.weight)

    def forward(self, input_ids: paddle.Tensor, attention_mask: paddle.Tensor) -> paddle.Tensor:
        """Token numbers and mask (B, N) to scores (B, N, V)."""
        x = self.encoder(input_ids, attention_mask)
        return self.project(self.norm(F.gelu(self.transform(x))))


def loss(scores: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Mean cross entropy over the masked words; -100 marks the others."""
    terms = F.cross_entropy(scores, labels.unsqueeze(-1), ignore_index=-100, reduction="none")
    return terms.sum() / (labels != -100).sum().astype(terms.dtype)
