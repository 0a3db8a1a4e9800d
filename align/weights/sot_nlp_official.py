"""Table: the original text release of SoT, whose second-order head sits in BERT's pooler.

Symbols of the head: q, k the reduced widths, K classes. Source: specs.md B.1.
"""

from __future__ import annotations

from align.weights.hf_encoder import CONFIG, ENCODER, IGNORED, linear
from align.weights.layout import HeadTable, Layout, Row

_BLOCK = "bert.pooler.representation.conv_dr_block."
_COUNTED = "batches seen so far; Paddle's BatchNorm has a fixed momentum and does not count"
_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


def _branch(index: int, name: str, width: str) -> tuple[Row, ...]:
    """1x1 convolution and BatchNorm of one branch."""
    return (
        Row(
            f"{_BLOCK}{index}.0.weight",
            f"head.pooling.{name}_proj.weight",
            "conv1x1_to_linear",
            (width, "C", "1", "1"),
        ),
        *(
            Row(f"{_BLOCK}{index}.1.{part}", f"head.pooling.{name}_norm.{part}", "norm", (width,))
            for part in _BATCH_NORM
        ),
    )


LAYOUT = Layout(
    description="the original SoT text release: BERT with the q x k MGCrP head as its pooler",
    encoder=ENCODER,
    heads={
        "mgcrp_qk": HeadTable(
            rows=(
                *_branch(0, "q", "q"),
                *_branch(1, "k", "k"),
                Row(
                    "bert.pooler.normalization.weight", "head.pooling.norm.weight", "vector", ("q",)
                ),
                *linear("bert.pooler.visual_fc", "head.word_fc", "K", "q*k"),
                *linear("bert.pooler.cls_fc", "head.cls_fc", "K", "C"),
            ),
            config={"MGCrP_q": "q", "MGCrP_k": "k"},
        ),
    },
    ignored={
        **IGNORED,
        _BLOCK + "0.1.num_batches_tracked": _COUNTED,
        _BLOCK + "1.1.num_batches_tracked": _COUNTED,
    },
    counters={
        _BLOCK + "0.1.num_batches_tracked": "head.pooling.q_norm.running_mean",
        _BLOCK + "1.1.num_batches_tracked": "head.pooling.k_norm.running_mean",
    },
    config=CONFIG,
)
