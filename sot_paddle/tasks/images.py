"""Image classification: folders of classes, or scikit-learn's digits.

Shape legend: B images, K classes, M examples.
"""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from sot_paddle import distributed
from sot_paddle.data.batches import EpochBatches
from sot_paddle.data.image_dataset import (
    DIGITS,
    BatchWorkers,
    Collate,
    ImageEvalSet,
    ImageSource,
    ImageTrainSet,
    TrainCollate,
    collate_as,
    collate_evaluation,
    load_digits,
)
from sot_paddle.data.image_folder import (
    OTHER_NAMES,
    FolderSource,
    check_class_count,
    is_bare,
    read_class_folders,
    read_split,
    read_train_val,
    split_classes,
)
from sot_paddle.data.image_mixing import ErasingConfig, MixConfig
from sot_paddle.data.image_transforms import AugmentConfig, EvalTransform
from sot_paddle.data.imagenet_a import require_synsets
from sot_paddle.data.splits import BatchLoader, ShuffledSplit
from sot_paddle.distributed import say
from sot_paddle.options import part_of
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig
from sot_paddle.tasks.losses import classification_loss, mean_loss
from sot_paddle.tasks.task import Outputs, Predictions, Task

TOP = 5
"""The second accuracy counts a label among the best five, where there are more classes."""


@dataclass(frozen=True)
class ImageSplit(ShuffledSplit):
    """Images of one split, in training by (epoch, index).

    The fingerprint is of the images and, for an evaluation, of its transform; "" when no run asks.
    """

    images: ImageTrainSet | ImageEvalSet
    batch_size: int
    workers: int = 0
    dtype: str = "float32"
    fingerprint: str = ""
    collate: Collate = collate_evaluation

    drop_last = True

    def __len__(self) -> int:
        return len(self.images)

    @property
    def labels(self) -> np.ndarray:
        """(M,) classes of the images."""
        return self.images.source.labels

    def load(self, batches: Iterable[Sequence[Any]]) -> BatchLoader:
        """Batches of ``images`` (B, 3, S, S) and ``labels`` (B,), or (B, K) where mixed.

        They come from this process or from worker processes.
        """
        images, collate = self.images, functools.partial(collate_as, self.dtype, self.collate)
        pool = BatchWorkers(images, collate, self.workers).batches if self.workers else None
        return BatchLoader(lambda keys: collate([images[key] for key in keys]), batches, pool)


@dataclass(frozen=True)
class ImageTask(Task):
    """Images of K classes; ``tools/eval_image.py`` predicts, not the training."""

    title: str
    batch_size: int
    metric: str
    smoothing: float
    train: ImageSplit
    dev: dict[str, ImageSplit]
    maximise: bool

    unit = "images"
    by_epoch = True
    tie_breaker = "loss"

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is a position in it."""
        return self.train.images.source.classes

    @property
    def num_outputs(self) -> int:
        """K."""
        return len(self.classes)

    def order(self, seed: int) -> EpochBatches:
        """The global batches of each epoch, shuffled by (seed, epoch); incomplete ones left out.

        Raises:
            ValueError: there are fewer images than a batch has.
        """
        count, size = len(self.train), self.batch_size * distributed.world_size()
        if count < size:
            raise ValueError(
                f"{count} training images do not fill one batch of {size}: lower --batch-size"
            )
        return super().order(seed)

    def loss(self, outputs: Outputs, labels: paddle.Tensor) -> paddle.Tensor:
        """Cross-entropy, of soft targets where images are mixed or labels smoothed."""
        return classification_loss(outputs, labels, smoothing=self.smoothing)

    def score(self, split: str, predictions: Predictions) -> dict[str, float]:
        """Accuracies in percent and the mean loss."""
        return score(predictions.outputs, predictions.labels)


def score(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracies in percent and the mean loss of logits (M, K) and labels (M,).

    Of equal logits the first wins.

    Returns:
        ``top1``; ``top5`` where there are more than five classes; ``loss``, the cross-entropy.
    """
    label_logits = logits[np.arange(len(labels)), labels][:, None]  # (M, 1)
    earlier = np.arange(logits.shape[1])[None, :] < labels[:, None]
    ranks = ((logits > label_logits) | ((logits == label_logits) & earlier)).sum(axis=1)  # 0: a hit
    scores = {"top1": 100.0 * float(np.mean(ranks == 0))}
    if logits.shape[1] > TOP:
        scores["top5"] = 100.0 * float(np.mean(ranks < TOP))
    return scores | {"loss": mean_loss(logits, labels)}


def load_images(config: ImageTrainConfig) -> ImageTask:
    """List the images of both splits.

    Raises:
        ValueError: the folder cannot be used, the classes of the splits or ``num_classes`` do not
            fit, an option of the augmentation is impossible, or ``top5`` of five classes or fewer.
    """
    digits = _is_digits(config.data_dir)
    sources = load_digits(config.img_size) if digits else _read_train_val(config)
    classes = sources[0].classes
    if config.num_classes is not None:
        check_class_count(classes, config.num_classes, config.data_dir)
    if config.eval_metric == "top5" and len(classes) <= TOP:
        raise ValueError(f"--eval-metric top5 needs more than five classes, got {len(classes)}")
    prints = [fingerprint(source) for source in sources]
    if not digits:
        _require_decodable(sources[1])
    augment = part_of(config, AugmentConfig, interpolation="train_interpolation", auto_augment="aa")
    train = ImageSplit(
        ImageTrainSet(sources[0], augment, config.seed),
        config.batch_size,
        config.workers,
        config.dtype,
        prints[0],
        _collate(config, len(classes)),
    )
    val = ImageSplit(
        ImageEvalSet(sources[1], part_of(config, EvalTransform)),
        config.batch_size * config.eval_batch_multiplier,
        config.workers,
        config.dtype,
        f"{prints[1]} {config.crop_pct} {config.interpolation}",
    )
    title = DIGITS if digits else Path(config.data_dir).resolve().name
    metric, maximise = config.eval_metric, config.eval_metric != "loss"
    return ImageTask(
        title, config.batch_size, metric, config.smoothing, train, {"val": val}, maximise
    )


def load_evaluation(config: ImageEvalConfig, transform: EvalTransform) -> ImageEvalSet:
    """The images of an evaluation: ``val`` of the folder, or the class folders in it.

    Raises:
        ValueError: the folder cannot be used, or is not ImageNet-A although it should be.
    """
    if _is_digits(config.data_dir):
        source: ImageSource = load_digits(transform.img_size)[1]
    else:
        source = _read_val(config.data_dir)
    if config.imagenet_a:
        require_synsets(source.classes, config.data_dir)
    return ImageEvalSet(source, transform)


def fingerprint(source: ImageSource) -> str:
    """Hash of class names, labels and file names (pixels, for images in memory)."""
    digest = hashlib.sha256("\n".join(source.classes).encode())
    digest.update(np.ascontiguousarray(source.labels).tobytes())
    if isinstance(source, FolderSource):
        digest.update("\n".join(source.files).encode())
    else:
        for index in range(len(source)):
            digest.update(np.asarray(source.image(index)).tobytes())
    return digest.hexdigest()[:32]


def _is_digits(root: str) -> bool:
    """Whether DATA is the word for the digits, and no data set of that name is there."""
    splits = ("train", "val", *OTHER_NAMES["val"])
    return root == DIGITS and not any((Path(root) / split).is_dir() for split in splits)


def _read_train_val(config: ImageTrainConfig) -> tuple[FolderSource, FolderSource]:
    """Both splits of a folder; bare class folders are split here."""
    if not is_bare(Path(config.data_dir)):
        return read_train_val(config.data_dir)
    whole = read_class_folders(config.data_dir)
    train, val = split_classes(whole, config.val_fraction, config.seed)
    say(
        f"{config.data_dir} has no train and val: {len(val)} of its {len(whole)} images are for "
        f"validation, of each class {config.val_fraction:.0%} by seed {config.seed} "
        "(--val-fraction)"
    )
    return train, val


def _require_decodable(source: ImageSource) -> None:
    """Decode every validation image now: a damaged one would else end the run an epoch later."""
    say(f"checking {len(source)} validation images")

    def damage(index: int) -> str:
        try:
            source.image(index)
        except ValueError as error:
            return str(error)
        return ""

    mine = range(distributed.rank(), len(source), distributed.world_size())
    # decoding silences warnings, whose filters are the process's: they are put back after the last
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        reason = next(filter(None, pool.map(damage, mine)), "")
    reasons = list(filter(None, distributed.gather(reason)))
    if reasons:
        raise ValueError(reasons[0])


def _read_val(root: str) -> FolderSource:
    """ImageNet-A comes as bare class folders; so may any set that is only evaluated."""
    if not is_bare(Path(root)):
        return read_split(root, "val")
    listed = read_class_folders(root)
    say(
        f"{root} has no val: all {len(listed)} images of its class folders are evaluated; where a "
        "training split this folder, those that it learned from are among them"
    )
    return listed


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
    erasing = ErasingConfig(config.reprob) if config.reprob and not config.no_aug else None
    return TrainCollate(mix, erasing, config.seed, config.mean, config.std)
