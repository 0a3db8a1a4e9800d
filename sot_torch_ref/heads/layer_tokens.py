"""Class tokens of chosen encoder layers -> scores.

Source: specs D.3.
"""

import torch
from torch import nn

from sot_torch_ref.features import Features
from sot_torch_ref.heads.pooling import Taps

WAYS = ("concat", "max", "mean")


class LayerTokens(nn.Module):
    """Raw class vectors of some layers, joined, dropped out, classified.

    Args:
        dim: Channels C of a hidden state.
        num_classes: Number K of scores.
        chosen: Indices of the layers; the embedding output is not one of them.
        how: "concat" (in the given order), "max" or "mean" over the layers.
        dropout: Probability, on the joined vector.
    """

    def __init__(
        self, dim: int, num_classes: int, chosen: tuple[int, ...], how: str, dropout: float
    ) -> None:
        super().__init__()
        self.chosen, self.how = chosen, how
        self.dropout = nn.Dropout(dropout)
        self.cls_fc = nn.Linear(dim * len(chosen) if how == "concat" else dim, num_classes)

    def forward(self, features: Features) -> tuple[torch.Tensor, Taps]:
        """Features -> logits (B, K) and taps."""
        vectors = [features.hidden[index][:, 0, :] for index in self.chosen]
        joined = self.join(vectors)
        logits = self.cls_fc(self.dropout(joined))
        return logits, {"pooled": joined, "cls_logits": logits, "logits": logits}

    def join(self, vectors: list[torch.Tensor]) -> torch.Tensor:
        """Class vectors (B, C) of the layers as one."""
        return _JOINS[self.how](vectors)


_JOINS = {
    "concat": lambda vectors: torch.cat(vectors, dim=-1),
    "max": lambda vectors: torch.max(torch.stack(vectors), dim=0).values,
    "mean": lambda vectors: torch.stack(vectors).sum(dim=0) / len(vectors),
}
