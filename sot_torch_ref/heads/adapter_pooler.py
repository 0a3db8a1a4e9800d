"""Models on stored hidden states: the adapter pooler of BERTVision, and one probe a layer.

Legend: B batch, L hidden states (the embedding output is the first), T tokens, F their features,
A adapter width, K classes.

Every model maps states (B, L, T, F) to (output, taps).

Source: specs C.1.
"""

import torch
from torch import nn
from torch.nn import functional as F

Taps = dict[str, torch.Tensor]
Spans = tuple[torch.Tensor, torch.Tensor]


class AdapterPooler(nn.Module):
    """Shared linear map of each hidden state, exact GELU.

    Args:
        features: F.
        width: A.

    Source: specs C.1.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(features, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """States (B, L, T, F) to (B, T, A, L)."""
        weight, bias = self.proj.weight, self.proj.bias
        mapped = torch.einsum("bltf,af->btal", states, weight) + bias[None, None, :, None]
        return F.gelu(mapped, approximate="none")


class AdapterClassifier(nn.Module):
    """AP_GLUE.

    Args:
        num_layers: L.
        hidden_size: F.
        seq_length: T.
        adapter_dim: A, 0 for T (revision fe42410).
        num_classes: K.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        seq_length: int,
        adapter_dim: int = 0,
        *,
        num_classes: int,
    ) -> None:
        super().__init__()
        width = adapter_dim if adapter_dim else seq_length
        self.pooling = AdapterPooler(hidden_size, width)
        self.word_fc = nn.Linear(seq_length * width * num_layers, num_classes)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, Taps]:
        """States (B, L, T, F) to logits (B, K); t is the slowest index, l the fastest."""
        pooled = self.pooling(states)
        logits = self.word_fc(pooled.reshape(len(pooled), -1))
        return logits, {"pooled": pooled, "logits": logits}


class AdapterSpans(nn.Module):
    """AP_SQuAD, with the layer that the original has and never calls.

    Args:
        num_layers: L.
        hidden_size: F.
        seq_length: T.
        adapter_dim: A, 0 for T.
    """

    def __init__(
        self, num_layers: int, hidden_size: int, seq_length: int, adapter_dim: int = 0
    ) -> None:
        super().__init__()
        width = adapter_dim if adapter_dim else seq_length
        self.pooling = AdapterPooler(hidden_size, width)
        self.word_fc = nn.Linear(width * num_layers, 2)
        self.unused_fc = nn.Linear(seq_length, 2)

    def forward(self, states: torch.Tensor) -> tuple[Spans, Taps]:
        """States (B, L, T, F) to (start (B, T), end (B, T))."""
        pooled = self.pooling(states)
        batch, tokens, width, layers = pooled.shape
        scores = self.word_fc(pooled.reshape(batch, tokens, width * layers))
        start, end = scores.unbind(dim=-1)
        return (start, end), {"pooled": pooled, "logits": scores}


class _Probes(nn.Module):
    """A linear layer for each hidden state."""

    def __init__(self, num_layers: int, hidden_size: int, outputs: int) -> None:
        super().__init__()
        self.word_fc = nn.ModuleList(nn.Linear(hidden_size, outputs) for _ in range(num_layers))

    def _scores(self, states: torch.Tensor) -> torch.Tensor:
        weight = torch.stack([probe.weight for probe in self.word_fc])  # (L, K, F)
        bias = torch.stack([probe.bias for probe in self.word_fc])  # (L, K)
        shift = bias.reshape(len(bias), *(1,) * (states.ndim - 3), -1)
        return torch.einsum("bl...f,lkf->bl...k", states, weight) + shift


class LayerClassifiers(_Probes):
    """Classes from the first token of each layer.

    Args:
        num_layers: L.
        hidden_size: F.
        num_classes: K.
    """

    def __init__(self, num_layers: int, hidden_size: int, *, num_classes: int) -> None:
        super().__init__(num_layers, hidden_size, num_classes)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, Taps]:
        """States (B, L, T, F) to logits (B, L, K)."""
        logits = self._scores(states[:, :, 0])
        return logits, {"logits": logits}


class LayerSpans(_Probes):
    """Start and end of an answer from the tokens of each layer.

    Args:
        num_layers: L.
        hidden_size: F.
    """

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__(num_layers, hidden_size, 2)

    def forward(self, states: torch.Tensor) -> tuple[Spans, Taps]:
        """States (B, L, T, F) to (start (B, L, T), end (B, L, T))."""
        scores = self._scores(states)
        start, end = scores.unbind(dim=-1)
        return (start, end), {"logits": scores}
