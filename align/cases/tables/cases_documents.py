"""The part of the table with the classification of whole texts (BERT4Doc); no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from align.cases.kinds.case_kinds import (
    Batch,
    Case,
    ModelCase,
    Recipe,
    value_cases,
)
from align.cases.tables.model_options import encoder

_SIZES = {**encoder(12, 3, 20, 30, 18), "pooling": "layers"}
_RECIPE = Recipe(
    optimizer="bert_adam", schedule="linear_drop", epsilon=1e-6, warmup_steps=2.4, clip_norm=0.05
)

_FIFTY = replace(_RECIPE, steps=50, total_steps=60, warmup_steps=6.0, learning_rate=2e-4)

_DATA = (
    *value_cases("documents.document_values:truncation", {"bert4doc_truncation": {}}),
    *value_cases(
        "documents.document_values:batches",
        {
            "bert4doc_train_data": {"layout": "imdb", "max_length": 16, "trunc_medium": 5},
            "bert4doc_dev_data": {
                "layout": "imdb",
                "max_length": 16,
                "trunc_medium": -2,
                "split": "dev",
            },
            "data_trec": {"layout": "trec", "max_length": 13, "trunc_medium": 0},
            "data_yahoo": {"layout": "yahoo", "max_length": 15, "trunc_medium": -1},
            "data_own_commas": {
                "layout": "own commas",
                "max_length": 12,
                "trunc_medium": 9,
                "split": "dev",
            },
            "data_own_lines": {
                "layout": "own lines",
                "max_length": 17,
                "trunc_medium": -1,
                "split": "test",
                "lower_case": False,
            },
            "data_tab_texts": {"layout": "tabs", "max_length": 14, "trunc_medium": 0},
            "data_tab_texts_trec": {
                "layout": "trec tabs",
                "max_length": 14,
                "trunc_medium": 0,
                "split": "dev",
            },
        },
    ),
)

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

_RATE = {"learning_rate": 3e-5}
_LAYERS = {"discr": True, **_RATE}
_RATES = (
    *(
        ModelCase(
            f"layer_rates_{name}",
            "bert_base",
            _SIZES,
            steps=("learning_rate",),
            dtypes=("float64",),
            values="documents.layer_rate_values:groups",
            given={"options": options},
        )
        for name, options in (
            ("all_one", _RATE),
            ("decayed", {**_LAYERS, "layer_learning_rate": (2e-5,)}),
            ("listed", {**_LAYERS, "layer_learning_rate": (1e-5, 4e-5, 2e-5)}),
            ("blocks", {**_LAYERS, "discr_blocks": True}),
            ("of_the_paddle_port", {**_RATE, "paddle_compat": True}),
        )
    ),
)

DOCUMENTS: tuple[Case, ...] = (*_DATA, *_MODELS, *_RATES)

BERT4DOC: Mapping[str, tuple[str, ...]] = {
    "1 forward": ("bert4doc_model",),
    "2 data of the development split": ("bert4doc_dev_data",),
    "4 learning rate": ("layer_rates_*",),
    "4b data of the training split": ("bert4doc_train_data", "bert4doc_truncation"),
    "5 backward": ("bert4doc_model", "bert4doc_training*"),
}
"""The six published checks of the Paddle port -> the cases that stand for each."""
