"""Training runs of text by the real trainer, interrupted or in processes."""

from __future__ import annotations

import dataclasses

from align.cases.kinds.case_kinds import (
    Recipe,
    TrainerCase,
)
from align.cases.tables.model_options import NO_DROPOUT

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

TEXT_RUNS = _TRAINER
