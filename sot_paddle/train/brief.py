"""Brief training on the embedded data: what the demo shows of training."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from sot_paddle.data.corpus import FOLDER
from sot_paddle.reading import read_json
from sot_paddle.train import image_command
from sot_paddle.train.pretrained import Converter
from sot_paddle.train.text_command import run_command

_OPTIONS = {
    "task_name": "CoLA",
    "max_seq_length": 32,
    "per_gpu_train_batch_size": 16,
    "per_gpu_eval_batch_size": 64,
    "learning_rate": 2e-4,
    "save_steps": 1_000_000,
    "seed": 42,
}


@dataclass(frozen=True)
class BriefRun:
    """What a brief run gave.

    Attributes:
        head: ``plain`` or ``mgcrp``.
        steps: optimizer steps.
        loss: mean training loss.
        mcc: Matthews correlation on the development sentences.
        seconds: wall time, evaluation included.
    """

    head: str
    steps: int
    loss: float
    mcc: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.head:6s} {self.steps} steps of {_OPTIONS['per_gpu_train_batch_size']}, "
            f"loss {self.loss:.3f}, mcc {self.mcc:.3f}, {self.seconds:.1f} s"
        )


def fine_tune(
    checkpoint: Path, folder: Path, head: str, convert: Converter, *, steps: int
) -> BriefRun:
    """Fine-tune a checkpoint on the embedded acceptability corpus.

    Args:
        checkpoint: Hugging Face or converted directory.
        folder: receives the run.
        head: ``plain`` or ``mgcrp`` (with padding masked, so that batches can be short).
        convert: reads the checkpoint as this project's tensors.
        steps: optimizer steps of 16 sentences.

    Returns:
        The run's figures.

    Raises:
        ValueError: the run failed; the message is its own.
    """
    options = {
        **_OPTIONS,
        "data_dir": FOLDER,
        "model_name_or_path": checkpoint,
        "output_dir": folder / head,
        "cache_dir": folder / "cache",
        "head": head,
        "padding": "longest",
        "max_steps": steps,
    }
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    flags += ["--do_train", "--do_eval", "--do_lower_case", "--overwrite_output_dir"]
    flags += ["--mask_padding"] if head == "mgcrp" else []
    seconds = _quietly(f"fine-tuning with head {head}", lambda: run_command(flags, convert))
    found = read_json(folder / head / "metrics.json")
    return BriefRun(
        head, found["train"]["steps"], found["train"]["loss"], found["last"]["mcc"], seconds
    )


@dataclass(frozen=True)
class BriefImageRun:
    """What a brief run on the digits gave.

    Attributes:
        epochs: passes over the training images.
        loss: mean training loss of the run.
        top1: accuracy on the test images, in per cent, of the weights themselves; so short a run
            leaves their moving average behind.
        seconds: wall time, evaluation included.
    """

    epochs: int
    loss: float
    top1: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs, loss {self.loss:.3f}, "
            f"top-1 {self.top1:.1f} % of the test images, {self.seconds:.1f} s"
        )


def train_on_digits(config: Path, folder: Path, *, epochs: int) -> BriefImageRun:
    """Train a small SoT on scikit-learn's digits from random weights.

    Args:
        config: YAML file of the model and the recipe.
        folder: receives the run.
        epochs: passes over the training images, the first one with warm-up.

    Returns:
        The run's figures.

    Raises:
        ValueError: the run failed; the message is its own.
    """
    flags = ["--config", str(config), "--epochs", str(epochs), "--output", str(folder)]
    flags += ["--warmup-epochs", "1", "--cooldown-epochs", "0", "--overwrite-output-dir"]
    seconds = _quietly(
        "training on the digits", lambda: image_command.run_command(flags, _no_conversion)
    )
    found = read_json(folder / "metrics.json")
    return BriefImageRun(epochs, found["train"]["loss"], found["last"]["top1"], seconds)


def _no_conversion(*_arguments: object, **_options: object) -> NoReturn:
    raise ValueError("training on the digits starts from random weights")


def _quietly(what: str, command: Callable[[], int]) -> float:
    """Run a command without its progress lines; its wall time in seconds."""
    began, log, errors = time.perf_counter(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(errors):
        status = command()
    if status:
        raise ValueError(f"{what} failed: {errors.getvalue().strip()}")
    return time.perf_counter() - began
