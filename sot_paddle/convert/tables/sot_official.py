"""Tables: the original releases of SoT, for text and for images."""

from __future__ import annotations

import dataclasses

from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.tables.hf_encoder import CONFIG, PREFIX, encoder, ignored
from sot_paddle.convert.tables.sot_torch_ref import heads, released
from sot_paddle.convert.tables.vision_rows import VIT, densenet

_HEADS = heads("C", class_token=True)
_BLOCK = "bert.pooler.representation.conv_dr_block."
_TEXT_NAMES = {
    "head.pooling.q_proj.": f"{_BLOCK}0.0.",
    "head.pooling.q_norm.": f"{_BLOCK}0.1.",
    "head.pooling.k_proj.": f"{_BLOCK}1.0.",
    "head.pooling.k_norm.": f"{_BLOCK}1.1.",
    "head.pooling.proj.": f"{_BLOCK}0.",
    "head.pooling.proj_norm.": f"{_BLOCK}1.",
    "head.pooling.norm.": "bert.pooler.normalization.",
    "head.word_fc.": "bert.pooler.visual_fc.",
    "head.cls_fc.": "bert.pooler.cls_fc.",
}
"""Beginning of a name here -> in the release: 1x1 convolution and BatchNorm of each branch."""


def _of_both_branches(row: Row) -> Row:
    """The word scores see the whole product of the branches: q times k numbers."""
    return dataclasses.replace(row, shape=("K", "q*k")) if "R" in row.shape else row


TEXT = Layout(
    description="the original SoT text release: BERT with its second-order head as its pooler",
    encoder=encoder(PREFIX),
    heads={
        "mgcrp_qk": released(map(_of_both_branches, _HEADS["mgcrp_qk"]), _TEXT_NAMES),
        "gcp_text": released(_HEADS["gcp_text"], _TEXT_NAMES),
    },
    head_config={"mgcrp_qk": {"MGCrP_q": "q", "MGCrP_k": "k"}, "gcp_text": {"MGCrP_q": "d"}},
    ignored=ignored(PREFIX),
    config=CONFIG,
)
"""The text release, whose second-order head sits in BERT's pooler.

Symbols of the heads: q, k the reduced widths, d that of a single branch (``cov_type="norm"``), R
width of its representation, K classes. Source: specs.md B.1."""

_IMAGE_NAMES = {
    "head.pooling.": "classifier.representation.",
    "head.word_fc.": "classifier.visual_fc.",
    "head.cls_fc.": "classifier.cls_fc.",
}
_OURS = ("head.pooling.norm.factor",)  # of a normalisation that the release does not have
_TOKENS = densenet(
    "C",
    stem="visual_tokens.tokens.stem.0",
    layer="visual_tokens.tokens.stage.{block}.denselayer{number}",
    transition="visual_tokens.tokens.stage.{block}",
    proj="visual_tokens.tokens.transition",
)


def _image_head(name: str) -> tuple[Row, ...]:
    return released((row for row in _HEADS[name] if row.source not in _OURS), _IMAGE_NAMES)


IMAGES = Layout(
    description="the original SoT release for images, and checkpoints of its training",
    family="vit",
    models=("sot_",),
    encoder=VIT,
    embeds={"densenet": _TOKENS},
    heads={name: _image_head(name) for name in ("mgcrp", "gap", "none")},
    written_under=("state_dict", "state_dict_ema"),
)
"""The release for images, and the checkpoints that its training writes.

Its other token embeddings (ResNet, Inception, Non-local, linear) and its heads ``fc`` and ``GCP``
have no row: their names are not documented, and nothing is guessed. Source: specs.md A.5-A.8."""
