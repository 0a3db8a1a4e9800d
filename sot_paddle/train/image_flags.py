"""The command lines of image training and evaluation, and the original's flags that they answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sot_paddle.command_line import Command
from sot_paddle.registry import list_models
from sot_paddle.tasks.image_options import ImageEvalConfig, ImageTrainConfig

_NO_EFFECT: Mapping[str, str] = {
    "--model-ema": "the moving average is always on, as in the original",
    "--model-ema-force-cpu": "the moving average is where the model is",
    "--pin-mem": "Paddle's loader decides about it",
    "--no-prefetcher": "normalisation and mixing are part of the loader",
    "--use-multi-epochs-loader": "there is one loader",
    "--channels-last": "the layout is Paddle's",
    "--num-gpu": "one process uses one GPU; start several with paddle.distributed.launch",
    "--local-rank": "processes come from paddle.distributed.launch",
}
_SWITCHES = tuple(flag for flag in _NO_EFFECT if flag not in ("--num-gpu", "--local-rank"))
_ONE_CYCLE = "the schedule has one cycle, by epoch"
_REFUSED: Mapping[str, str] = {
    "--gp": "the pooling belongs to the head: --set pooling=gap, or another of docs/heads.md",
    "--momentum": "it is SGD's, and the optimizer is adamw (--opt-betas)",
    "--lr-noise": "the learning rate has no noise",
    "--lr-noise-pct": "the learning rate has no noise",
    "--lr-noise-std": "the learning rate has no noise",
    "--lr-cycle-mul": _ONE_CYCLE,
    "--lr-cycle-limit": _ONE_CYCLE,
    "--start-epoch": "--resume takes the epoch from the checkpoint",
    "--no-resume-opt": "a resumed run is exact; to begin anew give --initial-checkpoint",
    "--decay-epochs": "it is the step schedule's (--sched is cosine or constant)",
    "--patience-epochs": "it is the plateau schedule's (--sched is cosine or constant)",
    "--decay-rate": "it is the step schedule's (--sched is cosine or constant)",
    "--vflip": "the recipe flips horizontally only",
    "--aug-splits": "AugMix is not part of the recipe",
    "--jsd": "AugMix is not part of the recipe",
    "--resplit": "AugMix is not part of the recipe",
    "--split-bn": "AugMix is not part of the recipe",
    "--cutmix-minmax": "cutmix draws its area from --cutmix",
    "--mixup-mode": "a batch is mixed as a whole",
    "--drop-connect": "use --drop-path",
    "--drop-block": "no model here has blocks for it",
    "--bn-tf": "batch normalisation is part of the model",
    "--bn-momentum": "batch normalisation is part of the model",
    "--bn-eps": "batch normalisation is part of the model",
    "--dist-bn": "evaluation always uses the first process's running statistics",
    "--save-images": "there is no such output",
    "--tta": "evaluation is a single crop",
}


def _evaluation(flags: Sequence[str], given: Mapping[str, Any]) -> str:
    """The original's one program trains or evaluates; here there are two."""
    model = [given["model"]] if "model" in given else []
    command = shlex.join(["tools/eval_image.py", given.get("data_dir") or "DATA", *model, *flags])
    return f"evaluation is tools/eval_image.py; run python {command}"


_MODEL = list_models("vision")[0]
_SHARED: Mapping[str, Any] = {
    "positional": {"data_dir": "DATA", "model": "MODEL"},
    "rest": "model_options",
    "no_effect": _NO_EFFECT,
    "switches": _SWITCHES,
    "refused": _REFUSED,
}
TRAINING = Command(
    "train_image.py",
    ImageTrainConfig,
    """\
Train an image model on a folder of images or on the embedded digits. The flags are those of the
original's main.py; the same command continues a run that was interrupted, bit for bit.""",
    f"""\
examples:
  python tools/train_image.py DATA --model {_MODEL} -b 128 --lr 1e-3 --weight-decay .03 --amp
  python tools/train_image.py --config configs/digits/sot_digits.yaml --set epochs=2
  python tools/train_image.py DATA {_MODEL} --set depth=4 --initial-checkpoint WEIGHTS
""",
    elsewhere={
        **dict.fromkeys(("--weights", "--eval-checkpoint", "--checkpoint"), "?"),
        **dict.fromkeys(("--imagenet-a", "--IN-A"), 0),
    },
    redirect=_evaluation,
    **_SHARED,
)
EVALUATION = Command(
    "eval_image.py",
    ImageEvalConfig,
    "Evaluate an image model: scores, a table of the classes, predictions.",
    f"""\
examples:
  python tools/eval_image.py DATA --weights output/train/{_MODEL}-224
  python tools/eval_image.py DATA {_MODEL} --weights PYTORCH_FILE --predictions out.csv
""",
    **_SHARED,
)
