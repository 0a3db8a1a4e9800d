"""CASES: the declarative table of everything the suite compares; no logic.

Dimensions are tiny and all different, so that a swapped axis cannot pass by accident.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from align.cases.kinds.case_kinds import Batch, Case, ModelCase, Recipe, TrainerCase
from align.cases.tables.cases_calls import CALLS
from align.cases.tables.cases_conv_models import CONV_MODELS
from align.cases.tables.cases_documents import BERT4DOC, DOCUMENTS
from align.cases.tables.cases_models import MODELS, OTHER_KINDS
from align.cases.tables.cases_states import STATES
from align.cases.tables.cases_text_models import TEXT_MODELS
from align.cases.tables.cases_text_runs import TEXT_RUNS
from align.cases.tables.cases_unseen_options import UNSEEN_OPTIONS
from align.cases.tables.cases_values import VALUES
from align.cases.tables.cases_vision import VISION
from align.cases.tables.model_options import HEAD, NO_DROPOUT, encoder

_SMALL = {**encoder(48, 3, 96, 100, 64), "q_dim": 12, "k_dim": 8}
_TINY = {**_SMALL, "hidden_size": 20, "num_hidden_layers": 1, "intermediate_size": 28}
_HEAD = {**_TINY, **HEAD}
_DEEP = {**_SMALL, "num_hidden_layers": 12, "hidden_size": 64, "intermediate_size": 144}
_FULL = {"vocab_size": 500, **NO_DROPOUT}
_ALL = ("forward", "backward", "optimizer", "training")
_MASKED = {"mask_padding": True}

_TEXT = (
    ModelCase("bert_plain", "bert_base", _SMALL, steps=_ALL),
    ModelCase("bert_plain_eval", "bert_base", _SMALL, train=False),
    ModelCase("bert_plain_regression", "bert_base", _SMALL, num_classes=1),
    ModelCase("bert_mgcrp", "bert_base_mgcrp", _SMALL, steps=_ALL),
    ModelCase("bert_mgcrp_eval", "bert_base_mgcrp", _SMALL, train=False),
    ModelCase("bert_mgcrp_mask_padding", options={**_SMALL, **_MASKED}, steps=_ALL),
    ModelCase("bert_mgcrp_mask_padding_eval", options={**_SMALL, **_MASKED}, train=False),
    ModelCase(
        "bert_mgcrp_adamw",
        options=_SMALL,
        steps=("optimizer", "training"),
        # a decay that float32 holds exactly: Paddle stores the coefficient in float32
        recipe=Recipe(optimizer="adamw", schedule="cosine", weight_decay=2.0**-7),
    ),
    ModelCase(
        "bert_frozen_encoder",
        options={**_SMALL, "freeze_encoder": True},
        steps=("backward", "training"),
    ),
    ModelCase("bert_large_plain", "bert_large", _TINY, num_classes=4),
    ModelCase("bert_large_mgcrp", "bert_large_mgcrp", _TINY, num_classes=4),
    ModelCase("bert_plain_12_layers", "bert_base", _DEEP, quick=False),
    ModelCase("bert_mgcrp_12_layers", "bert_base_mgcrp", _DEEP, quick=False),
    ModelCase("bert_base_full", "bert_base", _FULL, quick=False),
    ModelCase("bert_base_mgcrp_full", "bert_base_mgcrp", _FULL, quick=False),
)

_REAL_VOCABULARY = {**_SMALL, "vocab_size": 30522, "num_hidden_layers": 2}
_LONG = Recipe(steps=50, total_steps=60, warmup_steps=6, learning_rate=5e-4)
_TRAINING = tuple(
    ModelCase(
        f"training_corpus_{name}",
        model,
        {**_REAL_VOCABULARY, **options},
        steps=("training",),
        num_classes=2,
        batch=Batch(length=24, corpus=True),
        recipe=recipe,
        # float32 runs of 50 steps part by chance (a ReLU that flips): 1e-5 to 5e-4 on both sides
        dtypes=("float64",),
        quick=False,
    )
    for name, model, options, recipe in (
        ("plain", "bert_base", {}, _LONG),
        ("mgcrp", "bert_base_mgcrp", {}, _LONG),
        ("mgcrp_mask_padding", "bert_base_mgcrp", _MASKED, _LONG),
        ("mgcrp_accumulated", "bert_base_mgcrp", {}, dataclasses.replace(_LONG, accumulate=2)),
    )
)

_TRAINER = tuple(
    TrainerCase(
        f"trainer_{head}_{processes}_process{'es' * (processes > 1)}",
        model,
        {**_REAL_VOCABULARY, "hidden_size": 20, "intermediate_size": 28, "pooling": pooling},
        steps=("training", "learning_rate"),
        num_classes=2,
        recipe=Recipe(warmup_steps=3),
        dtypes=("float64",),
        quick=False,
        processes=processes,
    )
    for processes in (1, 2)
    for head, model, pooling in (
        ("plain", "bert_base", "pooler"),
        ("mgcrp", "bert_base_mgcrp", "mgcrp_qk"),
    )
)

# float32: with two samples PyTorch's own distance is small by chance now and then, with eight not
_EIGHT = Batch((16, 9, 12, 7, 14, 5, 11, 16), 16)
_CHECKPOINT = (
    ModelCase(
        "checkpoint_plain",
        "bert_base",
        NO_DROPOUT,  # the encoder's sizes come from the checkpoint
        weights="checkpoint",
        train=False,
        batch=_EIGHT,
        quick=False,
    ),
    ModelCase(
        "checkpoint_mgcrp",
        "bert_base_mgcrp",
        NO_DROPOUT,
        weights="checkpoint",
        batch=_EIGHT,
        quick=False,
    ),
)

_SENTENCES = (
    ModelCase(
        "checkpoint_sentences",
        "bert_base_mgcrp",
        NO_DROPOUT,
        steps=("forward",),
        weights="checkpoint",
        train=False,
        batch=Batch(length=64, sentences=True),
        quick=False,
    ),
)

_POOLINGS = ("mgcrp", "mgcrp_qk", "gap", "gcp")
_FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens")


def _head(name: str, **options: Any) -> ModelCase:
    # a draw that no head of the list amplifies: rounding explains 2e-4 of a tensor at most
    return ModelCase(f"head_{name}", options={**_HEAD, **options}, batch=Batch(seed=10))


_HEADS = (
    *(
        _head(f"{pooling}_{fusion}", pooling=pooling, fusion=fusion)
        for pooling in _POOLINGS
        for fusion in _FUSIONS
    ),
    *(_head(pooling, pooling=pooling) for pooling in ("fc", "none", "score")),
    *(
        _head(f"mgcrp_norm_{norm}", pooling="mgcrp", normalization=norm)
        for norm in ("sqrt_d", "sqrt_t", "ln", "none")
    ),
    _head("mgcrp_qk_norm_none", pooling="mgcrp_qk", normalization="none"),
    *(
        _head(f"{pooling}_norm_epn", pooling=pooling, normalization="epn")
        for pooling in ("mgcrp", "mgcrp_qk")
    ),
    *(
        _head(f"{pooling}_{fusion}_masked", pooling=pooling, fusion=fusion, mask_padding=True)
        for pooling in _POOLINGS
        for fusion in ("sum_fc", "aggre_all")
    ),
    _head("mgcrp_bias", pooling="mgcrp", qkv_bias=True),
    _head("mgcrp_channel_centering", pooling="mgcrp", centering="channel"),
    _head("mgcrp_start_one", pooling="mgcrp", start="one"),
    _head("mgcrp_alpha", pooling="mgcrp", alpha=0.3),
    _head("mgcrp_two_iterations_two_values", pooling="mgcrp", num_iter=2, num_sv=2),
    _head("mgcrp_all_values", pooling="mgcrp", num_iter=4, num_sv=None),
    _head("gcp_true_covariance", pooling="gcp", centering="channel", covariance_scale="tokens"),
    _head("gcp_five_iterations", pooling="gcp", mpn_iter=5),
)

_NO_CLASS_TOKEN = tuple(
    ModelCase(
        f"words_only_{pooling}",
        options={"pooling": pooling, **HEAD, "head_dropout": 0.0},
        subject="words",
    )
    for pooling in _POOLINGS
)

CASES: tuple[Case, ...] = (
    *VALUES,
    *_TEXT,
    *_TRAINING,
    *_TRAINER,
    *_HEADS,
    *_NO_CLASS_TOKEN,
    *_CHECKPOINT,
    *_SENTENCES,
    *TEXT_MODELS,
    *CONV_MODELS,
    *TEXT_RUNS,
    *DOCUMENTS,
    *VISION,
    *CALLS,
    *UNSEEN_OPTIONS,
    *MODELS,
    *OTHER_KINDS,
    *STATES,
)

assert len({case.name for case in CASES}) == len(CASES)

GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {"bert4doc": BERT4DOC}
"""Name of a group -> what it shows -> patterns of the cases that show it."""
