"""BERT, RoBERTa and SpanBERT as rows: paddlenlp is imported when one of them is built."""

from __future__ import annotations

import dataclasses
import functools
import importlib

from paddle import nn

from sot_paddle.backbones.text import TextBackbone
from sot_paddle.config import EncoderConfig


def _build(module: str, encoder: str, config: EncoderConfig) -> nn.Layer:
    """Build an encoder of a module that imports paddlenlp."""
    return getattr(importlib.import_module(module), encoder)(config)


_LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
"""Sizes of BERT-large, of which RoBERTa-large and SpanBERT-large have the same."""

BERT = TextBackbone(
    architecture="bert",
    model_type="bert",
    prefix="bert",
    encoder=functools.partial(_build, "sot_paddle.backbones.bert", "BertEncoder"),
    presets={"bert_base": {}, "bert_large": _LARGE},
    plain="pooler",
    norms=r"bert\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=r"bert\.encoder\.layers\.(\d+)\.",
    tokenizer="wordpiece",
)

_ROBERTA_SIZES = {
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}

ROBERTA = TextBackbone(
    architecture="roberta",
    model_type="roberta",
    prefix="roberta",
    encoder=functools.partial(_build, "sot_paddle.backbones.roberta", "RobertaEncoder"),
    presets={"roberta_base": _ROBERTA_SIZES, "roberta_large": {**_ROBERTA_SIZES, **_LARGE}},
    plain="two_layer",
    norms=r"roberta\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=r"roberta\.encoder\.layers\.(\d+)\.",
    tokenizer="byte_bpe",
    positions_after_padding=True,
)

_CASED = {"vocab_size": 28996}

SPANBERT = dataclasses.replace(
    BERT,
    architecture="spanbert",
    presets={"spanbert_base": _CASED, "spanbert_large": {**_CASED, **_LARGE}},
)
"""Cased BERT of another pre-training; its config.json and the names of its parameters say BERT."""
