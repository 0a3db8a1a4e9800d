"""The command lines of image training and evaluation, and the original's flags that they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sot_paddle.command_line import Command
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
_EVALUATION = ("--weights", "--eval-checkpoint", "--checkpoint", "--imagenet-a", "--IN-A")
_SHARED: Mapping[str, Any] = {
    "positional": {"data_dir": "DATA", "model": "MODEL"},
    "rest": "model_options",
    "no_effect": _NO_EFFECT,
    "switches": _SWITCHES,
}
TRAINING = Command(
    "train_image.py",
    ImageTrainConfig,
    """\
Train an image model on a folder of images or on the embedded digits. The flags are those of the
original's main.py; the same command continues a run that was interrupted, bit for bit.""",
    """\
examples:
  python tools/train_image.py DATA --model MODEL -b 128 --lr 1e-3 --weight-decay .03 --amp
  python tools/train_image.py --config configs/digits/sot_digits.yaml --set epochs=2
  python tools/train_image.py DATA MODEL --set depth=4 --initial-checkpoint WEIGHTS
""",
    refused=dict.fromkeys(_EVALUATION, "evaluation is tools/eval_image.py"),
    **_SHARED,
)
EVALUATION = Command(
    "eval_image.py",
    ImageEvalConfig,
    "Evaluate an image model: scores.",
    """\
examples:
  python tools/eval_image.py DATA --weights output/train/MODEL-224
  python tools/eval_image.py DATA MODEL --weights PYTORCH_FILE --output scores.json
""",
    **_SHARED,
)
