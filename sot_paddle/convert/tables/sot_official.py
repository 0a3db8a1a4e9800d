"""Table: the original release of SoT for images, and the checkpoints that its training writes.

Its other token embeddings (ResNet, Inception, Non-local, linear) and its heads ``fc`` and ``GCP``
have no row: their names are not documented, and nothing is guessed. Source: specs.md A.5-A.8.
"""

from __future__ import annotations

from sot_paddle.convert.engine.layout import HeadTable, Layout
from sot_paddle.convert.tables.sot_torch_ref import heads, released
from sot_paddle.convert.tables.vision_rows import VIT, densenet

_NAMES = {
    "head.pooling.": "classifier.representation.",
    "head.word_fc.": "classifier.visual_fc.",
    "head.cls_fc.": "classifier.cls_fc.",
}
_OURS = ("head.pooling.norm.factor",)  # of a normalisation that the release does not have
_EMBEDS = {
    "densenet": densenet(
        "C",
        stem="visual_tokens.tokens.stem.0",
        layer="visual_tokens.tokens.stage.{block}.denselayer{number}",
        transition="visual_tokens.tokens.stage.{block}",
        proj="visual_tokens.tokens.transition",
    )
}


def _head(name: str) -> HeadTable:
    rows = heads("C", class_token=True)[name].rows
    return HeadTable(released((row for row in rows if row.source not in _OURS), _NAMES))


LAYOUT = Layout(
    description="the original SoT release for images, and checkpoints of its training",
    family="vit",
    models=("sot_",),
    encoder=VIT,
    embeds=_EMBEDS,
    heads={
        "mgcrp": _head("mgcrp"),
        "gap": _head("gap"),
        "none": _head("none"),
    },
    averaged=("state_dict_ema",),
    written_under=("state_dict", "state_dict_ema"),
)
