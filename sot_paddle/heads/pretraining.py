"""BERT's two tasks of pre-training: masked words, and whether one text follows another.

Shape legend: B samples, S tokens, P masked words of a sample, C hidden size, E size of the word
embeddings, V words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.config import PRETRAINING
from sot_paddle.features import Features
from sot_paddle.heads.pooling import linear
from sot_paddle.heads.power_norm import RowLayerNorm


@dataclass(frozen=True)
class PretrainingHeadConfig:
    """Options of the head, as files state them."""

    next_sentence: bool = True
    pooling: str = PRETRAINING
    fusion: str = "class_token"  # uses the class token; there is nothing to combine


class MaskedWordHead(nn.Layer):
    """Scores of every word: dense, activation, layer norm, and the word embeddings themselves.

    Source: specs.md D.1 and E.
    """

    def __init__(
        self,
        dim: int,
        embedding_size: int,
        vocab_size: int,
        *,
        activation: Callable[[paddle.Tensor], paddle.Tensor],
        epsilon: float,
        std: float,
    ) -> None:
        super().__init__()
        self.dense = linear(dim, embedding_size, std=std)
        self.activation = activation
        self.norm = RowLayerNorm(embedding_size, epsilon=epsilon)
        zero = nn.initializer.Constant(0.0)
        self.bias = self.create_parameter([vocab_size], default_initializer=zero)

    def forward(self, hidden: paddle.Tensor, words: paddle.Tensor) -> paddle.Tensor:
        """Map hidden states (..., C) and word embeddings (V, E) to scores (..., V)."""
        embedded = self.norm(self.activation(self.dense(hidden)))  # (..., E)
        return paddle.matmul(embedded, words, transpose_y=True) + self.bias


class PretrainingHead(nn.Layer):
    """Masked words, and the next sentence from the class token.

    Its pooler has the name of the classifier's: a fine-tuning goes on with it.
    """

    def __init__(
        self, words: MaskedWordHead, dim: int, config: PretrainingHeadConfig, *, std: float
    ) -> None:
        super().__init__()
        self.words = words
        if config.next_sentence:
            self.dense = linear(dim, dim, std=std)
            self.next_fc = linear(dim, 2, std=std)
        self.config = config

    def forward(
        self, features: Features, positions: paddle.Tensor, embeddings: paddle.Tensor
    ) -> tuple[paddle.Tensor, ...]:
        """Score masked words and the next sentence.

        Args:
            positions: (B, P) places of the masked words.
            embeddings: (V, E).

        Returns:
            Scores of the words (B, P, V), and where it is judged (B, 2): is the next, is random.
        """
        hidden = paddle.concat([features.cls.unsqueeze(1), features.words], axis=1)  # (B, S, C)
        rows, tokens, _ = hidden.shape
        first_positions = paddle.arange(rows, dtype="int64").unsqueeze(1) * tokens
        flat = positions.astype("int64") + first_positions
        picked = F.embedding(flat, hidden.reshape([rows * tokens, -1]))  # (B, P, C)
        scores = self.words(picked, embeddings)
        if not self.config.next_sentence:
            return (scores,)
        return scores, self.next_fc(paddle.tanh(self.dense(features.cls)))
