"""SpanBERT: cased BERT of another pre-training, with a checkpoint layout of its own."""

from __future__ import annotations

import dataclasses

from sot_paddle.backbones.bert import BERT, LARGE

_CASED = {"vocab_size": 28996}

SPANBERT = dataclasses.replace(
    BERT,
    architecture="spanbert",
    presets={"spanbert_base": _CASED, "spanbert_large": {**_CASED, **LARGE}},
)
"""Its config.json speaks of BERT, and so do the names of its parameters."""
