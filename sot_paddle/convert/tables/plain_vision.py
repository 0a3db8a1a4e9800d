"""Tables: plain DeiT and plain Swin, as released and as timm has them.

Both DeiTs give the tensors the same names. The Swins differ in three ways: the downsampling ends a
stage (microsoft) or begins the next (timm), the classifier is ``head`` or ``head.fc``, and
microsoft stores two constants. The four tokens of a patch are joined in the same order, so no
channel moves.
"""

from __future__ import annotations

from typing import Any

from sot_paddle.convert.engine.layout import Layout
from sot_paddle.convert.tables.hf_encoder import left_out, linear
from sot_paddle.convert.tables.vision_rows import VIT, patches, swin

_OF_CLASS = "a classifier of the class token alone, and this model's head has its own"
_OF_MEAN = "a classifier of the averaged tokens, and this model's head has its own"
_NO_PATCHES = "the token embedding replaces the patches"
_CONSTANT = "follows from the window size; the model makes it itself"


def _deit(description: str, **parts: Any) -> Layout:
    scores, embed = linear("head", "head.cls_fc", "K", "C"), patches("patch_embed", "C", norm=False)
    return Layout(
        description=description,
        family="vit",
        models=("deit_",),
        encoder=VIT,
        embeds={"patch": embed},
        heads={"none": scores},
        headless=left_out(scores, _OF_CLASS),
        embedless=left_out(embed, _NO_PATCHES),
        **parts,
    )


def _swin(description: str, classifier: str, **parts: Any) -> Layout:
    scores = linear(classifier, "head.word_fc", "K", "C{last}")
    embed = patches("patch_embed", "C0", norm=True)
    return Layout(
        description=description,
        family="swin",
        models=("swin_",),
        embeds={"patch": embed},
        heads={"gap": scores},
        headless=left_out(scores, _OF_MEAN),
        embedless=left_out(embed, _NO_PATCHES),
        **parts,
    )


DEIT_TIMM = _deit("DeiT of timm")
DEIT_OFFICIAL = _deit("DeiT as released, state dict under the key model", written_under=("model",))
SWIN_TIMM = _swin("Swin of current timm", "head.fc", encoder=swin("layers.{}", shift=0))
SWIN_MICROSOFT = _swin(
    "Swin as released, state dict under the key model",
    "head",
    encoder=swin("layers.{}", shift=1),
    ignored={
        "layers.{}.blocks.{}.attn.relative_position_index": _CONSTANT,
        "layers.{}.blocks.{}.attn_mask": _CONSTANT,
    },
    written_under=("model",),
)
