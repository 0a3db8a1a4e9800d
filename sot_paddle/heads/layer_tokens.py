"""Classification by the class token of chosen layers of a language model.

Shape legend: B samples, S tokens, C channels, L chosen layers, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import paddle
from paddle import nn

from sot_paddle.features import Features, Taps, record
from sot_paddle.heads.pooling import linear

_POOLINGS: Mapping[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "concat": lambda tokens: tokens.flatten(1),
    "max": lambda tokens: tokens.max(axis=1),
    "mean": lambda tokens: tokens.mean(axis=1),
}
"""Class tokens (B, L, C) to (B, L C) or (B, C)."""


class LayerTokensHead(nn.Layer):
    """The class tokens of layers, as they are, to one vector: dropout and one linear layer.

    Where two layers share the largest value, ``max`` hands each half of the gradient (torch: one
    of them all of it).

    Args:
        dim: C.
        num_classes: K.
        layers: their numbers from 0, in the order of concatenation.
        pooling: ``"concat"``, ``"max"`` or ``"mean"``.
        dropout: probability on the vector.
        std: standard deviation of the weights at the start.

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
        self.layers, self._pool = tuple(layers), _POOLINGS[pooling]
        self.dropout = nn.Dropout(dropout)
        width = dim * len(self.layers) if pooling == "concat" else dim
        self.cls_fc = linear(width, num_classes, std=std)

    def forward(self, features: Features, taps: Taps | None = None) -> paddle.Tensor:
        """Map the outputs of the layers, (B, S, C) each, to logits (B, K)."""
        tokens = paddle.stack([features.hidden[layer][:, 0] for layer in self.layers], axis=1)
        pooled = record(taps, "head.pooled", self._pool(tokens))
        return record(taps, "head.cls_logits", self.cls_fc(self.dropout(pooled)))
