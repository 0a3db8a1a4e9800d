"""AdapterPooler of BERTVision: scores from the hidden states of every layer and position.

Shape legend: B samples, L hidden states (embedding output + encoder layers), T tokens, F features
of a hidden state, A width of the adapter, K classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import paddle
from paddle import nn

from sot_paddle.features import Taps, record


def uniform_linear(in_dim: int, out_dim: int) -> nn.Linear:
    """Linear layer with torch's default initialisation: weight and bias U(+-1/sqrt(in_dim))."""
    bound = 1.0 / math.sqrt(in_dim)
    uniform = paddle.ParamAttr(initializer=nn.initializer.Uniform(-bound, bound))
    return nn.Linear(in_dim, out_dim, weight_attr=uniform, bias_attr=uniform)


@dataclass(frozen=True)
class AdapterConfig:
    """Dimensions of a model on hidden states. Source: C.1, Decision 4."""

    num_layers: int = 13  # L, states of a token: the embedding output and every encoder layer
    hidden_size: int = 768  # F
    seq_length: int = 219  # T, padded length; padding positions count like the others
    adapter_dim: int = 0  # A; 0 (published) means T

    @property
    def width(self) -> int:
        """A with its default filled in."""
        return self.adapter_dim or self.seq_length

    def require_shape(self, states: paddle.Tensor) -> None:
        """Refuse hidden states that are not (B, L, T, F) by a ValueError."""
        expected = (self.num_layers, self.seq_length, self.hidden_size)
        if len(states.shape) != 4 or tuple(states.shape[1:]) != expected:
            raise ValueError(
                f"hidden states must have shape (B, {', '.join(map(str, expected))}), got "
                f"{tuple(states.shape)}; build the model for them"
            )


class AdapterPooler(nn.Layer):
    """One linear layer shared by all tokens and layers, then the exact GELU.

    ``z[b, t, a, l] = gelu(sum_f W[f, a] h[b, l, t, f] + bias[a])``

    Source: C.1.
    """

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.proj = uniform_linear(hidden_size, width)
        self.activation = nn.GELU()

    def forward(self, states: paddle.Tensor) -> paddle.Tensor:
        """Map hidden states (B, L, T, F) to (B, T, A, L)."""
        pooled = self.activation(self.proj(states))  # (B, L, T, A)
        return pooled.transpose([0, 2, 3, 1])


class AdapterHead(nn.Layer):
    """What both models share: their dimensions and the pooler."""

    name = ""

    def __init__(self, config: AdapterConfig) -> None:
        super().__init__()
        self.config = config
        self.pooling = AdapterPooler(config.hidden_size, config.width)

    def pool(self, states: paddle.Tensor, taps: Taps | None) -> paddle.Tensor:
        """Checked hidden states (B, L, T, F), of any floating type, to (B, T, A, L)."""
        self.config.require_shape(states)
        pooled = self.pooling(states.astype(self.pooling.proj.weight.dtype))
        return record(taps, "head.pooled", pooled)


class AdapterClassifier(AdapterHead):
    """AP_GLUE: one linear layer on everything, flattened in the order token, width, layer.

    K = 1 is regression. Source: C.1.
    """

    name = "adapter_classifier"

    def __init__(self, config: AdapterConfig, num_classes: int) -> None:
        super().__init__(config)
        self.num_classes = num_classes
        flat = config.seq_length * config.width * config.num_layers
        self.word_fc = uniform_linear(flat, num_classes)

    def forward(self, states: paddle.Tensor, taps: Taps | None = None) -> paddle.Tensor:
        """Map hidden states (B, L, T, F) to logits (B, K)."""
        flat = self.pool(states, taps).flatten(1)  # (B, T * A * L)
        return record(taps, "logits", self.word_fc(flat))


class AdapterSpans(AdapterHead):
    """AP_SQuAD: start and end score of every token from its own pooled states.

    Source: C.1.
    """

    name = "adapter_spans"

    def __init__(self, config: AdapterConfig) -> None:
        super().__init__(config)
        self.word_fc = uniform_linear(config.width * config.num_layers, 2)
        # QUIRK: the original has a second layer that nothing uses; its checkpoints hold it, and its
        # parameter count includes it. It gets no gradient.
        self.unused_fc = uniform_linear(config.seq_length, 2)

    def forward(
        self, states: paddle.Tensor, taps: Taps | None = None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Map hidden states (B, L, T, F) to start and end logits, each (B, T)."""
        pooled = self.pool(states, taps).flatten(2)  # (B, T, A * L)
        scores = record(taps, "logits", self.word_fc(pooled))  # (B, T, 2)
        return scores[..., 0], scores[..., 1]


class LayerProbes(nn.Layer):
    """One linear layer for each hidden state: which layer knows the answer (BERTVision's baseline).

    All probes are trained at once; they share no parameter, so each learns as it would alone.
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
