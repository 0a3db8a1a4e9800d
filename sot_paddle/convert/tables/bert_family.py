"""Tables: BERT and RoBERTa of Hugging Face, with or without their prefix and a task head, and two
releases with BERT's encoder under old names: SpanBERT's and BERT4Doc's.

The head of sequence classification is converted; every other one is left out and named.
"""

from __future__ import annotations

import dataclasses

from sot_paddle.convert.engine.layout import Layout, Row
from sot_paddle.convert.tables.hf_encoder import (
    CONFIG,
    PREFIX,
    ROBERTA,
    encoder,
    ignored,
    layer_norm,
    left_out,
    linear,
    old_norm,
    other_tasks,
)

_PRETRAINING = "head of the pre-training tasks: a classifier has no use for it"
_NO_POOLER = "the second-order head replaces BERT's pooler"
_NO_CLASSIFIER = "classifies the pooler's output, which the second-order head does not have"

_POOLER = linear("bert.pooler.dense", "head.dense", "C", "C")
_SCORES = linear("classifier", "head.cls_fc", "K", "C")
_BERTS_TASKS = other_tasks("Bert")
_BERTS_TOKENS = _BERTS_TASKS["BertForTokenClassification"]["classifier.*"]
_BERTS_SPANS = _BERTS_TASKS["BertForQuestionAnswering"]

BERT = Layout(
    description="BERT of transformers: its encoder, and the head of BertForSequenceClassification",
    encoder=encoder(PREFIX),
    heads={"pooler": (*_POOLER, *_SCORES)},
    ignored={**ignored(PREFIX), "cls.*": _PRETRAINING, **_BERTS_SPANS},
    foreign=_BERTS_TASKS,
    companions={
        "classifier.*": ("bert.pooler.dense.weight", f"{_BERTS_TOKENS}; no pooler stands beside it")
    },
    headless={**left_out(_POOLER, _NO_POOLER), **left_out(_SCORES, _NO_CLASSIFIER)},
    optional_prefix=PREFIX,
    config=CONFIG,
)

PRETRAINING = (
    *linear("cls.predictions.transform.dense", "head.words.dense", "C", "C"),
    *layer_norm("cls.predictions.transform.LayerNorm", "head.words.norm"),
    Row("cls.predictions.bias", "head.words.bias", "bias", ("V",)),
    *_POOLER,
    *linear("cls.seq_relationship", "head.next_fc", "2", "C"),
)
"""Rows of the heads of BERT's pre-training. The decoder is tied to the word embeddings on both
sides and has no row."""


_DECODER = "decoder."


def _released(row: Row) -> Row:
    """A row of BERT's under SpanBERT's name; today's spelling of a norm is read as well."""
    row = old_norm(row)
    aliases = tuple(_DECODER + name for name in row.aliases)
    return dataclasses.replace(row, source=_DECODER + row.source, aliases=aliases)


_SPANBERTS_POOLER = tuple(_released(row) for row in _POOLER)

SPANBERT = Layout(
    description="SpanBERT as released: its encoder, and the head that its fine-tuning adds",
    models=("spanbert_",),
    encoder=tuple(_released(row) for row in BERT.encoder),
    heads={"pooler": (*_SPANBERTS_POOLER, *_SCORES)},
    ignored={
        "decoder.cls.*": (
            "head of the pre-training tasks (words and spans): a classifier has no use for it"
        ),
        **_BERTS_SPANS,
    },
    headless={**left_out(_SPANBERTS_POOLER, _NO_POOLER), **left_out(_SCORES, _NO_CLASSIFIER)},
    optional_prefix=_DECODER,
    config=CONFIG,
)
"""SpanBERT as released: ``decoder.`` before every name, gamma and beta in layer norms.

The released files hold the encoder alone; its own fine-tuning adds BERT's pooler and a classifier.
Its loader drops ``decoder.``, so that a file without it is read as well.

Source: facebookresearch/SpanBERT, the checkpoint's names and what its fine-tuning code reads."""

_UNUSED = "pooler of BERT, which the classifier of chosen layers does not use"

BERT4DOC = Layout(
    description="BERT4Doc of --layers -2: BERT with gamma and beta, pooler and classifier",
    encoder=tuple(old_norm(row) for row in BERT.encoder),
    heads=BERT.heads,
    ignored=ignored(PREFIX),
    optional_prefix=PREFIX,
    config=CONFIG,
    tokenizer={"tokenize_chinese_chars": False},  # its fine-tuning takes Chinese words whole
)
"""BERT4Doc's classifiers as their original saves them: BERT with gamma and beta in norms.

Its BERT has a pooler in any case; the classifier of chosen layers (``--layers``) does not use it:
the two kinds of file have the same names and are two layouts.

Source: specs.md D.3."""

BERT4DOC_LAYERS = dataclasses.replace(
    BERT4DOC,
    description="BERT4Doc of other --layers: its classifier of the class tokens of chosen layers",
    heads={"layers": linear("classifier", "head.cls_fc", "K", "L")},
    ignored={**ignored(PREFIX), **left_out(_POOLER, _UNUSED)},
)
"""Symbol L: hidden size times the number of layers that are put one after the other."""

_WORDS = "head of the pre-training task: a classifier has no use for it"
_NO_USE = "pooler of the pre-trained model: RoBERTa's own classifier does not use it"
_REPLACED = "the second-order head replaces RoBERTa's own"

_HEAD = (
    *linear("classifier.dense", "head.dense", "C", "C"),
    *linear("classifier.out_proj", "head.cls_fc", "K", "C"),
)
_ROBERTAS_TASKS = other_tasks("Roberta")
_ROBERTAS_TOKENS = _ROBERTAS_TASKS["RobertaForTokenClassification"]["classifier.*"]

ROBERTA_HF = Layout(
    description=(
        "RoBERTa of transformers: its encoder, and the head of RobertaForSequenceClassification"
    ),
    family="roberta",
    encoder=encoder(ROBERTA),
    heads={"pooler": _HEAD},
    ignored={
        **ignored(ROBERTA),
        "roberta.embeddings.token_type_ids": "a constant 0; the model makes it itself",
        "roberta.pooler.*": _NO_USE,
        "lm_head.*": _WORDS,
        **_ROBERTAS_TASKS["RobertaForQuestionAnswering"],
        "classifier.weight": _ROBERTAS_TOKENS,
        "classifier.bias": _ROBERTAS_TOKENS,
    },
    foreign=_ROBERTAS_TASKS,
    headless=left_out(_HEAD, _REPLACED),
    optional_prefix=ROBERTA,
    config=CONFIG,
)
