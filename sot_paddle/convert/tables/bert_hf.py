"""Table: plain BERT of Hugging Face, with or without the ``bert.`` prefix and a task head.

The head of sequence classification is converted; every other one is left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping

from sot_paddle.convert.engine.layout import HeadTable, Layout
from sot_paddle.convert.tables.hf_encoder import CONFIG, ENCODER, IGNORED, PREFIX, linear

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

PRETRAINING: Mapping[str, tuple[str, bool]] = {
    "cls.predictions.transform.dense.weight": ("head.words.dense.weight", True),
    "cls.predictions.transform.dense.bias": ("head.words.dense.bias", False),
    "cls.predictions.transform.LayerNorm.weight": ("head.words.norm.weight", False),
    "cls.predictions.transform.LayerNorm.bias": ("head.words.norm.bias", False),
    "cls.predictions.transform.LayerNorm.gamma": ("head.words.norm.weight", False),
    "cls.predictions.transform.LayerNorm.beta": ("head.words.norm.bias", False),
    "cls.predictions.bias": ("head.words.bias", False),
    "bert.pooler.dense.weight": ("head.dense.weight", True),
    "bert.pooler.dense.bias": ("head.dense.bias", False),
    "cls.seq_relationship.weight": ("head.next_fc.weight", True),
    "cls.seq_relationship.bias": ("head.next_fc.bias", False),
}
"""Tensor of the heads of BERT's pre-training -> tensor here, and whether it is a linear weight
(transposed). The decoder is tied to the word embeddings on both sides and has no row."""
