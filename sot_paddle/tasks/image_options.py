"""Options of image training (``tools/train_image.py``) and evaluation (``tools/eval_image.py``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sot_paddle.config import near_names
from sot_paddle.data.image_transforms import IMAGENET_MEAN, IMAGENET_STD
from sot_paddle.options import PrecisionOptions, RunOptions, changeable, option, record

_VB = ("-vb", "--validation-batch-size-multiplier")
_WEIGHTS = ("--eval-checkpoint", "--checkpoint")


def registry_model(name: str) -> str:
    """The registry name of an image model, for its own or an original's name.

    Raises:
        ValueError: no such image model; the near names are listed.
    """
    from sot_paddle.registry import PUBLISHED_NAMES, TIMM_NAMES, list_models  # loads Paddle

    of_originals = {**PUBLISHED_NAMES, **TIMM_NAMES}
    registry_name = of_originals.get(name, name)
    if registry_name in list_models("vision"):
        return registry_name
    if registry_name in list_models("text"):
        raise ValueError(f"{name} is a text model: tools/train_glue.py trains it")
    names = [*list_models("vision"), *of_originals]
    raise ValueError(f"unknown image model {name!r}; {near_names(name, names)}")


@record
class ImageOptions(PrecisionOptions):
    """What training and evaluation can both be asked for."""

    positional = {"data_dir": "DATA", "model": "MODEL"}
    rest = "model_options"
    no_effect = {
        "--model-ema": "the moving average is always on, as in the original",
        "--model-ema-force-cpu": "the moving average is where the model is",
        "--pin-mem": "Paddle's loader decides about it",
        "--no-prefetcher": "normalisation and mixing are part of the loader",
        "--use-multi-epochs-loader": "there is one loader",
        "--channels-last": "the layout is Paddle's",
        "--num-gpu N": "one process uses one GPU; start several with paddle.distributed.launch",
        "--local-rank N": "processes come from paddle.distributed.launch",
    }

    data_dir: str = changeable("", "folder of train/<class>/*, val/<class>/* or <class>/*; digits")
    model: str = option("", "a name of ours, of the original or of timm; trained folders know it")
    model_options: dict = option({}, "options of the model by name (--set)")
    num_classes: int | None = option(None, "outputs, the number of folders if not given", low=2)
    cpu: bool = changeable(False, "use the CPU even where there is a GPU", flags=("--no-cuda",))
    workers: int = changeable(4, "processes that read images, 0 for none", low=0, flags=("-j",))

    def __post_init__(self) -> None:
        if not self.data_dir:
            raise ValueError("DATA is required: a folder with train/ and val/, or the word digits")
        if self.model:
            object.__setattr__(self, "model", registry_model(self.model))
        super().__post_init__()


@record
class ImageTrainConfig(ImageOptions, RunOptions):
    """Train an image model on a folder of images or on the embedded digits.

    Names and defaults are those of the original's main.py (A.9), which has timm's, but for three
    that are its scripts' for SoT-Tiny and SoT-Small: lr 1e-3, weight_decay .03 and batch_size 128
    (main.py alone: 5e-4, .05 and 64). The same command continues a run that was interrupted, bit
    for bit.

    examples:
      python tools/train_image.py DATA --model MODEL -b 128 --lr 1e-3 --weight-decay .03 --amp
      python tools/train_image.py --config configs/digits/sot_digits.yaml --set epochs=2
      python tools/train_image.py DATA MODEL --set depth=4 --initial-checkpoint WEIGHTS
    """

    program = "train_image.py"
    refused = dict.fromkeys(
        ("--weights", *_WEIGHTS, "--imagenet-a", "--IN-A"),
        "evaluation is tools/eval_image.py",
    )

    img_size: int = option(224, "side of the training images in pixels", low=8)
    val_fraction: float = option(0.2, "of each class where DATA has no train and val", gt=0, lt=1)
    initial_checkpoint: str = option("", "weights to start from", flags=("--pretrained",))
    output_dir: str = changeable("", "folder [output/train/MODEL-SIZE]", flags=("--output",))
    batch_size: int = option(128, "images per process and step", low=1, flags=("-b", "--b"))
    opt: str = option("adamw", "optimizer", choices=("adamw",))
    lr: float = option(1e-3, "its peak, whatever the batch", low=0, flags=("--learning-rate",))
    weight_decay: float = option(0.03, "decay of all but biases and one-axis parameters", low=0)
    opt_eps: float = option(1e-08, "epsilon of the optimizer", low=0)
    opt_betas: tuple[float, ...] = option((0.9, 0.999), "decay of the two moments", length=2)
    clip_grad: float | None = option(None, "global gradient norm limit, 0 for none", low=0)
    sched: str = option("cosine", "by epoch, after the warm-up", choices=("cosine", "constant"))
    epochs: int = option(300, "length of the cosine in epochs, warm-up included", low=1)
    warmup_epochs: int = option(5, "epochs of linear warm-up", low=0)
    cooldown_epochs: int = option(0, "further epochs at --min-lr after the cosine", low=0)
    min_lr: float = option(1e-05, "rate at the end of the cosine", low=0)
    warmup_lr: float = option(1e-06, "rate of the first epoch", low=0)
    drop: float = option(0.0, "dropout", low=0)
    drop_path: float = option(0.1, "stochastic depth of the last block", low=0)
    loss_add: bool = option(False, "add the losses of both classifiers (fusion sum_loss)")
    no_aug: bool = option(False, "resize and crop the centre, nothing else")
    scale: tuple[float, ...] = option((0.08, 1.0), "area share of the random crop", length=2)
    ratio: tuple[float, ...] = option((0.75, 4.0 / 3.0), "aspect ratio of that crop", length=2)
    train_interpolation: str = option("random", "random (bilinear or bicubic), or one by name")
    hflip: float = option(0.5, "probability of a horizontal flip", low=0, high=1)
    color_jitter: float = option(0.4, "no effect beside --aa; else 0 for none", low=0, high=1)
    aa: str | None = option("rand-m9-mstd0.5-inc1", "RandAugment", flags=("--auto-augment",))
    reprob: float = option(0.25, "probability of random erasing", low=0, high=1)
    remode: str = option("pixel", "what random erasing writes", choices=("pixel",))
    recount: int = option(1, "areas that random erasing erases", low=1, high=1)
    mixup: float = option(0.8, "alpha of mixup, 0 for none", low=0)
    cutmix: float = option(1.0, "alpha of cutmix, 0 for none", low=0)
    mixup_prob: float = option(1.0, "probability of mixing a batch", low=0, high=1)
    mixup_switch_prob: float = option(0.5, "probability of cutmix where both are on", low=0, high=1)
    mixup_off_epoch: int = option(0, "first epoch without mixing, 0 for never", low=0)
    smoothing: float = option(0.1, "label smoothing", low=0, high=0.999)
    mean: tuple[float, ...] = option(IMAGENET_MEAN, "channel means that are subtracted")
    std: tuple[float, ...] = option(IMAGENET_STD, "channel deviations that are divided by")
    interpolation: str = changeable("bicubic", "resizing in evaluation")
    crop_pct: float = changeable(0.875, "share that evaluation crops", low=0.01, high=1)
    model_ema_decay: float = option(0.99996, "of the moving average", low=0, high=0.9999999)
    model_ema_warmup: bool | None = option(None, "follow closely at first [in a short run]")
    eval_metric: str = option("top1", "selects the best", choices=("top1", "top5", "loss"))
    sync_bn: bool = option(False, "batch statistics over all processes")
    amp: bool = option(False, "mixed precision (GPU)", flags=("--apex-amp", "--native-amp"))
    amp_dtype: str = option("float16", "of mixed precision", choices=("float16", "bfloat16"))
    eval_batch_multiplier: int = changeable(1, "evaluation's batches over ours", low=1, flags=_VB)
    log_interval: int = changeable(50, "optimizer steps between log lines", low=1)
    recovery_interval: int = changeable(0, "optimizer steps between checkpoints, 0: epochs", low=0)
    save_epochs: int = changeable(1, "epochs between checkpoints", low=1)
    save_total_limit: int | None = 3

    do_train = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError("--model is required: a name of docs/models.md, the original or timm")
        if not self.output_dir:
            folder = Path("output") / "train" / f"{self.model}-{self.img_size}"
            object.__setattr__(self, "output_dir", str(folder))
        if not all(0.0 <= beta < 1.0 for beta in self.opt_betas):
            raise ValueError(f"opt_betas must be in [0, 1), got {self.opt_betas}")
        if self.mixes and self.batch_size % 2:
            raise ValueError(
                f"mixup and cutmix mix a batch with itself reversed and need an even batch_size, "
                f"got {self.batch_size}: change -b, or give --mixup 0 --cutmix 0"
            )
        if self.color_jitter and not (self.aa or self.no_aug):
            raise ValueError("colour jitter is not offered: give --color-jitter 0 with --aa none")
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


@record
class ImageEvalConfig(ImageOptions):
    """Evaluate an image model: scores.

    What is not given is what the weights' folder says.

    examples:
      python tools/eval_image.py DATA --weights output/train/MODEL-224
      python tools/eval_image.py DATA MODEL --weights PYTORCH_FILE --output scores.json
    """

    program = "eval_image.py"

    weights: str = option("", "a trained folder, a converted or PyTorch's file", flags=_WEIGHTS)
    no_ema: bool = option(False, "the raw weights of a checkpoint instead of their average")
    imagenet_a: bool = option(False, "200 classes of ImageNet-A out of 1000", flags=("--IN-A",))
    img_size: int | None = option(None, "side of the images in pixels [224]", low=8)
    crop_pct: float | None = option(None, "share that is cropped [0.875]", low=0.01, high=1)
    interpolation: str | None = option(None, "resizing [bicubic]")
    mean: tuple[float, ...] | None = option(None, "channel means [ImageNet's]")
    std: tuple[float, ...] | None = option(None, "channel deviations [ImageNet's]")
    batch_size: int = option(256, "images per process and step", low=1, flags=("-b", "--b"))
    output: str = option("", "file for the scores (JSON)")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weights:
            raise ValueError("--weights is required: a trained folder, or a checkpoint file")
