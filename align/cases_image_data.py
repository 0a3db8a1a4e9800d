"""Image data, image evaluation and the image trainer: cases as data; no logic."""

from __future__ import annotations

from align.image_case_kinds import DrawnImagesCase

_WHOLE = {"mixup": 0.0, "cutmix": 0.0}
IMAGE_DATA = (
    DrawnImagesCase("data_train_images"),
    DrawnImagesCase("data_mixup", {"cutmix": 0.0, "aa": None, "reprob": 0.0}),
    DrawnImagesCase("data_cutmix", {"mixup": 0.0, "no_aug": True}),
    DrawnImagesCase(
        "data_erasing",
        {**_WHOLE, "aa": "rand-m5-n3-mstd1.5", "reprob": 1.0, "remode": "rand", "recount": 3},
    ),
    DrawnImagesCase(
        "data_crop_attempts_fail",
        {**_WHOLE, "scale": (0.9, 1.0), "ratio": (0.9, 1.1), "train_interpolation": "bilinear"},
    ),
)
