"""Table: SpanBERT as released: ``decoder.`` before every name, gamma and beta in layer norms.

The released files hold the encoder alone; its own fine-tuning adds BERT's pooler and a classifier.
Its loader drops ``decoder.``, so that a file without it is read as well.

Source: facebookresearch/SpanBERT, the checkpoint's names and what its fine-tuning code reads.
"""

from __future__ import annotations

import dataclasses

from sot_paddle.convert.engine.layout import HeadTable, Layout, Row
from sot_paddle.convert.tables import bert_hf
from sot_paddle.convert.tables.hf_encoder import CONFIG, ENCODER, linear, old_norm

_DECODER = "decoder."
_REASON = "head of the pre-training tasks (words and spans): a classifier has no use for it"


def _released(row: Row) -> Row:
    """A row of BERT's under the released name; today's spelling of a norm is read as well."""
    row = old_norm(row)
    aliases = tuple(_DECODER + name for name in row.aliases)
    return dataclasses.replace(row, source=_DECODER + row.source, aliases=aliases)


LAYOUT = Layout(
    description="SpanBERT as released: its encoder, and the head that its fine-tuning adds",
    models=("spanbert_",),
    encoder=tuple(_released(row) for row in ENCODER),
    heads={
        "pooler": HeadTable(
            rows=(
                *(_released(row) for row in linear("bert.pooler.dense", "head.dense", "C", "C")),
                *linear("classifier", "head.cls_fc", "K", "C"),
            )
        )
    },
    ignored={"decoder.cls.*": _REASON, "qa_outputs.*": bert_hf.SPANS},
    headless={
        _DECODER + name if name.startswith("bert.") else name: reason
        for name, reason in bert_hf.LAYOUT.headless.items()
    },
    optional_prefix=_DECODER,
    config=CONFIG,
)
