"""Model names and how to build them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle import nn

from sot_paddle.backbones import bert, swin, vit
from sot_paddle.config import near_names

TEXT_CLASSES = 2
"""Classes of a text model by default; a vision model's are ImageNet's 1000."""

_TEXT: Mapping[str, Callable[..., nn.Layer]] = {
    "bert_base": bert.bert_base,
    "bert_base_mgcrp": bert.bert_base_mgcrp,
    "bert_large": bert.bert_large,
    "bert_large_mgcrp": bert.bert_large_mgcrp,
}

_VISION: Mapping[str, Callable[..., nn.Layer]] = {
    "deit_base": vit.deit_base,
    "deit_base_sot": vit.deit_base_sot,
    "deit_small": vit.deit_small,
    "deit_small_sot": vit.deit_small_sot,
    "deit_tiny": vit.deit_tiny,
    "deit_tiny_sot": vit.deit_tiny_sot,
    "sot_base": vit.sot_base,
    "sot_small": vit.sot_small,
    "sot_tiny": vit.sot_tiny,
    "swin_base": swin.swin_base,
    "swin_base_sot": swin.swin_base_sot,
    "swin_tiny": swin.swin_tiny,
    "swin_tiny_sot": swin.swin_tiny_sot,
}

PUBLISHED_NAMES: Mapping[str, str] = {
    "SoT_Tiny": "sot_tiny",
    "SoT_Small": "sot_small",
    "SoT_Base": "sot_base",
}
"""Names of the original release and what they are called here."""


def list_models(kind: str | None = None) -> list[str]:
    """Names that :func:`create_model` accepts, sorted.

    Args:
        kind: ``"text"``, ``"vision"``, or None for all.

    Raises:
        ValueError: another kind.
    """
    kinds = {"text": _TEXT, "vision": _VISION, None: {**_TEXT, **_VISION}}
    if kind not in kinds:
        raise ValueError(f"kind must be 'text', 'vision' or None, got {kind!r}")
    return sorted(kinds[kind])


def create_model(name: str, num_classes: int | None = None, **overrides: Any) -> nn.Layer:
    """Build a model with random weights, in Paddle's default dtype.

    Args:
        name: one of :func:`list_models`, or the original's ``SoT_Tiny``, ``SoT_Small``,
            ``SoT_Base``.
        num_classes: outputs K; 1 is regression. None means 2 for text, 1000 for vision.
        overrides: any option of the backbone or the head (``docs/heads.md``), such as
            ``hidden_size=48``, ``img_size=112`` or ``wr_dim=12``. Where both have an option of
            one name (``qkv_bias``), it is the backbone's; the head's is ``head_qkv_bias``.

    Returns:
        The model in training mode. ``model(input_ids, token_type_ids=None,
        attention_mask=None)`` (text) or ``model(images)`` (vision) returns logits (B, K).

    Raises:
        ValueError: unknown name or option (the near ones are listed), a wrong type, a value
            out of range, or a head or token embedding that cannot work.
    """
    name = PUBLISHED_NAMES.get(name, name)
    if name in _TEXT:
        return _TEXT[name](TEXT_CLASSES if num_classes is None else num_classes, **overrides)
    if name in _VISION:
        return _VISION[name](vit.NUM_CLASSES if num_classes is None else num_classes, **overrides)
    raise ValueError(f"unknown model {name!r}; {near_names(name, list_models())}")
