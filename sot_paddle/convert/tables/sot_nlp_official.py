"""Table: the original text release of SoT, whose second-order head sits in BERT's pooler.

Symbols of the heads: q, k the reduced widths, d that of a single branch (``cov_type="norm"``), R
width of its representation, K classes. Source: specs.md B.1.
"""

from __future__ import annotations

import dataclasses

from sot_paddle.convert.engine.layout import HeadTable, Layout, Row
from sot_paddle.convert.tables.hf_encoder import CONFIG, ENCODER, IGNORED
from sot_paddle.convert.tables.sot_torch_ref import heads, released

_BLOCK = "bert.pooler.representation.conv_dr_block."
_NAMES = {
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

_HEADS = heads("C", class_token=True)


def _of_both_branches(row: Row) -> Row:
    """The word scores see the whole product of the branches: q times k numbers."""
    return dataclasses.replace(row, shape=("K", "q*k")) if "R" in row.shape else row


LAYOUT = Layout(
    description="the original SoT text release: BERT with its second-order head as its pooler",
    encoder=ENCODER,
    heads={
        "mgcrp_qk": HeadTable(
            rows=released(map(_of_both_branches, _HEADS["mgcrp_qk"].rows), _NAMES),
            config={"MGCrP_q": "q", "MGCrP_k": "k"},
        ),
        "gcp_text": HeadTable(
            rows=released(_HEADS["gcp_text"].rows, _NAMES),
            config={"MGCrP_q": "d"},
        ),
    },
    ignored=IGNORED,
    config=CONFIG,
)
