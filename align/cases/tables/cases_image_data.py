"""The image trainer and evaluation: cases as data; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import (
    EpochSchedule,
    ImageBatch,
    ImageTrainerCase,
    Recipe,
)

_TRAINED = {
    "img_size": 16,
    "qkv_bias": True,  # of the encoder; the head has none
    "token_type": "resnet",  # with batch normalisation: evaluation in training mode would show
    "token_dim": 8,
    "embed_dim": 12,
    "depth": 1,
    "num_heads": 3,
    "mlp_ratio": 1.5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "head_dropout": 0.0,
}

_TRAINER = ImageTrainerCase(
    "trainer_images",
    "sot_tiny",
    _TRAINED,
    steps=("data", "training", "metric"),
    subject="images",
    num_classes=7,  # more than five, so that top-5 says something
    batch=ImageBatch(4, 16),
    recipe=Recipe(
        optimizer="adamw",
        learning_rate=5e-3,
        weight_decay=0.25,
        epsilon=1e-4,  # a bias before a batch norm has no gradient: Adam would magnify rounding
        betas=(0.8, 0.97),
        clip_norm=0.5,
        decay="vision",
        by_epoch=EpochSchedule(2, 1, 0, min_lr=1e-3, warmup_lr=2e-3, steps=4),
        ema_decay=0.42,  # the warm-up ends after six of eight updates, in the continued run
        ema_warmup=True,
    ),
    dtypes=("float64",),
    pictures=(18, 10),
    eval_metric="loss",  # smaller is better, and the average's falls from epoch to epoch
)

IMAGE_DATA = (_TRAINER,)
