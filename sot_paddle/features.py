"""The contract between a backbone and a head.

Shape legend: B samples, N word tokens, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import paddle

Taps: TypeAlias = dict[str, paddle.Tensor]
"""Named intermediate tensors in execution order, collected when a caller asks for them."""


@dataclass(frozen=True)
class Features:
    """What a backbone hands to a head.

    ``hidden`` are the outputs of every layer of the encoder, (B, 1 + N, C), the class token first;
    None unless the head asks for them.
    """

    cls: paddle.Tensor | None  # (B, C) class token, or None for a backbone without one
    words: paddle.Tensor  # (B, N, C) word (or patch) tokens
    mask: paddle.Tensor | None = None  # (B, N) bool, true where valid, or None when all are
    hidden: tuple[paddle.Tensor, ...] | None = None


def record(taps: Taps | None, name: str, tensor: paddle.Tensor) -> paddle.Tensor:
    """Store ``tensor`` under ``name`` when taps are collected; return it unchanged."""
    if taps is not None:
        taps[name] = tensor
    return tensor
