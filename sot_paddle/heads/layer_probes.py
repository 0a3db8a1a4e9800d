"""Linear probes: every hidden state of a frozen encoder is scored alone.

The baseline of BERTVision: which layer knows the answer. All probes are trained at once; they share
no parameter, so each learns as it would alone.

Shape legend: B samples, L hidden states, T tokens, F features, K outputs.
"""

from __future__ import annotations

import paddle
from paddle import nn

from sot_paddle.features import Taps, record
from sot_paddle.heads.adapter_pooler import AdapterConfig, uniform_linear


class LayerProbes(nn.Layer):
    """One linear layer for each hidden state.

    Args:
        config: dimensions; ``adapter_dim`` is not used.
        outputs: K.
    """

    def __init__(self, config: AdapterConfig, outputs: int) -> None:
        super().__init__()
        self.config = config
        layers = range(config.num_layers)
        self.word_fc = nn.LayerList([uniform_linear(config.hidden_size, outputs) for _ in layers])

    def scores(self, states: paddle.Tensor) -> paddle.Tensor:
        """Map hidden states (B, L, ..., F) to the scores of each layer's probe (B, L, ..., K)."""
        scores = (
            probe(states[:, layer].astype(probe.weight.dtype))
            for layer, probe in enumerate(self.word_fc)
        )
        return paddle.stack(list(scores), axis=1)


class LayerClassifiers(LayerProbes):
    """Probes of the class token: classes of a sample from each layer alone."""

    name = "layer_classifiers"

    def forward(self, states: paddle.Tensor, taps: Taps | None = None) -> paddle.Tensor:
        """Map hidden states (B, L, T, F) to the logits of each layer (B, L, K)."""
        self.config.require_shape(states)
        return record(taps, "logits", self.scores(states[:, :, 0]))


class LayerSpans(LayerProbes):
    """Probes of every token: start and end of an answer from each layer alone."""

    name = "layer_spans"

    def __init__(self, config: AdapterConfig) -> None:
        super().__init__(config, 2)

    def forward(
        self, states: paddle.Tensor, taps: Taps | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Map hidden states (B, L, T, F) to start and end logits, each (B, L, T)."""
        self.config.require_shape(states)
        scores = record(taps, "logits", self.scores(states))  # (B, L, T, 2)
        return scores[..., 0], scores[..., 1]
