"""Table: the original text release of SoT, whose second-order head sits in BERT's pooler.

Symbols of the heads: q, k the reduced widths, d that of a single branch (``cov_type="norm"``), R
width of its representation, K classes. Source: specs.md B.1.
"""

from __future__ import annotations

from align.weights.engine.layout import HeadTable, Layout, Row
from align.weights.tables.hf_encoder import CONFIG, ENCODER, IGNORED, linear

_BLOCK = "bert.pooler.representation.conv_dr_block."
_COUNTED = "batches seen so far; Paddle's BatchNorm has a fixed momentum and does not count"
_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


def _branch(block: str, proj: str, norm: str, width: str) -> tuple[Row, ...]:
    """1x1 convolution and BatchNorm of one branch."""
    return (
        Row(
            f"{block}0.weight",
            f"head.pooling.{proj}.weight",
            "conv1x1_to_linear",
            (width, "C", "1", "1"),
        ),
        *(
            Row(f"{block}1.{part}", f"head.pooling.{norm}.{part}", "norm", (width,))
            for part in _BATCH_NORM
        ),
    )


def _start(width: str, *, optional: bool = False) -> Row:
    """Start vector of svPN."""
    source = "bert.pooler.normalization.weight"
    return Row(source, "head.pooling.norm.weight", "vector", (width,), optional=optional)


_COUNTERS = {
    _BLOCK + "0.1.num_batches_tracked": "head.pooling.q_norm.running_mean",
    _BLOCK + "1.1.num_batches_tracked": "head.pooling.k_norm.running_mean",
    _BLOCK + "1.num_batches_tracked": "head.pooling.proj_norm.running_mean",
}
_CLASS_SCORES = linear("bert.pooler.cls_fc", "head.cls_fc", "K", "C")


LAYOUT = Layout(
    description="the original SoT text release: BERT with its second-order head as its pooler",
    encoder=ENCODER,
    heads={
        "mgcrp_qk": HeadTable(
            rows=(
                *_branch(f"{_BLOCK}0.", "q_proj", "q_norm", "q"),
                *_branch(f"{_BLOCK}1.", "k_proj", "k_norm", "k"),
                _start("q"),
                *linear("bert.pooler.visual_fc", "head.word_fc", "K", "q*k"),
                *_CLASS_SCORES,
            ),
            config={"MGCrP_q": "q", "MGCrP_k": "k"},
        ),
        "gcp_text": HeadTable(
            rows=(
                *_branch(_BLOCK, "proj", "proj_norm", "d"),
                _start("d", optional=True),
                *linear("bert.pooler.visual_fc", "head.word_fc", "K", "R"),
                *_CLASS_SCORES,
            ),
            config={"MGCrP_q": "d"},
        ),
    },
    ignored={**IGNORED, **dict.fromkeys(_COUNTERS, _COUNTED)},
    counters=_COUNTERS,
    config=CONFIG,
)
