"""Tables: plain DeiT as released and as timm has it; both give the tensors the same names."""

from __future__ import annotations

from sot_paddle.convert.engine.layout import HeadTable, Layout, Row
from sot_paddle.convert.tables.hf_encoder import linear
from sot_paddle.convert.tables.vision_rows import VIT, patches

_NO_CLASSIFIER = "a classifier of the class token alone, and this model's head has its own"
_NO_PATCHES = "the token embedding replaces the patches"


def _layout(description: str, written_under: tuple[str, ...] = ()) -> Layout:
    scores = linear("head", "head.cls_fc", "K", "C")
    embed: tuple[Row, ...] = patches("patch_embed", "C", norm=False)
    return Layout(
        description=description,
        family="vit",
        models=("deit_",),
        encoder=VIT,
        embeds={"patch": embed},
        heads={"none": HeadTable(rows=scores)},
        headless=dict.fromkeys(("head.weight", "head.bias"), _NO_CLASSIFIER),
        embedless=dict.fromkeys((row.source for row in embed), _NO_PATCHES),
        averaged=("model_ema", "state_dict_ema"),
        written_under=written_under,
    )


TIMM = _layout("DeiT of timm")
OFFICIAL = _layout("DeiT as released, state dict under the key model", ("model",))
