"""Image data, the image trainer and evaluation: cases as data; no logic."""

from __future__ import annotations

from align.cases.kinds.case_kinds import (
    EpochSchedule,
    ImageBatch,
    ImageTrainerCase,
    Recipe,
    value_cases,
)

_PIXELS = (
    *value_cases(
        "pixel_values:evaluation_transform",
        {
            "data_eval_transform": {},
            "data_eval_transform_224": {"size": 224},
            "data_eval_transform_whole": {"size": 48, "crop_pct": 1.0},
        },
    ),
    *value_cases("pixel_values:operations", {"data_randaugment": {}}),
)

_WHOLE = {"mixup": 0.0, "cutmix": 0.0}
_DRAWN = value_cases(
    "drawn_images:drawn_images",
    {
        "data_train_images": {},
        # of a picture of one pixel, crops of which one side rounds to no pixel
        "data_mixup": {
            "cutmix": 0.0,
            "aa": None,
            "reprob": 0.0,
            "mixup_off_epoch": 3,
            "scale": (0.2, 0.4),
        },
        "data_cutmix": {"mixup": 0.0, "no_aug": True, "train_interpolation": "bicubic"},
        "data_erasing": {
            **_WHOLE,
            "aa": "rand-m5-n3-mstd4",  # magnitudes beyond both ends
            "mean": (0.3, 0.6, 1.02),  # the last is no colour: the fill stops at 255
            "reprob": 1.0,
            "remode": "rand",
            "recount": 3,
        },
        "data_crop_attempts_fail": {
            **_WHOLE,
            "scale": (0.9, 1.0),
            "ratio": (0.9, 1.1),
            "train_interpolation": "bilinear",
            "reprob": 0.8,
            "remode": "const",
            "epochs": 2,
        },
        # no crop of the whole area fits unless it has the picture's own shape: the central is left
        "data_crop_whole_area": {
            **_WHOLE,
            "scale": (1.0, 1.0),
            "aa": None,
            "color_jitter": 0.0,
            "reprob": 0.0,
        },
    },
)

_BOXES = value_cases("drawn_images:wide_boxes", {"data_wide_boxes": {}})

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

IMAGE_DATA = (*_PIXELS, *_DRAWN, *_BOXES, _TRAINER)
