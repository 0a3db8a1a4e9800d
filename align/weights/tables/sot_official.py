"""Table: the original release of SoT for images, and the checkpoints that its training writes.

Its other token embeddings (ResNet, Inception, Non-local, linear) and its heads ``fc`` and ``GCP``
have no row: their names are not documented, and nothing is guessed. Source: specs.md A.5-A.8.
"""

from __future__ import annotations

from align.weights.engine.layout import HeadTable, Layout, Row
from align.weights.tables.hf_encoder import linear
from align.weights.tables.vision_rows import COUNTED, VIT, counters, densenet

_CLASSIFIER = "classifier.representation"
_EMBEDS = {
    "densenet": densenet(
        "C",
        stem="visual_tokens.tokens.stem.0",
        layer="visual_tokens.tokens.stage.{block}.denselayer{number}",
        transition="visual_tokens.tokens.stage.{block}",
        proj="visual_tokens.tokens.transition",
    )
}
_COUNTERS = counters(_EMBEDS["densenet"])
_WORD_SCORES = linear("classifier.visual_fc", "head.word_fc", "K", "R")
_CLASS_SCORES = linear("classifier.cls_fc", "head.cls_fc", "K", "C")

LAYOUT = Layout(
    description="the original SoT release for images, and checkpoints of its training",
    family="vit",
    models=("sot_",),
    encoder=VIT,
    embeds=_EMBEDS,
    heads={
        "mgcrp": HeadTable(
            rows=(
                Row(f"{_CLASSIFIER}.wr.weight", "head.pooling.wr.weight", "linear", ("W", "C")),
                Row(
                    f"{_CLASSIFIER}.wr.bias", "head.pooling.wr.bias", "bias", ("W",), optional=True
                ),
                Row(f"{_CLASSIFIER}.norm.weight", "head.pooling.norm.weight", "vector", ("w",)),
                Row(
                    f"{_CLASSIFIER}.norm.bias",
                    "head.pooling.norm.bias",
                    "norm",
                    ("w",),
                    optional=True,
                ),
                *_WORD_SCORES,
                *_CLASS_SCORES,
            )
        ),
        "gap": HeadTable(rows=(*_WORD_SCORES, *_CLASS_SCORES)),
        "none": HeadTable(rows=_CLASS_SCORES),
    },
    ignored=dict.fromkeys(_COUNTERS, COUNTED),
    counters=_COUNTERS,
    averaged=("state_dict_ema",),
    written_under=("state_dict", "state_dict_ema"),
    wrappers=("module.",),
)
