"""Tables: BERT4Doc's classifiers as their original saves them: BERT with gamma and beta in norms.

Its BERT has a pooler in any case; the classifier of chosen layers (``--layers``) does not use it:
the two kinds of file have the same names and are two layouts.

Source: specs.md D.3.
"""

from __future__ import annotations

import dataclasses

from sot_paddle.convert.engine.layout import HeadTable, Layout
from sot_paddle.convert.tables import bert_hf
from sot_paddle.convert.tables.hf_encoder import CONFIG, ENCODER, IGNORED, PREFIX, linear, old_norm

_UNUSED = "pooler of BERT, which the classifier of chosen layers does not use"


POOLED = Layout(
    description="BERT4Doc of --layers -2: BERT with gamma and beta, pooler and classifier",
    encoder=tuple(old_norm(row) for row in ENCODER),
    heads={"pooler": bert_hf.LAYOUT.heads["pooler"]},
    ignored=IGNORED,
    optional_prefix=PREFIX,
    config=CONFIG,
    tokenizer={"tokenize_chinese_chars": False},  # its fine-tuning takes Chinese words whole
)

OF_LAYERS = dataclasses.replace(
    POOLED,
    description="BERT4Doc of other --layers: its classifier of the class tokens of chosen layers",
    heads={"layers": HeadTable(rows=linear("classifier", "head.cls_fc", "K", "L"))},
    ignored={
        **IGNORED,
        "bert.pooler.dense.weight": _UNUSED,
        "bert.pooler.dense.bias": _UNUSED,
    },
)
"""Symbol L: hidden size times the number of layers that are put one after the other."""
