"""The part of the table with models on hidden states and question answering; no logic."""

from __future__ import annotations

from typing import Any

from align.cases.kinds.case_kinds import (
    Batch,
    Case,
    ModelCase,
    Recipe,
    value_cases,
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
_LIVE = (
    ModelCase(
        "live_states",
        "bert_base",
        {
            **BERT,
            "num_hidden_layers": 2,
            "hidden_dropout_prob": 0.5,
            "attention_probs_dropout_prob": 0.5,
        },
        steps=("forward",),
        dtypes=("float64",),
        values="states.state_values:live",
    ),
)
_STORED = value_cases(
    "states.state_values:stored",
    {
        "stored_states": {"task": "rte", "dtype": "float32"},
        "stored_states_half": {"task": "SQuAD", "dtype": "float16"},
        "stored_states_dev": {"task": "mnli", "split": "dev_matched", "dtype": "float32"},
    },
)

_SQUAD = (
    *value_cases(
        "states.squad_values:features",
        {
            "squad_features": {"max_length": 48, "stride": 16},
            "squad_features_one_window": {"max_length": 160, "stride": 32},
            "squad_features_published": {"max_length": 48, "stride": 16, "published_labels": True},
        },
    ),
    *value_cases(
        "states.squad_values:decoding",
        {
            "squad_answers": {"null_score": "published"},
            "squad_answers_smallest_null": {"null_score": "smallest", "n_best": 12},
        },
    ),
    *value_cases(
        "states.squad_values:scores",
        {"metric_squad": {"null_limit": 1.0}, "metric_squad_limit": {"null_limit": 0.6}},
        steps=("metric",),
    ),
)

STATES: tuple[Case, ...] = (*_ADAPTERS, *_SPANS, *_LIVE, *_STORED, *_SQUAD)
