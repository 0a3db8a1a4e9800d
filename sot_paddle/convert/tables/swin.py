"""Tables: plain Swin as microsoft released it and as current timm has it.

They differ in three ways: the downsampling ends a stage (microsoft) or begins the next (timm), the
classifier is ``head`` or ``head.fc``, and microsoft stores two constants. The four tokens of a
patch are joined in the same order, so no channel moves.
"""

from __future__ import annotations

from collections.abc import Mapping

from sot_paddle.convert.engine.layout import HeadTable, Layout
from sot_paddle.convert.tables.hf_encoder import linear
from sot_paddle.convert.tables.vision_rows import patches, swin

_NO_CLASSIFIER = "a classifier of the averaged tokens, and this model's head has its own"
_NO_PATCHES = "the token embedding replaces the patches"
_CONSTANT = "follows from the window size; the model makes it itself"


def _layout(
    description: str,
    *,
    shift: int,
    head: str,
    ignored: Mapping[str, str] | None = None,
    written_under: tuple[str, ...] = (),
) -> Layout:
    embed = patches("patch_embed", "C0", norm=True)
    scores = linear(head, "head.word_fc", "K", "C{last}")
    return Layout(
        description=description,
        family="swin",
        models=("swin_",),
        encoder=swin("layers.{}", shift),
        embeds={"patch": embed},
        heads={"gap": HeadTable(rows=scores)},
        ignored=ignored or {},
        headless=dict.fromkeys((row.source for row in scores), _NO_CLASSIFIER),
        embedless=dict.fromkeys((row.source for row in embed), _NO_PATCHES),
        averaged=("model_ema", "state_dict_ema"),
        written_under=written_under,
    )


TIMM = _layout("Swin of current timm", shift=0, head="head.fc")
MICROSOFT = _layout(
    "Swin as released, state dict under the key model",
    shift=1,
    head="head",
    ignored={
        "layers.{}.blocks.{}.attn.relative_position_index": _CONSTANT,
        "layers.{}.blocks.{}.attn_mask": _CONSTANT,
    },
    written_under=("model",),
)
