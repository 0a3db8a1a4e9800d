"""The whole image training command: options, one run, one line for what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sot_paddle import distributed
from sot_paddle.failures import exit_status
from sot_paddle.train import run_folder
from sot_paddle.train.callbacks import StopRequest
from sot_paddle.train.device import prepare_device
from sot_paddle.train.image_arguments import ImageTrainConfig
from sot_paddle.train.image_flags import parse
from sot_paddle.train.image_model import ImageConverter
from sot_paddle.train.image_run import ImageRun, folder_use, run_training
from sot_paddle.train.image_splits import load_splits


def run_command(arguments: Sequence[str], convert: ImageConverter) -> int:
    """Run ``tools/train_image.py``.

    Args:
        arguments: the command line without the program's name.
        convert: reads foreign checkpoints.

    Returns:
        0 when all is done, 2 when the command was refused or had to stop (NaN loss, no space),
        130 when it was interrupted; in both cases one line on stderr says why and what to do.
    """
    status = exit_status(
        "train_image",
        lambda: run_config(parse(ImageTrainConfig, "train_image.py", arguments), convert),
    )
    return distributed.leave(status)


def run_config(config: ImageTrainConfig, convert: ImageConverter) -> dict[str, Any]:
    """Run a configuration; returns what metrics.json holds.

    Raises:
        ValueError: options or images that cannot be used.
        TrainingStopped: the run ended early.
    """
    prepare_device(dtype=config.dtype, cpu=config.cpu, half="--amp" if config.amp else "")
    root = Path(config.output_dir)
    distributed.on_first_process(lambda: run_folder.check(root, config, folder_use(config)))
    splits = load_splits(config)
    with StopRequest(immediately=distributed.world_size() > 1) as stop:
        return run_training(ImageRun(config, splits, convert, stop))
