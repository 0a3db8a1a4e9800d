"""The part of the table with the classification of whole texts (BERT4Doc); no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from align.cases.kinds.case_kinds import (
    Batch,
    Case,
    ModelCase,
    Recipe,
)
from align.cases.tables.model_options import encoder

_SIZES = {**encoder(12, 3, 20, 30, 18), "pooling": "layers"}
_RECIPE = Recipe(
    optimizer="bert_adam", schedule="linear_drop", epsilon=1e-6, warmup_steps=2.4, clip_norm=0.05
)

_FIFTY = replace(_RECIPE, steps=50, total_steps=60, warmup_steps=6.0, learning_rate=2e-4)

_MODELS = (
    ModelCase(
        "bert4doc_model",
        "bert_base",
        {**_SIZES, "layers": (2,)},
        num_classes=2,
    ),
    *(
        ModelCase(
            name,
            "bert_base",
            {**_SIZES, "num_hidden_layers": 1},
            steps=("optimizer", "training"),
            num_classes=2,
            recipe=recipe,
            dtypes=(dtype,),
            quick=dtype == "float64",
        )
        for name, dtype, recipe in (
            ("bert4doc_training", "float64", _RECIPE),
            ("bert4doc_training_float32", "float32", _FIFTY),
        )
    ),
    *(
        ModelCase(
            f"layers_{pooling}",
            "bert_base",
            {**_SIZES, "layers": layers, "layer_pooling": pooling},
            batch=Batch(lengths=(9, 1, 5), length=9),
        )
        for pooling, layers in (("concat", (2, 0)), ("max", ()), ("mean", (0, 2)))
    ),
)

DOCUMENTS: tuple[Case, ...] = _MODELS

BERT4DOC: Mapping[str, tuple[str, ...]] = {
    "1 forward": ("bert4doc_model",),
    "5 backward": ("bert4doc_model", "bert4doc_training*"),
}
"""Published checks of the Paddle port -> the cases that stand for each; the others are pytests."""
