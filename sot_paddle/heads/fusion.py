"""Fusions: how the class token and the pooled words become scores.

Every head maps :class:`sot_paddle.features.Features` to logits (B, K) and can record taps.
Shape legend: B samples, N words, C channels, D pooled size, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle
from paddle import nn

from sot_paddle.features import Features, Taps, record
from sot_paddle.heads.pooling import linear

FC_DIM = 1280
"""Width of the hidden layer of the published ``fc`` head."""


class ClassTokenHead(nn.Layer):
    """Scores of the class token alone (type None of the original, "ClassT")."""

    bias = True
    """Of the classifier."""

    def __init__(
        self, dim: int, num_classes: int, *, dropout: float = 0.0, std: float = 0.02
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = linear(dim, num_classes, bias=self.bias, std=std)

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the class token (B, C) to logits (B, K)."""
        return record(taps, "head.cls_logits", self.cls_fc(self.dropout(features.cls)))


class ExpandedHead(nn.Layer):
    """Type ``fc`` of the original: C -> 1280 -> K without activation in between."""

    def __init__(self, dim: int, num_classes: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.proj = linear(dim, FC_DIM)
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = linear(FC_DIM, num_classes)

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the class token (B, C) to logits (B, K)."""
        projected = record(taps, "head.projected", self.proj(features.cls))  # (B, 1280)
        return record(taps, "head.cls_logits", self.cls_fc(self.dropout(projected)))


class PoolerHead(nn.Layer):
    """BERT's own classifier: dense, tanh, dropout, linear (transformers' pooler + classifier)."""

    def __init__(
        self, dim: int, num_classes: int, *, dropout: float = 0.1, std: float = 0.02
    ) -> None:
        super().__init__()
        self.dense = linear(dim, dim, std=std)
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = linear(dim, num_classes, std=std)

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the class token (B, C) to logits (B, K)."""
        pooled = record(taps, "head.pooled", paddle.tanh(self.dense(features.cls)))  # (B, C)
        return record(taps, "head.cls_logits", self.cls_fc(self.dropout(pooled)))


class TwoLayerHead(PoolerHead):
    """RoBERTa's own classifier: dropout, dense, tanh, dropout, linear (transformers')."""

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the class token (B, C) to logits (B, K)."""
        hidden = self.dense(self.dropout(features.cls))
        pooled = record(taps, "head.pooled", paddle.tanh(hidden))  # (B, C)
        return record(taps, "head.cls_logits", self.cls_fc(self.dropout(pooled)))


class ScoreHead(ClassTokenHead):
    """GPT's own classifier: one linear layer without bias on the class token (transformers')."""

    bias = False


class WordHead(nn.Layer):
    """Scores of the pooled words alone ("WordT"); also every head without a class token.

    ``pooling`` is a Layer with ``output_dim`` and ``forward(tokens, mask, taps)``.
    """

    joins_class_token = False
    """Whether the class token (B, C) stands before the pooled words in the classifier's input."""

    def __init__(
        self,
        pooling: nn.Layer,
        num_classes: int,
        *,
        dim: int,
        dropout: float,
        mask_padding: bool,
    ) -> None:
        super().__init__()
        self.pooling = pooling
        self.mask_padding = mask_padding
        self.dropout = nn.Dropout(dropout)
        width = pooling.output_dim + (dim if self.joins_class_token else 0)
        self.word_fc = linear(width, num_classes)

    def represent(
        self, tokens: paddle.Tensor, mask: paddle.Tensor | None, taps: Taps | None
    ) -> paddle.Tensor:
        """Pool (B, N, C) to (B, D), with dropout; refuses tokens without a single word."""
        if tokens.shape[1] == 0:
            raise ValueError(
                f"this head pools words and got none: tokens of shape {list(tokens.shape)}; pass "
                "sequences of two tokens or more, or use pooling 'pooler' or 'none'"
            )
        pooled = self.pooling(tokens, mask if self.mask_padding else None, taps)
        record(taps, "head.representation", pooled)
        return self.dropout(pooled.astype(self.word_fc.weight.dtype))  # half in a half model

    def word_logits(self, features: Features, taps: Taps | None) -> paddle.Tensor:
        """Scores (B, K) of the words."""
        pooled = self.represent(features.words, features.mask, taps)
        return record(taps, "head.word_logits", self.word_fc(pooled))

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the words (B, N, C) to logits (B, K)."""
        return self.word_logits(features, taps)


class _TwoTokenKindsHead(WordHead):
    """A word head that also owns a classifier of the class token."""

    def __init__(self, pooling: nn.Layer, num_classes: int, *, dim: int, **options: Any) -> None:
        super().__init__(pooling, num_classes, dim=dim, **options)
        # QUIRK: the original creates it for every fusion; concat and aggre_all never use it, so
        # it gets no gradient there. Kept because checkpoints hold it.
        self.cls_fc = linear(dim, num_classes)

    def cls_logits(self, features: Features, taps: Taps | None) -> paddle.Tensor:
        """Scores (B, K) of the class token."""
        return record(taps, "head.cls_logits", self.cls_fc(features.cls))


class SumHead(_TwoTokenKindsHead):
    """``sum_fc``: word scores plus class-token scores."""

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map features to logits (B, K)."""
        return self.word_logits(features, taps) + self.cls_logits(features, taps)


class ConcatHead(_TwoTokenKindsHead):
    """``concat``: one classifier on [class token; pooled words], class token first."""

    joins_class_token = True

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map features to logits (B, K)."""
        pooled = self.represent(features.words, features.mask, taps)
        joined = paddle.concat([features.cls.astype(pooled.dtype), pooled], axis=1)  # (B, C + D)
        return record(taps, "head.word_logits", self.word_fc(joined))


class AllTokensHead(_TwoTokenKindsHead):
    """``aggre_all``: the class token is pooled together with the words."""

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map features to logits (B, K)."""
        tokens = paddle.concat([features.cls.unsqueeze(1), features.words], axis=1)  # (B, 1+N, C)
        mask = features.mask
        if mask is not None:
            mask = paddle.concat([paddle.ones_like(mask[:, :1]), mask], axis=1)
        pooled = self.represent(tokens, mask, taps)
        return record(taps, "head.word_logits", self.word_fc(pooled))


class SumLossHead(_TwoTokenKindsHead):
    """``sum_loss``: two classifiers whose losses are summed in training.

    Returns (class-token logits, word logits) in training mode and their sum in eval mode.
    """

    def forward(
        self, features: Features, taps: Taps | None = None
    ) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
        """Map features to a pair of logits (training) or their sum (eval), each (B, K)."""
        word = self.word_logits(features, taps)
        cls = self.cls_logits(features, taps)
        return (cls, word) if self.training else cls + word


class SpanHead(nn.Layer):
    """Question answering: one linear layer scores every token as the answer's first and last.

    It is that of transformers' ...ForQuestionAnswering, which has no dropout. S is the tokens, the
    class token included.

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


_LAYER_POOLINGS: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "concat": lambda tokens: tokens.flatten(1),
    "max": lambda tokens: tokens.max(axis=1),
    "mean": lambda tokens: tokens.mean(axis=1),
}
"""Class tokens (B, L, C) of L chosen layers to (B, L C) or (B, C)."""


class LayerTokensHead(nn.Layer):
    """The class tokens of chosen layers, as they are, to one vector: dropout and a linear layer.

    Where two layers share the largest value, ``max`` hands each half of the gradient (torch: one
    of them all of it).

    Args:
        layers: their numbers from 0, in the order of concatenation.
        pooling: ``"concat"``, ``"max"`` or ``"mean"``.

    Source: D.3.
    """

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        layers: Sequence[int],
        pooling: str,
        dropout: float,
        std: float,
    ) -> None:
        super().__init__()
        self.layers, self._pool = tuple(layers), _LAYER_POOLINGS[pooling]
        self.dropout = nn.Dropout(dropout)
        width = dim * len(self.layers) if pooling == "concat" else dim
        self.cls_fc = linear(width, num_classes, std=std)

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the outputs of the layers, (B, S, C) each, to logits (B, K)."""
        tokens = paddle.stack([features.hidden[layer][:, 0] for layer in self.layers], axis=1)
        pooled = record(taps, "head.pooled", self._pool(tokens))
        return record(taps, "head.cls_logits", self.cls_fc(self.dropout(pooled)))
