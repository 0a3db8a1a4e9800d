"""Tables: the vision models of this project's PyTorch reference, whose names are ours."""

from __future__ import annotations

from itertools import chain

from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.tables.sot_torch_ref import heads
from sot_paddle.convert.tables.token_rows import own_embeds
from sot_paddle.convert.tables.vision_rows import COUNTED, counters, swin
from sot_paddle.convert.tables.vision_rows import VIT as VIT_ROWS

_DESCRIPTION = "this project's PyTorch reference, sot_torch_ref"


def _layout(
    family: str, encoder: tuple[Row, ...], width: str, first: str, *, class_token: bool
) -> Layout:
    embeds = own_embeds(first, patch_norm=not class_token)
    tables = heads(width, class_token=class_token)
    counted = counters([*chain(*embeds.values()), *chain(*(t.rows for t in tables.values()))])
    return Layout(
        description=_DESCRIPTION,
        family=family,
        encoder=encoder,
        embeds=embeds,
        heads=tables,
        ignored=dict.fromkeys(counted, COUNTED),
        counters=counted,
        averaged=("state_dict_ema", "model_ema"),
    )


VIT = _layout("vit", VIT_ROWS, "C", "C", class_token=True)
SWIN = _layout("swin", swin("stages.{}", 0), "C{last}", "C0", class_token=False)
