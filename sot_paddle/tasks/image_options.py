"""Options of image training and evaluation: frozen records; image_flags.py fills them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sot_paddle.config import check_finite, near_names
from sot_paddle.data.image_transforms import IMAGENET_MEAN, IMAGENET_STD
from sot_paddle.registry import PUBLISHED_NAMES, TIMM_NAMES, list_models

_OTHER_NAMES: Mapping[str, str] = {**PUBLISHED_NAMES, **TIMM_NAMES}
"""The originals' and timm's names of our models."""

_MAY_DIFFER = frozenset(
    {
        "data_dir",
        "output_dir",
        "workers",
        "eval_batch_multiplier",
        "early_stopping_patience",
        "eval_all_checkpoints",
        "log_interval",
        "recovery_interval",
        "save_epochs",
        "save_total_limit",
        "keep_states",
        "overwrite_output_dir",
        "resume",
        "cpu",
        "cache",
        "on_corrupt",
        "crop_pct",
        "interpolation",
    }
)
"""Options that do not enter a training step, so that a resumed run may change them."""


def _option(default: Any, text: str) -> Any:
    if isinstance(default, dict):
        return field(default_factory=dict, metadata={"help": text})
    return field(default=default, metadata={"help": text})


def registry_model(name: str) -> str:
    """The registry name of an image model, for its own or an original's name.

    Raises:
        ValueError: no such image model; the near names are listed.
    """
    found = _OTHER_NAMES.get(name, name)
    if found in list_models("vision"):
        return found
    if found in list_models("text"):
        raise ValueError(f"{name} is a text model: tools/train_glue.py trains it")
    known = [*list_models("vision"), *_OTHER_NAMES]
    raise ValueError(f"unknown image model {name!r}; {near_names(name, known)}")


@dataclass(frozen=True)
class ImageTrainConfig:
    """Every option of ``tools/train_image.py``.

    Names and defaults of the recipe are those of the original's ``main.py`` (A.9), which has
    timm's, but for three that are its scripts' for SoT-Tiny and SoT-Small: ``lr`` 1e-3,
    ``weight_decay`` .03 and ``batch_size`` 128 (``main.py`` alone: 5e-4, .05 and 64).
    """

    data_dir: str = _option("", "folder with train/<class>/* and val/<class>/*, or digits")
    model: str = _option("", "a name of ours, of the original or of timm")
    model_options: dict = _option({}, "options of the model by name (--set, --model-option)")
    num_classes: int | None = _option(None, "outputs; the number of class folders if not given")
    img_size: int = _option(224, "side of the training images in pixels")
    initial_checkpoint: str = _option("", "weights to start from, averaged ones preferred")
    output_dir: str = _option("", "folder of one run at a time [output/train/MODEL-SIZE]")

    batch_size: int = _option(128, "images per process and forward pass")
    gradient_accumulation_steps: int = _option(1, "forward passes per optimizer step")
    opt: str = _option("adamw", "optimizer: adamw")
    lr: float = _option(1e-3, "peak learning rate; it is not scaled by the batch")
    weight_decay: float = _option(0.03, "decay of all but biases and one-axis parameters")
    opt_eps: float = _option(1e-8, "epsilon of the optimizer")
    opt_betas: tuple[float, ...] = _option((0.9, 0.999), "decay of the two moments")
    clip_grad: float | None = _option(None, "global gradient norm limit, none if not given")
    sched: str = _option("cosine", "cosine, or constant after the warm-up; by epoch")
    epochs: int = _option(300, "epochs of the cosine, warm-up included")
    warmup_epochs: int = _option(5, "epochs of linear warm-up")
    cooldown_epochs: int = _option(10, "epochs at --min-lr after the cosine")
    min_lr: float = _option(1e-5, "rate at the end of the cosine")
    warmup_lr: float = _option(1e-6, "rate of the first epoch")
    max_steps: int = _option(-1, "optimizer steps; above 0 it cuts the run short")
    drop: float = _option(0.0, "dropout")
    drop_path: float = _option(0.1, "stochastic depth of the last block")
    loss_add: bool = _option(False, "add the losses of both classifiers (fusion sum_loss)")

    no_aug: bool = _option(False, "resize and crop the centre instead of the next six")
    scale: tuple[float, ...] = _option((0.08, 1.0), "area share of the random crop")
    ratio: tuple[float, ...] = _option((0.75, 4.0 / 3.0), "aspect ratio of the random crop")
    train_interpolation: str = _option("random", "random (bilinear or bicubic), or one by name")
    hflip: float = _option(0.5, "probability of a horizontal flip")
    color_jitter: float = _option(0.4, "colour jitter; has no effect beside --aa")
    aa: str | None = _option("rand-m9-mstd0.5-inc1", "RandAugment policy, none for none")
    reprob: float = _option(0.25, "probability of random erasing")
    remode: str = _option("pixel", "const, rand or pixel")
    recount: int = _option(1, "areas that random erasing erases")
    mixup: float = _option(0.8, "alpha of mixup, 0 for none")
    cutmix: float = _option(1.0, "alpha of cutmix, 0 for none")
    mixup_prob: float = _option(1.0, "probability of mixing a batch")
    mixup_switch_prob: float = _option(0.5, "probability of cutmix where both are on")
    mixup_off_epoch: int = _option(0, "first epoch without mixing, 0 for never")
    smoothing: float = _option(0.1, "label smoothing")

    mean: tuple[float, ...] = _option(IMAGENET_MEAN, "channel means that are subtracted")
    std: tuple[float, ...] = _option(IMAGENET_STD, "channel deviations that are divided by")
    interpolation: str = _option("bicubic", "resizing in evaluation")
    crop_pct: float = _option(0.875, "share of the resized image that evaluation crops")
    on_corrupt: str = _option(
        "fatal", "an image that cannot be decoded: fatal, or skip (training takes the next one)"
    )
    cache: bool = _option(False, "decode every image once and keep it in memory")

    model_ema_decay: float = _option(0.99996, "decay of the moving average, which is always on")
    eval_metric: str = _option("top1", "selects the best: top1, top5 or loss, of the average")
    sync_bn: bool = _option(False, "batch statistics over all processes")
    amp: bool = _option(False, "mixed precision (GPU)")
    amp_dtype: str = _option("float16", "float16 or bfloat16")
    dtype: str = _option("float32", "float32, or float64 for checks")
    cpu: bool = _option(False, "use the CPU even where there is a GPU")
    seed: int = _option(42, "random seed")
    workers: int = _option(4, "processes that read images, 0 for none")
    eval_batch_multiplier: int = _option(1, "batches of evaluation are larger by this")
    log_interval: int = _option(50, "optimizer steps between log lines")
    recovery_interval: int = _option(0, "optimizer steps between checkpoints within an epoch")
    save_epochs: int = _option(1, "epochs between checkpoints")
    save_total_limit: int | None = _option(3, "checkpoints to keep, none for all")
    keep_states: int = _option(2, "checkpoints that keep their optimizer state for resuming")
    early_stopping_patience: int | None = _option(None, "stop after so many evaluations in vain")
    eval_all_checkpoints: bool = _option(False, "evaluate every saved checkpoint at the end")
    resume: str = _option("auto", "auto (continue what is in the folder), never, or a checkpoint")
    overwrite_output_dir: bool = _option(
        False,
        "start afresh: remove an older run, refused where there is anything else",
    )

    do_train = True

    def __post_init__(self) -> None:
        if not self.data_dir:
            raise ValueError("DATA is required: a folder with train/ and val/, or the word digits")
        if not self.model:
            raise ValueError(f"--model is required: one of {', '.join(list_models('vision'))}")
        object.__setattr__(self, "model", registry_model(self.model))
        for name in ("opt_betas", "scale", "ratio", "mean", "std"):
            object.__setattr__(self, name, tuple(float(part) for part in getattr(self, name)))
        if not self.output_dir:
            folder = Path("output") / "train" / f"{self.model}-{self.img_size}"
            object.__setattr__(self, "output_dir", str(folder))
        check_finite(self)
        check_choices(self, _CHOICES)
        check_ranges(self, _RANGES)
        self._check_combinations()

    def _check_combinations(self) -> None:
        check_lengths(self, {"opt_betas": 2, "scale": 2, "ratio": 2})
        if not all(0.0 <= beta < 1.0 for beta in self.opt_betas):
            raise ValueError(f"opt_betas must be in [0, 1), got {self.opt_betas}")
        if self.max_steps == 0 or self.max_steps < -1:
            raise ValueError(f"max_steps must be positive, or -1 for epochs, got {self.max_steps}")
        if self.mixes and self.batch_size % 2:
            raise ValueError(
                f"mixup and cutmix mix a batch with itself reversed and need an even batch_size, "
                f"got {self.batch_size}: change -b, or give --mixup 0 --cutmix 0"
            )
        if self.amp and self.dtype != "float32":
            raise ValueError(f"mixed precision needs dtype float32, got {self.dtype}")
        fusion = self.model_options.get("fusion", "sum_loss")
        if self.loss_add and fusion != "sum_loss":
            raise ValueError(f"--loss_add is for fusion sum_loss, got fusion {fusion!r}: drop one")
        named = {"img_size": "--img-size", "drop_rate": "--drop", "drop_path_rate": "--drop-path"}
        for name, flag in named.items():
            if name in self.model_options:
                raise ValueError(f"the model option {name} is given by {flag}")

    @property
    def mixes(self) -> bool:
        """Whether batches are mixed."""
        return (self.mixup > 0 or self.cutmix > 0) and self.mixup_prob > 0

    @property
    def overrides(self) -> dict[str, Any]:
        """Options for ``create_model`` beside the number of classes."""
        options = dict(self.model_options)
        if self.loss_add:
            options["fusion"] = "sum_loss"
        return options | {
            "img_size": self.img_size,
            "drop_rate": self.drop,
            "drop_path_rate": self.drop_path,
        }

    def identity(self) -> dict[str, Any]:
        """The options that decide what training computes; a resumed run must repeat them."""
        values = dataclasses.asdict(self)
        return {key: value for key, value in values.items() if key not in _MAY_DIFFER}


@dataclass(frozen=True)
class ImageEvalConfig:
    """Every option of ``tools/eval_image.py``; None is filled in from the weights' folder."""

    data_dir: str = _option("", "folder with val/<class>/*, or of the classes, or digits")
    model: str = _option("", "as in training; a trained folder knows it")
    model_options: dict = _option({}, "options of the model by name (--set, --model-option)")
    weights: str = _option("", "a trained folder, a converted file, or PyTorch's")
    no_ema: bool = _option(False, "the raw weights of a checkpoint instead of their average")
    imagenet_a: bool = _option(False, "200 classes of ImageNet-A out of 1000 outputs")
    num_classes: int | None = _option(
        None, "outputs of the model; the number of class folders if not given, 1000 for ImageNet-A"
    )
    img_size: int | None = _option(None, "side of the images in pixels [224]")
    crop_pct: float | None = _option(None, "share of the resized image that is cropped [0.875]")
    interpolation: str | None = _option(None, "resizing [bicubic]")
    mean: tuple[float, ...] | None = _option(None, "channel means [ImageNet's]")
    std: tuple[float, ...] | None = _option(None, "channel deviations [ImageNet's]")
    batch_size: int = _option(256, "images per process and forward pass")
    workers: int = _option(4, "processes that read images, 0 for none")
    on_corrupt: str = _option("fatal", "an image that cannot be decoded: fatal, or skip it")
    dtype: str = _option("float32", "float32, or float64 for checks")
    cpu: bool = _option(False, "use the CPU even where there is a GPU")
    output: str = _option("", "file for the scores (JSON)")
    predictions: str = _option("", "file for the prediction of each image (CSV)")

    def __post_init__(self) -> None:
        if not self.data_dir:
            raise ValueError("DATA is required: a folder with val/, or the word digits")
        if not self.weights:
            raise ValueError("--weights is required: a trained folder, or a checkpoint file")
        if self.model:
            object.__setattr__(self, "model", registry_model(self.model))
        for name in ("mean", "std"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(float(part) for part in getattr(self, name)))
        check_finite(self)
        check_choices(self, _CHOICES)
        check_ranges(self, _RANGES)


def check_choices(config: Any, choices: Mapping[str, tuple]) -> None:
    """Refuse a value that is not among an option's choices (None passes)."""
    for name, allowed in choices.items():
        value = getattr(config, name, None)
        if value is not None and value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_ranges(config: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse a number outside of its option's closed range (None passes)."""
    for name, (lowest, highest) in ranges.items():
        value = getattr(config, name, None)
        if value is not None and not lowest <= value <= highest:
            bound = f"at least {lowest}" if highest == _ANY else f"from {lowest} to {highest}"
            raise ValueError(f"{name} must be {bound}, got {value}")


def check_lengths(config: Any, lengths: Mapping[str, int]) -> None:
    """Refuse a list of another length than its option has."""
    for name, length in lengths.items():
        value = getattr(config, name)
        if len(value) != length:
            raise ValueError(f"{name} must be {length} numbers, got {len(value)}")


_ANY = float("inf")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "opt": ("adamw",),
    "sched": ("cosine", "constant"),
    "on_corrupt": ("fatal", "skip"),
    "eval_metric": ("top1", "top5", "loss"),
    "amp_dtype": ("float16", "bfloat16"),
    "dtype": ("float32", "float64"),
}
_RANGES: Mapping[str, tuple[float, float]] = {
    "num_classes": (2, _ANY),
    "img_size": (8, _ANY),
    "batch_size": (1, _ANY),
    "gradient_accumulation_steps": (1, _ANY),
    "lr": (0, _ANY),
    "weight_decay": (0, _ANY),
    "opt_eps": (0, _ANY),
    "clip_grad": (0, _ANY),
    "epochs": (1, _ANY),
    "warmup_epochs": (0, _ANY),
    "cooldown_epochs": (0, _ANY),
    "min_lr": (0, _ANY),
    "warmup_lr": (0, _ANY),
    "hflip": (0, 1),
    "color_jitter": (0, _ANY),
    "reprob": (0, 1),
    "recount": (1, _ANY),
    "mixup": (0, _ANY),
    "cutmix": (0, _ANY),
    "mixup_prob": (0, 1),
    "mixup_switch_prob": (0, 1),
    "mixup_off_epoch": (0, _ANY),
    "smoothing": (0, 0.999),
    "crop_pct": (0.01, 1),
    "model_ema_decay": (0, 0.9999999),
    "seed": (0, _ANY),
    "workers": (0, _ANY),
    "eval_batch_multiplier": (1, _ANY),
    "log_interval": (1, _ANY),
    "recovery_interval": (0, _ANY),
    "save_epochs": (1, _ANY),
    "save_total_limit": (1, _ANY),
    "keep_states": (1, _ANY),
    "early_stopping_patience": (1, _ANY),
}
