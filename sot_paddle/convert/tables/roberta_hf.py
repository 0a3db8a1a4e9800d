"""Table: RoBERTa of Hugging Face, with or without the ``roberta.`` prefix and a task head.

The head of sequence classification is converted; every other one is left out and named.
"""

from __future__ import annotations

from sot_paddle.convert.engine.layout import HeadTable, Layout
from sot_paddle.convert.tables.hf_encoder import CONFIG, ROBERTA, encoder, ignored, linear

_PRETRAINING = "head of the pre-training task: a classifier has no use for it"
_POOLER = "pooler of the pre-trained model: RoBERTa's own classifier does not use it"
_TOKENS = "head of token classification (RobertaForTokenClassification): it scores every token"
_SPANS = "head of question answering (RobertaForQuestionAnswering): it scores spans"
_CHOICES = "head of multiple choice (RobertaForMultipleChoice): it scores one choice, not classes"
_REPLACED = "the second-order head replaces RoBERTa's own"

LAYOUT = Layout(
    description=(
        "RoBERTa of transformers: its encoder, and the head of RobertaForSequenceClassification"
    ),
    family="roberta",
    encoder=encoder(ROBERTA),
    heads={
        "pooler": HeadTable(
            rows=(
                *linear("classifier.dense", "head.dense", "C", "C"),
                *linear("classifier.out_proj", "head.cls_fc", "K", "C"),
            )
        )
    },
    ignored={
        **ignored(ROBERTA),
        "roberta.embeddings.token_type_ids": "a constant 0; the model makes it itself",
        "roberta.pooler.*": _POOLER,
        "lm_head.*": _PRETRAINING,
        "qa_outputs.*": _SPANS,
        "classifier.weight": _TOKENS,
        "classifier.bias": _TOKENS,
    },
    foreign={
        "RobertaForTokenClassification": {"classifier.*": _TOKENS},
        "RobertaForMultipleChoice": {"classifier.*": _CHOICES},
        "RobertaForQuestionAnswering": {"qa_outputs.*": _SPANS},
    },
    headless={
        "classifier.dense.weight": _REPLACED,
        "classifier.dense.bias": _REPLACED,
        "classifier.out_proj.weight": _REPLACED,
        "classifier.out_proj.bias": _REPLACED,
    },
    optional_prefix=ROBERTA,
    config=CONFIG,
)
