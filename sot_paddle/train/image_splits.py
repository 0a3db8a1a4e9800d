"""The images of a run: training and evaluation sets, loaders, and what identifies them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from sot_paddle import distributed
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_augment import AugmentConfig
from sot_paddle.data.image_batches import TrainCollate
from sot_paddle.data.image_dataset import ImageEvalSet, ImageTrainSet
from sot_paddle.data.image_digits import load_digits
from sot_paddle.data.image_erasing import ErasingConfig
from sot_paddle.data.image_folder import (
    OTHER_NAMES,
    ImageSamples,
    check_class_count,
    read_class_folders,
    read_split,
    read_train_val,
)
from sot_paddle.data.image_loader import ImageLoader
from sot_paddle.data.image_mixing import MixConfig
from sot_paddle.data.image_sources import (
    FolderSource,
    ImageSource,
    cache_in_memory,
    first_corrupt,
)
from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.imagenet_a import require_synsets
from sot_paddle.distributed import say
from sot_paddle.train.feeding import EpochBatches
from sot_paddle.train.image_arguments import ImageEvalConfig, ImageTrainConfig

DIGITS = "digits"
"""Stands for a folder: scikit-learn's handwritten digits."""


@dataclass(frozen=True)
class ImageSplits:
    """The images that a training run uses.

    Attributes:
        train: augmented training images by (epoch, index).
        val: evaluation images by index.
        collate: training samples to a batch.
        train_print: fingerprint of the training images.
        val_print: fingerprint of the evaluation images.
    """

    train: ImageTrainSet
    val: ImageEvalSet
    collate: TrainCollate
    train_print: str
    val_print: str

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is a position in it."""
        return self.train.source.classes


def load_splits(config: ImageTrainConfig) -> ImageSplits:
    """List (and with ``cache`` decode) the images of both splits.

    Raises:
        DataError: the folder cannot be used, the classes of the splits or ``num_classes`` do not
            fit, or an option of the augmentation is impossible.
    """
    if config.data_dir == DIGITS:
        sources = load_digits(config.img_size)
    else:
        sources = tuple(FolderSource(part) for part in read_train_val(config.data_dir))
    if config.num_classes is not None:
        check_class_count(sources[0].classes, config.num_classes, config.data_dir)
    prints = [fingerprint(source) for source in sources]
    if config.cache and config.data_dir != DIGITS:
        sources = tuple(
            cache_in_memory(source, sharers=distributed.world_size()) for source in sources
        )
    if config.on_corrupt == "fatal" and config.data_dir != DIGITS:
        _require_decodable(sources[1])
    train = ImageTrainSet(sources[0], _augment(config), config.seed, config.on_corrupt)
    val = ImageEvalSet(sources[1], eval_transform(config), config.on_corrupt)
    return ImageSplits(train, val, _collate(config, len(train.source.classes)), *prints)


def _require_decodable(source: ImageSource) -> None:
    """Decode every validation image now: a damaged one would else end the run an epoch later."""
    say(f"checking {len(source)} validation images, as --on-corrupt is fatal")
    mine = range(distributed.rank(), len(source), distributed.world_size())
    reasons = distributed.gather(first_corrupt(source, mine))
    reason = next((reason for reason in reasons if reason), None)
    if reason:
        raise DataError(reason)


def load_evaluation(config: ImageEvalConfig, transform: EvalTransform) -> ImageEvalSet:
    """The images of an evaluation: ``val`` of the folder, or the class folders in it.

    Raises:
        DataError: the folder cannot be used, or is not ImageNet-A although it should be.
    """
    if config.data_dir == DIGITS:
        source: ImageSource = load_digits(transform.img_size)[1]
    else:
        source = FolderSource(_read_val(config.data_dir, bare=config.imagenet_a))
    if config.imagenet_a:
        require_synsets(source.classes, config.data_dir)
    return ImageEvalSet(source, transform, config.on_corrupt)


def _read_val(root: str, *, bare: bool) -> ImageSamples:
    """ImageNet-A comes as bare class folders; so may any set that is only evaluated."""
    place = Path(root)
    split = any((place / name).is_dir() for name in ("val", *OTHER_NAMES["val"]))
    if split or not place.is_dir() or ((place / "train").is_dir() and not bare):
        return read_split(root, "val")
    return read_class_folders(root)


def eval_transform(config: Any) -> EvalTransform:
    """The evaluation transform that a record's options describe."""
    return EvalTransform(
        img_size=config.img_size,
        crop_pct=config.crop_pct,
        interpolation=config.interpolation,
        mean=config.mean,
        std=config.std,
    )


def training_batches(config: ImageTrainConfig, count: int) -> EpochBatches:
    """The global batches of each epoch, shuffled by (seed, epoch); incomplete ones are left out.

    Raises:
        ValueError: there are fewer images than a batch has.
    """
    size = config.batch_size * distributed.world_size()
    if count < size:
        raise ValueError(
            f"{count} training images do not fill one batch of {size}: lower --batch-size"
        )
    order = EpochOrder(n=count, batch_size=size, seed=config.seed, drop_last=True)
    return functools.lru_cache(maxsize=2)(lambda epoch: order.at_epoch(epoch).batches())


def training_loader(
    splits: ImageSplits, workers: int, dtype: str
) -> Callable[[Any], TrainingLoader]:
    """A maker of loaders over any batch sampler of (epoch, index) keys."""

    def make(batches: Any) -> TrainingLoader:
        return TrainingLoader(splits.train, batches, splits.collate, workers, dtype)

    return make


class TrainingLoader(ImageLoader):
    """Loader of training batches in the model's dtype.

    Args:
        dataset: training images.
        batches: yields a list of keys per batch.
        collate: puts a batch together.
        workers: processes that decode; 0 for none.
        dtype: of the images that the model gets.
    """

    def __init__(
        self,
        dataset: ImageTrainSet,
        batches: Any,
        collate: TrainCollate,
        workers: int,
        dtype: str = "float32",
    ) -> None:
        super().__init__(dataset, batches, collate, workers)
        self._dtype = dtype

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        """One pass over the batch sampler."""
        for batch in super().__iter__():
            yield {**batch, "images": batch["images"].astype(self._dtype)}


def fingerprint(source: ImageSource) -> str:
    """Hash of class names, labels and file names (pixels, for images in memory)."""
    digest = hashlib.sha256("\n".join(source.classes).encode())
    digest.update(np.ascontiguousarray(source.labels).tobytes())
    if isinstance(source, FolderSource):
        digest.update("\n".join(source.samples.files).encode())
    else:
        for index in range(len(source)):
            digest.update(np.asarray(source.image(index)).tobytes())
    return digest.hexdigest()[:32]


def _augment(config: ImageTrainConfig) -> AugmentConfig:
    return AugmentConfig(
        img_size=config.img_size,
        scale=config.scale,
        ratio=config.ratio,
        interpolation=config.train_interpolation,
        hflip=config.hflip,
        auto_augment=config.aa,
        color_jitter=config.color_jitter,
        no_aug=config.no_aug,
        mean=config.mean,
        std=config.std,
    )


def _collate(config: ImageTrainConfig, num_classes: int) -> TrainCollate:
    mix = None
    if config.mixes:
        mix = MixConfig(
            num_classes,
            mixup=config.mixup,
            cutmix=config.cutmix,
            prob=config.mixup_prob,
            switch_prob=config.mixup_switch_prob,
            smoothing=config.smoothing,
            off_epoch=config.mixup_off_epoch,
        )
    erasing = ErasingConfig(config.reprob, config.remode, config.recount)
    return TrainCollate(
        mix,
        erasing if config.reprob and not config.no_aug else None,
        config.seed,
        config.mean,
        config.std,
    )
