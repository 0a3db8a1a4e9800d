"""Changes in the image pipeline that handed-over draws used to hide: each caught and placed."""

import pytest

from sot_paddle.data import (
    image_augment,
    image_batches,
    image_mixing,
    image_operations,
    image_randaugment,
    image_transforms,
)

LOWER = "slice(abs(erasure.top - 1), abs(erasure.top - 1) + "
TRAIN = image_augment.TrainTransform

CHANGES = [
    # the crop
    (image_augment, "draw_crop", "left, crop_height, crop_width)", "left, crop_width, crop_height)")
    + ("data_train_images", "crop"),
    (image_augment, "draw_crop", "width / height < ratio[0]", "height / width < ratio[0]")
    + ("data_crop_attempts_fail", "crop"),
    (TRAIN, "apply", "image.crop(corners)", "image.crop(corners[:2] + image.size)")
    + ("data_train_images", "pixels"),
    # the flip
    (TRAIN, "apply", "FLIP_LEFT_RIGHT", "FLIP_TOP_BOTTOM", "data_train_images", "pixels"),
    (TRAIN, "draw", "rng.random() < config.hflip", "rng.random() > config.hflip")
    + ("data_train_images", "flip"),
    # RandAugment
    (TRAIN, "__init__", "in config.mean)", "in config.std)", "data_train_images", "pixels"),
    (
        image_augment,
        "parse_randaugment",
        "_OPTIONS.items() if",
        "_OPTIONS.items() if key != 'inc' and",
    )
    + ("data_train_images", "operations"),
    (
        image_augment,
        "parse_randaugment",
        "_OPTIONS.items() if",
        "_OPTIONS.items() if key != 'mstd' and",
    )
    + ("data_train_images", "arguments"),
    (image_randaugment, "level_to_argument", "* 0.9 if negate", "* 0.8 if negate")
    + ("data_train_images", "arguments"),
    (image_operations, "level_to_argument", "256 - threshold if", "threshold if")
    + ("data_randaugment", "increasing/SolarizeIncreasing/0.0"),
    (image_operations, "level_to_argument", "-part * strongest if", "part * strongest if")
    + ("data_randaugment", "increasing/Rotate/3.7"),
    (image_operations, "level_to_argument", "part * 1.8 + 0.1", "part * 1.8")
    + ("data_randaugment", "plain/Color/2.6"),
    # mixing
    (image_mixing, "cut_box", "Box(*bounds)", "Box(*bounds[2:], *bounds[:2])")
    + ("data_cutmix", "cutmix box"),
    (image_mixing, "cut_box", "size, place + half", "size, place + half + 1")
    + ("data_cutmix", "cutmix box"),
    (image_batches, "draw_mix", "if cut else config.mixup", "if not cut else config.mixup")
    + ("data_train_images", "lam"),
    (
        image_batches,
        "mix_images",
        "np.rint(blend, out=blend)",
        "blend",
        "data_mixup",
        "mixed bytes",
    ),
    (image_batches, "mix_labels", "1.0 - smoothing + off", "1.0 - smoothing")
    + ("data_mixup", "targets"),
    (image_batches, "draw_mix", "epoch >= config.off_epoch", "epoch > config.off_epoch")
    + ("data_mixup", "3/lam"),
    (
        image_batches.TrainCollate,
        "__call__",
        "epoch, index = samples[0]",
        "epoch, index = samples[1]",
    )
    + ("data_train_images", "0/targets"),
    # normalisation and rectangles
    (image_batches, "normalize_batch", "for value in std", "for value in mean")
    + ("data_mixup", "images"),
    (image_batches, "draw_erasures", "height - rows + 1", "height - rows")
    + ("data_erasing", "erased"),
    (image_batches, "draw_erasures", "rows, columns = round", "columns, rows = round")
    + ("data_erasing", "erased"),
    (image_batches, "apply_erasures", "slice(erasure.top, erasure.top + ", LOWER)
    + ("data_train_images", "images"),
    # evaluation
    (image_transforms, "normalize_image", "np.array(mean", "np.array(std")
    + ("data_eval_transform", "0"),
    (image_transforms, "center_crop", "(0, size - width) //", "(0, size - width + 1) //")
    + ("data_eval_transform", "border of 3"),
    (image_transforms, "center_crop", "round((height - size) / 2)", "(height - size) // 2")
    + ("data_eval_transform", "0"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[4]} {change[3]}")
def test_a_change_is_caught_and_placed(caught, change) -> None:
    *planted, case, place = change
    assert caught(f"{case} data", *planted, "*")[0].removeprefix("epoch ").endswith(place)
