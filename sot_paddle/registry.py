"""Model names and how to build them; a model's module is imported when one is built."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sot_paddle.backbones.families import TEXT_BACKBONES, TextBackbone
from sot_paddle.config import (
    HEADS,
    LAYERS,
    SECOND_ORDER,
    SPANS,
    near_names,
    require_one_of,
    sort_options,
)
from sot_paddle.vision_config import ImageConfig, SwinConfig, ViTConfig

if TYPE_CHECKING:
    from paddle import nn

_ALIAS = "_mgcrp"
_TEXT: Mapping[str, tuple[TextBackbone, str, str]] = {
    f"{preset}{suffix}": (backbone, preset, head)
    for backbone in TEXT_BACKBONES.values()
    for preset in backbone.presets
    for suffix, head in (("", "plain"), (_ALIAS, "mgcrp"))
}
"""Name -> backbone, its preset, and the head when none is asked for."""

_SOT = {"pooling": "mgcrp", "head_num_heads": 6}
_SOT_TINY = {**_SOT, "wr_dim": 14}
_SOT_SMALL = {**_SOT, "wr_dim": 24, "head_dropout": 0.5}
_SOT_BASE = {**_SOT, "wr_dim": 38, "head_dropout": 0.7}
_DENSE = {"token_type": "densenet"}
_DEIT = {
    "depth": 12,
    "mlp_ratio": 4.0,
    "qkv_bias": True,
    "layer_norm_eps": 1e-6,
    "position": "learned",
    "token_type": "patch",
    "pooling": "none",
}
_DEIT_TINY = {**_DEIT, "embed_dim": 192, "num_heads": 3}
_DEIT_SMALL = {**_DEIT, "embed_dim": 384, "num_heads": 6}
_DEIT_BASE = {**_DEIT, "embed_dim": 768, "num_heads": 12}
_VIT: Mapping[str, Mapping[str, Any]] = {
    "sot_tiny": {"embed_dim": 240, "depth": 12, "num_heads": 4, "mlp_ratio": 2.5, **_SOT_TINY},
    "sot_small": {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3.5, **_SOT_SMALL},
    "sot_base": {"embed_dim": 528, "depth": 24, "num_heads": 8, "mlp_ratio": 3.0, **_SOT_BASE},
    "deit_tiny": _DEIT_TINY,
    "deit_small": _DEIT_SMALL,
    "deit_base": _DEIT_BASE,
    "deit_tiny_sot": {**_DEIT_TINY, **_DENSE, **_SOT_TINY},
    "deit_small_sot": {**_DEIT_SMALL, **_DENSE, **_SOT_SMALL},
    "deit_base_sot": {**_DEIT_BASE, **_DENSE, **_SOT_BASE},
}
"""Registry name -> options that differ from the records' defaults: SoT (A.8), DeiT with patches of
16 pixels, and DeiT with dense tokens and the head of the SoT of its size (sizes inferred: A.10)."""

_TINY = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
_BASE = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
_SWIN: Mapping[str, Mapping[str, Any]] = {
    "swin_tiny": {**_TINY, "pooling": "gap"},
    "swin_base": {**_BASE, "pooling": "gap"},
    "swin_tiny_sot": {**_TINY, **_DENSE, "large_output": True, **_SOT_SMALL},
    "swin_base_sot": {**_BASE, **_DENSE, "large_output": True, **_SOT_BASE},
}
"""Patches of 4 pixels and windows of 7; with dense tokens the head of SoT-Small or SoT-Base (sizes
inferred: A.10)."""

_VISION: Mapping[str, tuple[str, type[ImageConfig], Mapping[str, Any]]] = {
    **{name: ("vit:VisionTransformer", ViTConfig, preset) for name, preset in _VIT.items()},
    **{name: ("swin:SwinTransformer", SwinConfig, preset) for name, preset in _SWIN.items()},
}
"""Name -> where its model is in `sot_paddle.backbones`, record of its backbone, and preset."""

PUBLISHED_NAMES = {name: name.lower() for name in ("SoT_Tiny", "SoT_Small", "SoT_Base")}
"""Names of the original release and what they are called here."""

TIMM_NAMES: Mapping[str, str] = {
    "deit_tiny_patch16_224": "deit_tiny",
    "deit_small_patch16_224": "deit_small",
    "deit_base_patch16_224": "deit_base",
    "swin_tiny_patch4_window7_224": "swin_tiny",
    "swin_base_patch4_window7_224": "swin_base",
}
"""timm's names and what the models are called here."""

PUBLISHED_COSTS: Mapping[str, tuple[float, float]] = {
    "sot_tiny": (7.7, 2.5),
    "sot_small": (26.9, 5.8),
    "sot_base": (76.8, 14.5),
    "deit_tiny": (5.7, 1.3),
    "deit_tiny_sot": (7.0, 2.3),
    "deit_small": (22.1, 4.6),
    "deit_small_sot": (26.9, 5.8),
    "deit_base": (86.6, 17.6),
    "deit_base_sot": (94.9, 18.2),
    "swin_tiny": (28.3, 4.5),
    "swin_tiny_sot": (31.6, 6.0),
    "swin_base": (87.8, 15.4),
    "swin_base_sot": (95.9, 16.9),
}
"""Parameters (millions) and "GFLOPs" (10^9 multiply-adds) of the original's README at 224 pixels.

The row of DeiT-S with the SoT head repeats that of SoT-Small, probably by a slip.
"""

UNDECAYED = re.compile(
    "|".join(f"(?:{pattern})" for pattern in sorted({b.norms for b in TEXT_BACKBONES.values()}))
)
"""Matches the full name of a normalisation weight of any language model."""


def list_models(kind: str | None = None) -> list[str]:
    """Names that :func:`create_model` accepts, sorted.

    Raises:
        ValueError: another kind.
    """
    kinds = {"text": _TEXT, "vision": _VISION, None: {**_TEXT, **_VISION}}
    if kind not in kinds:
        raise ValueError(f"kind must be 'text', 'vision' or None, got {kind!r}")
    return sorted(kinds[kind])


def image_defaults(name: str) -> ImageConfig:
    """Options of the backbone of an image model's registry name."""
    _, record, preset = _VISION[name]
    return sort_options(record, preset, where=name)[0]


def text_backbone(name: str) -> TextBackbone | None:
    """What is known about the language model of a registry name, None for another name."""
    entry = _TEXT.get(name)
    return entry[0] if entry else None


def text_name(preset: str, pooling: str) -> str:
    """The registry name of a language model with a head, as its files state it.

    Returns:
        That name for its own classifier, for spans and for the class tokens of its layers, else
        the one that ends in ``_mgcrp``.
    """
    return preset if pooling in (_TEXT[preset][0].plain, SPANS, LAYERS) else preset + _ALIAS


def create_model(
    name: str, num_classes: int | None = None, *, head: str | None = None, **overrides: Any
) -> nn.Layer:
    """Build a model with random weights, in Paddle's default dtype.

    Args:
        name: one of :func:`list_models`, or the original's ``SoT_Tiny``, ``SoT_Small``,
            ``SoT_Base``. A language model's name that ends in ``_mgcrp`` is an alias of the name
            without it and ``head="mgcrp"``.
        num_classes: outputs K; 1 is regression. None means 2 for text, 1000 for vision.
        head: of a language model: ``"plain"``, its own classifier, or ``"mgcrp"``, the
            second-order head. An option ``pooling`` goes before it.
        overrides: any option of the backbone or the head (``docs/models.md``), such as
            ``hidden_size=48``, ``img_size=112`` or ``wr_dim=12``. Where both have an option of
            one name (``qkv_bias``), it is the backbone's; the head's is ``head_qkv_bias``.

    Returns:
        The model in training mode. ``model(input_ids, token_type_ids=None,
        attention_mask=None)`` (text) or ``model(images)`` (vision) returns logits (B, K).

    Raises:
        ValueError: unknown name or option (the near ones are listed), a wrong type, a value
            out of range, or a head or token embedding that cannot work.
    """
    from sot_paddle.ops.layers import with_native_layers  # loads Paddle

    name = PUBLISHED_NAMES.get(name, name)
    if name in _TEXT:
        from sot_paddle.backbones.text import TextClassifier

        backbone, preset, default = _TEXT[name]
        require_one_of("head", head, (None, *HEADS))
        if head is not None and name != preset:
            raise ValueError(f"{name} names its head already: give {preset!r} and head={head!r}")
        pooling = SECOND_ORDER if (head or default) == "mgcrp" else backbone.plain
        classes = 2 if num_classes is None else num_classes
        stated = name if head is None else text_name(preset, pooling)
        options = {**backbone.presets[preset], "pooling": pooling, **overrides}
        records = sort_options(backbone.options, options, where=stated)
        return with_native_layers(TextClassifier(backbone, *records, classes, name=stated))
    if head is not None:
        raise ValueError(f"head is for language models, got {name!r}; give pooling instead")
    if name in _VISION:
        path, record, preset = _VISION[name]
        classes = 1000 if num_classes is None else num_classes
        records = sort_options(record, {**preset, **overrides}, where=name)
        model = pkgutil.resolve_name(f"sot_paddle.backbones.{path}")
        return with_native_layers(model(*records, classes, name=name))
    raise ValueError(f"unknown model {name!r}; {near_names(name, list_models())}")
