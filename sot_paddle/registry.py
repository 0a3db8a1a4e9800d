"""Model names and how to build them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle import nn

from sot_paddle.backbones import bert
from sot_paddle.config import near_names

_MODELS: Mapping[str, Callable[..., nn.Layer]] = {
    "bert_base": bert.bert_base,
    "bert_base_mgcrp": bert.bert_base_mgcrp,
    "bert_large": bert.bert_large,
    "bert_large_mgcrp": bert.bert_large_mgcrp,
}


def list_models() -> list[str]:
    """Names that :func:`create_model` accepts, sorted."""
    return sorted(_MODELS)


def create_model(name: str, num_classes: int = 2, **overrides: Any) -> nn.Layer:
    """Build a model with random weights, in Paddle's default dtype.

    Args:
        name: one of :func:`list_models`.
        num_classes: outputs K; 1 is regression.
        overrides: any option of the encoder or the head (``docs/heads.md``), such as
            ``hidden_size=48`` or ``q_dim=12``.

    Returns:
        The model in training mode. ``model(input_ids, token_type_ids=None,
        attention_mask=None)`` returns logits (B, K).

    Raises:
        ValueError: unknown name or option (the near ones are listed), a wrong type, a value
            out of range, or a head that cannot work.
    """
    if name not in _MODELS:
        raise ValueError(f"unknown model {name!r}; {near_names(name, _MODELS)}")
    return _MODELS[name](num_classes, **overrides)
