"""Table: plain BERT of Hugging Face, with or without the ``bert.`` prefix and a task head.

The head of sequence classification is converted; every other one is left out and named.
"""

from __future__ import annotations

from sot_paddle.convert.engine.layout import HeadTable, Layout, Row
from sot_paddle.convert.tables.hf_encoder import (
    CONFIG,
    ENCODER,
    IGNORED,
    PREFIX,
    layer_norm,
    linear,
)

_PRETRAINING = "head of the pre-training tasks: a classifier has no use for it"
_TOKENS = "head of token classification (BertForTokenClassification): it scores every token"
SPANS = "head of question answering (BertForQuestionAnswering): it scores spans"
_CHOICES = "head of multiple choice (BertForMultipleChoice): it scores one choice, not classes"
_NO_POOLER = "the second-order head replaces BERT's pooler"
_NO_CLASSIFIER = "classifies the pooler's output, which the second-order head does not have"

LAYOUT = Layout(
    description="BERT of transformers: its encoder, and the head of BertForSequenceClassification",
    encoder=ENCODER,
    heads={
        "pooler": HeadTable(
            rows=(
                *linear("bert.pooler.dense", "head.dense", "C", "C"),
                *linear("classifier", "head.cls_fc", "K", "C"),
            )
        )
    },
    ignored={**IGNORED, "cls.*": _PRETRAINING, "qa_outputs.*": SPANS},
    foreign={
        "BertForTokenClassification": {"classifier.*": _TOKENS},
        "BertForMultipleChoice": {"classifier.*": _CHOICES},
        "BertForQuestionAnswering": {"qa_outputs.*": SPANS},
    },
    companions={
        "classifier.*": ("bert.pooler.dense.weight", f"{_TOKENS}; no pooler stands beside it")
    },
    headless={
        "bert.pooler.dense.weight": _NO_POOLER,
        "bert.pooler.dense.bias": _NO_POOLER,
        "classifier.weight": _NO_CLASSIFIER,
        "classifier.bias": _NO_CLASSIFIER,
    },
    optional_prefix=PREFIX,
    config=CONFIG,
)

PRETRAINING = (
    *linear("cls.predictions.transform.dense", "head.words.dense", "C", "C"),
    *layer_norm("cls.predictions.transform.LayerNorm", "head.words.norm"),
    Row("cls.predictions.bias", "head.words.bias", "bias", ("V",)),
    *linear("bert.pooler.dense", "head.dense", "C", "C"),
    *linear("cls.seq_relationship", "head.next_fc", "2", "C"),
)
"""Rows of the heads of BERT's pre-training. The decoder is tied to the word embeddings on both
sides and has no row."""
