"""Tables: the vision models of this project's PyTorch reference, whose names are ours."""

from __future__ import annotations

from collections.abc import Mapping

from align.weights.engine.layout import HeadTable, Layout, Row
from align.weights.tables.sot_torch_ref import heads
from align.weights.tables.token_rows import own_embeds
from align.weights.tables.vision_rows import COUNTED, counters, swin
from align.weights.tables.vision_rows import VIT as VIT_ROWS

_DESCRIPTION = "this project's PyTorch reference, sot_torch_ref"
_WRAPPERS = ("module.", "_orig_mod.")


def _all_counters(
    embeds: Mapping[str, tuple[Row, ...]], tables: Mapping[str, HeadTable]
) -> Mapping[str, str]:
    rows = [row for embed in embeds.values() for row in embed]
    return counters([*rows, *(row for table in tables.values() for row in table.rows)])


def _layout(
    family: str, encoder: tuple[Row, ...], width: str, first: str, *, class_token: bool
) -> Layout:
    embeds = own_embeds(first, patch_norm=not class_token)
    tables = heads(width, class_token=class_token)
    counted = _all_counters(embeds, tables)
    return Layout(
        description=_DESCRIPTION,
        family=family,
        encoder=encoder,
        embeds=embeds,
        heads=tables,
        ignored=dict.fromkeys(counted, COUNTED),
        counters=counted,
        containers=("state_dict", "model"),
        averaged=("state_dict_ema", "model_ema"),
        wrappers=_WRAPPERS,
    )


VIT = _layout("vit", VIT_ROWS, "C", "C", class_token=True)
SWIN = _layout("swin", swin("stages.{}", 0), "C{last}", "C0", class_token=False)
