"""Registry names: what the conversion must know of each model, and how heads are recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sot_paddle.config import WORD_POOLINGS
from sot_paddle.convert.engine.layout import Row


@dataclass(frozen=True)
class ModelTraits:
    """What a registry name says before any tensor is seen.

    Args:
        family: backbone, as in `sot_paddle.convert.engine.layout.Layout`.
        default: the head when nothing in the file tells.
        accepted: heads that its overrides can give it.
        embed: its token embedding by default, "" when the family has no choice of them.
    """

    family: str
    default: str
    accepted: tuple[str, ...]
    embed: str = ""


PADDLENLP = ("bert_hf", "roberta_hf")
"""Layouts whose models paddlenlp has, too, under our names but for the head's."""

HEAD_SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "pooler": ("head.dense.weight", "head.dense.bias"),
    "mgcrp_qk": ("head.pooling.q_proj.weight", "head.pooling.k_proj.weight"),
    "mgcrp": ("head.pooling.wr.weight",),
    "gcp_text": ("head.pooling.proj.weight",),
    "gcp": ("head.pooling.dr.weight", "head.pooling.dr.bias"),
    "fc": ("head.proj.weight", "head.proj.bias"),
}
"""Head -> Paddle names, any of which proves that a file holds this head.

``pooler`` stands for RoBERTa's ``two_layer`` as well, which has the same tensors.
"""


def head_signatures(heads: Mapping[str, Sequence[Row]]) -> dict[str, tuple[str, ...]]:
    """Head -> Paddle names that prove it: `HEAD_SIGNATURES`, the pooling's that no other head has.

    Args:
        heads: head name -> its rows in a layout.
    """
    counts = Counter(row.destination for rows in heads.values() for row in rows)
    signatures = dict(HEAD_SIGNATURES)
    for head in heads.keys() - signatures.keys():
        names = [row.destination for row in heads[head] if counts[row.destination] == 1]
        pooling = tuple(name for name in names if name.startswith("head.pooling."))
        if pooling:
            signatures[head] = pooling
    return signatures


WORD_SCORES = ("head.word_fc.weight", "head.word_fc.bias")
"""Paddle names that every head with word tokens has; alone they mean average pooling (gap)."""

CLASS_SCORES = ("head.cls_fc.weight", "head.cls_fc.bias")
"""Paddle names that alone mean a classifier of the class token (none), of a language model that of
the class tokens of its layers (layers)."""

TEXT_FAMILIES = ("bert", "roberta", "gpt", "conv_bert")
"""Families of language models."""

_WORDS = tuple(WORD_POOLINGS)


def _text(family: str, classifier: str, *names: str) -> dict[str, ModelTraits]:
    """A language model with its own classifier, and with the second-order head."""
    plain = ModelTraits(family, classifier, (classifier, "pooler", "gap", "gcp", "fc", "layers"))
    second_order = ModelTraits(family, "mgcrp_qk", (*_WORDS, "fc"))
    return {n + end: traits for n in names for end, traits in
            (("", plain), ("_mgcrp", second_order))}  # fmt: skip


_ALL = (*_WORDS, "pooler", "fc", "none")
_SOT = ModelTraits("vit", "mgcrp", _ALL, "densenet")
_DEIT = ModelTraits("vit", "none", _ALL, "patch")
_SWIN = ModelTraits("swin", "gap", _WORDS, "patch")
_SWIN_SOT = ModelTraits("swin", "mgcrp", _WORDS, "densenet")

MODELS: Mapping[str, ModelTraits] = {
    **_text("bert", "pooler", "bert_base", "bert_large", "spanbert_base", "spanbert_large"),
    **_text("roberta", "pooler", "roberta_base", "roberta_large"),
    **_text("gpt", "score", "openai_gpt"),
    **_text("conv_bert", "pooler", "conv_bert_base"),
    **dict.fromkeys(("sot_tiny", "sot_small", "sot_base"), _SOT),
    **dict.fromkeys(("deit_tiny", "deit_small", "deit_base"), _DEIT),
    **dict.fromkeys(("deit_tiny_sot", "deit_small_sot", "deit_base_sot"), _SOT),
    **dict.fromkeys(("swin_tiny", "swin_base"), _SWIN),
    **dict.fromkeys(("swin_tiny_sot", "swin_base_sot"), _SWIN_SOT),
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
