"""Cases of the parts of a training run of text: updates, rates and what feeds the processes."""

from __future__ import annotations

import dataclasses

from align.cases.kinds.case_kinds import (
    EpochSchedule,
    EpochScheduleCase,
    Recipe,
    ScheduleCase,
    TrainerCase,
)
from align.cases.kinds.run_kinds import FeedingCase, UpdateCase

_BETAS = (0.8, 0.95)
_EXACT_DECAY = 2.0**-7  # Paddle stores AdamW's coefficient in float32
_CLIPPED = Recipe(clip_norm=5.0)

_UPDATES = (
    UpdateCase("update_below_the_clip", _CLIPPED, norm=0.5),
    # torch's factor c / (norm + 1e-6) is below 1 from c - 1e-6 on
    UpdateCase("update_just_below_the_clip", _CLIPPED, norm=1.0 - 1e-7),
    UpdateCase("update_at_the_clip", _CLIPPED, norm=1.0),
    UpdateCase("update_without_bias_correction", Recipe(correct_bias=False, clip_norm=None)),
    UpdateCase("update_other_betas", Recipe(betas=_BETAS, epsilon=1e-6, clip_norm=None)),
    UpdateCase(
        "update_reloaded",
        Recipe(betas=_BETAS, epsilon=1e-6, clip_norm=None),
        reloaded=True,
    ),
    # epsilon and betas are those that each side's class has when none are given
    UpdateCase("update_default_options", Recipe(betas=None, epsilon=None, clip_norm=None)),
    UpdateCase(
        "update_vision_decay",
        Recipe(decay="vision", optimizer="adamw", weight_decay=_EXACT_DECAY, clip_norm=None),
    ),
    UpdateCase(
        "update_adamw_other_betas",
        Recipe(
            optimizer="adamw",
            betas=_BETAS,
            epsilon=1e-6,
            weight_decay=_EXACT_DECAY,
            clip_norm=None,
        ),
    ),
)

_RATES = (
    ScheduleCase("lr_constant", "constant", 1e-3, 0, 60),
    ScheduleCase("lr_cosine", "cosine", 2e-4, 0, 90),
    EpochScheduleCase(
        "lr_epochs_constant",
        1e-3,
        EpochSchedule(epochs=12, warmup_epochs=3, cooldown_epochs=2, kind="constant"),
    ),
    EpochScheduleCase(
        "lr_epochs_of_several_steps",
        2e-3,
        EpochSchedule(epochs=9, warmup_epochs=2, cooldown_epochs=1, steps=3),
    ),
)

_FEEDING = (
    FeedingCase("data_feeding_unequal_shares"),
    FeedingCase("data_feeding_a_share_of_nothing", rows=13, batch=6, processes=3, pad="longest"),
    FeedingCase("data_feeding_resumed", epochs=3, start=(1, 1), pad_id=3),
)

_OPTIONS = {
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "vocab_size": 30522,
    "max_position_embeddings": 16,
    "pooling": "pooler",
    "q_dim": 5,
    "k_dim": 4,
    "head_dropout": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
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
                    weight_decay=_EXACT_DECAY,
                ),
                False,
            ),
        )
    ),
    TrainerCase(  # the last of three batches has three rows, shared by two processes
        "trainer_unequal_2_processes",
        "bert_base",
        _OPTIONS,
        steps=_STEPS,
        num_classes=2,
        recipe=Recipe(warmup_steps=1, accumulate=3, clip_norm=0.1),
        dtypes=("float64",),
        quick=False,
        processes=2,
        epochs=3,
        rows=11,
    ),
)

TEXT_RUNS = (*_UPDATES, *_RATES, *_FEEDING, *_TRAINER)
