"""Rates, and training runs of text by the real trainer, interrupted or in processes."""

from __future__ import annotations

import dataclasses

from align.cases.kinds.case_kinds import (
    EpochSchedule,
    Recipe,
    TrainerCase,
    value_cases,
)
from align.cases.tables.model_options import NO_DROPOUT

_BY_STEP = value_cases(
    "rate_values:by_step",
    {
        name: {
            "schedule": schedule,
            "learning_rate": rate,
            "warmup_steps": warmup,
            "total_steps": total,
        }
        for name, schedule, rate, warmup, total in (
            ("lr_linear_published", "linear", 2e-5, 0, 1342),
            ("lr_linear_warmup", "linear", 3e-5, 234, 2343),
            ("lr_linear_all_warmup", "linear", 1e-3, 50, 50),
            ("lr_cosine_warmup", "cosine", 5e-4, 17, 400),
            ("lr_constant_warmup", "constant", 1e-3, 31, 100),
            ("lr_constant", "constant", 1e-3, 0, 60),
            ("lr_cosine_all_warmup", "cosine", 1e-3, 50, 50),
            ("lr_cosine", "cosine", 2e-4, 0, 90),
            ("lr_linear_fraction_of_a_step", "linear", 1e-3, 1.5, 3),
            ("lr_cosine_fraction_of_a_step", "cosine", 1e-3, 1.5, 3),
        )
    },
    steps=("learning_rate",),
)

_BY_EPOCH = value_cases(
    "rate_values:by_epoch",
    {
        name: {"learning_rate": rate, "epochs": EpochSchedule(**epochs)}
        for name, rate, epochs in (
            ("lr_epochs_tiny_small", 1e-3, {}),
            ("lr_epochs_base", 5e-4, {}),
            ("lr_epochs_short", 2e-3, {"epochs": 20, "warmup_epochs": 3, "cooldown_epochs": 2}),
            (
                "lr_epochs_constant",
                1e-3,
                {"epochs": 12, "warmup_epochs": 3, "cooldown_epochs": 2, "kind": "constant"},
            ),
            (
                "lr_epochs_of_several_steps",
                2e-3,
                {"epochs": 9, "warmup_epochs": 2, "cooldown_epochs": 1, "steps": 3},
            ),
        )
    },
    steps=("learning_rate",),
)

_OPTIONS = {
    **NO_DROPOUT,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "vocab_size": 30522,
    "max_position_embeddings": 16,
    "pooling": "pooler",
    "q_dim": 5,
    "k_dim": 4,
}
_ACCUMULATED = Recipe(warmup_steps=1, accumulate=2, clip_norm=0.1)
_STEPS = ("training", "learning_rate")
_TRAINER = (
    *(
        TrainerCase(  # five batches in two steps: one is carried over to the next epoch
            name,
            "bert_base",
            _OPTIONS,
            steps=_STEPS,
            num_classes=2,
            recipe=recipe,
            dtypes=("float64",),
            quick=quick,
            rows=19,
            interrupted_after=stops,
            here=True,
        )
        for name, stops, recipe, quick in (
            ("trainer_interrupted_between_epochs", (2,), _ACCUMULATED, True),
            (
                "trainer_interrupted_twice",
                (1, 3),
                dataclasses.replace(
                    _ACCUMULATED,
                    optimizer="adamw",
                    schedule="cosine",
                    epsilon=1e-6,
                    weight_decay=2.0**-7,  # Paddle stores AdamW's coefficient in float32
                ),
                False,
            ),
        )
    ),
    TrainerCase(  # two batches, fewer than an optimizer step asks for
        "trainer_few_batches",
        "bert_base",
        _OPTIONS,
        steps=_STEPS,
        num_classes=2,
        recipe=Recipe(warmup_steps=1, accumulate=3, clip_norm=0.01),
        dtypes=("float64",),
        rows=7,
        here=True,
    ),
    TrainerCase(  # the last of three batches has three rows, shared by two processes
        "trainer_unequal_2_processes",
        "bert_base",
        _OPTIONS,
        steps=_STEPS,
        num_classes=2,
        recipe=Recipe(warmup_steps=1, accumulate=3, clip_norm=0.01),
        dtypes=("float64",),
        quick=False,
        processes=2,
        epochs=3,
        rows=11,
    ),
)

TEXT_RUNS = (*_BY_STEP, *_BY_EPOCH, *_TRAINER)
