"""The only contract between a backbone and a head."""

from typing import NamedTuple

import torch


class Features(NamedTuple):
    """Last hidden states, split into the class token and the word tokens.

    Attributes:
        cls: Class token (B, C), or None for a backbone without one.
        words: Word tokens (B, N, C).
        mask: Valid word tokens (B, N), bool, True = valid; None means that all are valid.
        hidden: Hidden states (B, 1 + N, C) of every encoder layer, None where there are none.
    """

    cls: torch.Tensor | None
    words: torch.Tensor
    mask: torch.Tensor | None = None
    hidden: tuple[torch.Tensor, ...] | None = None
