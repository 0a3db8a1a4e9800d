"""The part of the table with models on hidden states and of spans; no logic."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import (
    Batch,
    Case,
    ModelCase,
    Recipe,
)
from align.cases.tables.model_options import BERT

_SIZES = {"num_layers": 4, "hidden_size": 13, "seq_length": 6}
_ALL = ("forward", "backward", "optimizer", "training")
# C.4: no bias correction, epsilon 1e-6, no clipping, a warm-up that is a fraction of a step
_PUBLISHED = Recipe(
    weight_decay=0.01, epsilon=1e-6, correct_bias=False, clip_norm=None, warmup_steps=2.3
)


def _model(name: str, model: str, **more: Any) -> ModelCase:
    options = {**_SIZES, **more.pop("options", {})}
    return ModelCase(
        name,
        model,
        options,
        subject="states",
        batch=Batch(lengths=(6,) * 5, length=6),
        recipe=_PUBLISHED,
        **more,
    )


_ADAPTERS = (
    _model("adapter_classifier", "adapter_classifier", steps=_ALL),
    _model("adapter_regression", "adapter_classifier", num_classes=1, options={"adapter_dim": 7}),
    _model("adapter_spans", "adapter_spans", steps=_ALL),
    _model("adapter_spans_width", "adapter_spans", options={"adapter_dim": 7}),
    _model("layer_classifiers", "layer_classifiers"),
    _model("layer_classifiers_regression", "layer_classifiers", num_classes=1),
    _model("layer_spans", "layer_spans"),
)

_SPANS = (
    ModelCase(
        "bert_spans",
        "bert_base",
        {**BERT, "num_hidden_layers": 2, "pooling": "spans"},
        num_classes=2,
    ),
    ModelCase(
        "bert_spans_training",
        "bert_base",
        {**BERT, "pooling": "spans"},
        num_classes=2,
        steps=("optimizer", "training"),
        recipe=_PUBLISHED,
        dtypes=("float64",),  # its float32 is that of every model of the language models
    ),
)

STATES: tuple[Case, ...] = (*_ADAPTERS, *_SPANS)
