"""Registry names: what the conversion must know of each model, and how heads are recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sot_paddle.config import WORD_POOLINGS
from sot_paddle.convert.tables import sot_torch_ref


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


def _signatures() -> dict[str, tuple[str, ...]]:
    heads = sot_torch_ref.LAYOUTS[0].heads
    counts = Counter(row.destination for rows in heads.values() for row in rows)
    signatures = {}
    for head, rows in heads.items():
        names = tuple(row.destination for row in rows if counts[row.destination] == 1)
        signatures |= {head: names} if names else {}
    return signatures


HEAD_SIGNATURES: Mapping[str, tuple[str, ...]] = _signatures()
"""Head name -> Paddle names that no other head has; any of them proves that a file holds it.

``pooler`` stands for RoBERTa's ``two_layer`` as well, which has the same tensors.
"""

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
