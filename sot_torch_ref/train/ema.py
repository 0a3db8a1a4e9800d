"""Exponential moving average of a whole state dict."""

from collections.abc import Mapping

import torch

DECAY = 0.99996


@torch.no_grad()
def ema_update(
    average: Mapping[str, torch.Tensor],
    current: Mapping[str, torch.Tensor],
    decay: float = DECAY,
) -> None:
    """Update an average in place: a <- decay a + (1 - decay) v, for every entry.

    Batch norm statistics and fixed tables are averaged like parameters. Integer entries (torch's
    ``num_batches_tracked``) are copied: timm averages and then truncates them, which leaves a
    counter that lags behind and that nothing reads as long as batch norms have a momentum.

    Args:
        average: State of the average, the entries of the model at the start.
        current: State of the model after an optimizer step, same names.
        decay: In [0, 1].

    Raises:
        ValueError: A decay out of range, or other names.

    Source: specs A.9; timm ModelEma.
    """
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"decay must be in [0, 1], got {decay!r}")
    if average.keys() != current.keys():
        different = sorted(average.keys() ^ current.keys())
        raise ValueError(f"the two states must have the same names; different: {different}")
    for name, old in average.items():
        new = current[name]
        if old.is_floating_point():
            new = old * decay + (1.0 - decay) * new
        old.copy_(new)


class ModelEma:
    """Average of a model's state dict over the optimizer steps.

    Attributes:
        state: Name -> tensor, never shared with the model.

    Args:
        model: The model, at its initial weights.
        decay: In [0, 1].
        warmup: After n updates the decay is at most (1 + n) / (10 + n); not in the original.
    """

    def __init__(self, model: torch.nn.Module, decay: float = DECAY, warmup: bool = False) -> None:
        self.decay, self.warmup, self.updates = decay, warmup, 0
        self.state = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def update(self, model: torch.nn.Module) -> None:
        """Take the model's state into the average; call it after every optimizer step."""
        limit = (1 + self.updates) / (10 + self.updates) if self.warmup else 1.0
        ema_update(self.state, model.state_dict(), min(self.decay, limit))
        self.updates += 1
