"""Registry names: what the conversion must know of each model, and how heads are recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelTraits:
    """What a registry name says before any tensor is seen.

    Args:
        family: backbone, as in `align.weights.engine.layout.Layout`.
        default: the head when nothing in the file tells.
        accepted: heads that its overrides can give it.
        embed: its token embedding by default, "" when the family has no choice of them.
    """

    family: str
    default: str
    accepted: tuple[str, ...]
    embed: str = ""


HEAD_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "pooler": ("head.dense.weight", "head.dense.bias"),
    "mgcrp_qk": ("head.pooling.q_proj.weight", "head.pooling.k_proj.weight"),
    "mgcrp": ("head.pooling.wr.weight",),
    "gcp_text": ("head.pooling.proj.weight",),
    "gcp": ("head.pooling.dr.weight", "head.pooling.dr.bias"),
    "fc": ("head.proj.weight", "head.proj.bias"),
}
"""Head name -> Paddle names, any of which proves that a file holds this head."""

WORD_SCORES = ("head.word_fc.weight", "head.word_fc.bias")
"""Paddle names that every head with word tokens has; alone they mean average pooling (gap)."""

CLASS_SCORES = ("head.cls_fc.weight", "head.cls_fc.bias")
"""Paddle names that alone mean a classifier of the class token (none)."""

_PLAIN = ModelTraits("bert", "pooler", ("pooler", "gap", "gcp", "fc"))
_SECOND_ORDER = ModelTraits(
    "bert", "mgcrp_qk", ("mgcrp_qk", "mgcrp", "gap", "gcp", "gcp_text", "fc")
)
_WORDS = ("mgcrp", "mgcrp_qk", "gap", "gcp", "gcp_text")
_ALL = (*_WORDS, "pooler", "fc", "none")
_SOT = ModelTraits("vit", "mgcrp", _ALL, "densenet")
_DEIT = ModelTraits("vit", "none", _ALL, "patch")
_SWIN = ModelTraits("swin", "gap", _WORDS, "patch")
_SWIN_SOT = ModelTraits("swin", "mgcrp", _WORDS, "densenet")

MODELS: Mapping[str, ModelTraits] = {
    "bert_base": _PLAIN,
    "bert_large": _PLAIN,
    "bert_base_mgcrp": _SECOND_ORDER,
    "bert_large_mgcrp": _SECOND_ORDER,
    "sot_tiny": _SOT,
    "sot_small": _SOT,
    "sot_base": _SOT,
    "deit_tiny": _DEIT,
    "deit_small": _DEIT,
    "deit_base": _DEIT,
    "deit_tiny_sot": _SOT,
    "deit_small_sot": _SOT,
    "deit_base_sot": _SOT,
    "swin_tiny": _SWIN,
    "swin_base": _SWIN,
    "swin_tiny_sot": _SWIN_SOT,
    "swin_base_sot": _SWIN_SOT,
}
"""Registry name -> traits. Depth and sizes come from the tensors, so base and large agree here."""


def known_traits(model: str) -> ModelTraits:
    """Look a registry name up.

    Raises:
        ValueError: unknown name.
    """
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; expected one of {', '.join(MODELS)}")
    return MODELS[model]


def registry_name(model: str) -> str:
    """The registry name that a name means; the original's capitals (``SoT_Tiny``) are accepted."""
    return model.lower() if model.lower() in MODELS else model
