"""Table: plain BERT of Hugging Face, with or without a task head and the ``bert.`` prefix."""

from __future__ import annotations

from align.weights.hf_encoder import CONFIG, ENCODER, IGNORED, PREFIX, linear
from align.weights.layout import HeadTable, Layout

_PRETRAINING = "head of the pre-training tasks: a classifier has no use for it"
_NO_POOLER = "the second-order head replaces BERT's pooler"
_NO_CLASSIFIER = "classifies the pooler's output, which the second-order head does not have"

LAYOUT = Layout(
    description="BERT of transformers: BertModel or BertForSequenceClassification",
    encoder=ENCODER,
    heads={
        "pooler": HeadTable(
            rows=(
                *linear("bert.pooler.dense", "head.dense", "C", "C"),
                *linear("classifier", "head.cls_fc", "K", "C"),
            ),
        ),
    },
    ignored={**IGNORED, "cls.*": _PRETRAINING},
    headless={
        "bert.pooler.dense.weight": _NO_POOLER,
        "bert.pooler.dense.bias": _NO_POOLER,
        "classifier.weight": _NO_CLASSIFIER,
        "classifier.bias": _NO_CLASSIFIER,
    },
    optional_prefix=PREFIX,
    config=CONFIG,
)
