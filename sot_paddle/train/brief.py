"""Brief training on the embedded data: what the demo shows of training."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path

from sot_paddle.data.corpus import FOLDER
from sot_paddle.reading import read_json
from sot_paddle.train import image_command
from sot_paddle.train.text_command import run_command


def fine_tune(checkpoint: Path, folder: Path, head: str, *, steps: int) -> str:
    """Fine-tune a checkpoint on the embedded acceptability corpus.

    Args:
        checkpoint: Hugging Face or converted directory.
        folder: receives the run.
        head: ``plain`` or ``mgcrp`` (with padding masked, so that batches can be short).
        steps: optimizer steps of 16 sentences.

    Returns:
        Its mean training loss and the Matthews correlation on the development sentences, and its
        wall time, evaluation included.

    Raises:
        ValueError: the run failed; the message is its own.
    """
    options = {
        "task_name": "CoLA",
        "max_seq_length": 32,
        "per_gpu_train_batch_size": 16,
        "per_gpu_eval_batch_size": 64,
        "learning_rate": 2e-4,
        "save_steps": 1_000_000,
        "seed": 42,
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
    seconds = _quietly(f"fine-tuning with head {head}", lambda: run_command(flags))
    found = read_json(folder / head / "metrics.json")
    trained = found["train"]
    return (
        f"{head:6s} {trained['steps']} steps of {options['per_gpu_train_batch_size']}, "
        f"loss {trained['loss']:.3f}, mcc {found['last']['mcc']:.3f}, {seconds:.1f} s"
    )


def train_on_digits(config: Path, folder: Path, *, epochs: int) -> str:
    """Train a small SoT on scikit-learn's digits from random weights.

    Args:
        config: YAML file of the model and the recipe.
        folder: receives the run.
        epochs: passes over the training images, the first one with warm-up.

    Returns:
        Its mean training loss, the accuracy of the weights themselves on the test images (so short
        a run leaves their moving average behind), and its wall time, evaluation included.

    Raises:
        ValueError: the run failed; the message is its own.
    """
    flags = ["--config", str(config), "--epochs", str(epochs), "--output", str(folder)]
    flags += ["--warmup-epochs", "1", "--cooldown-epochs", "0", "--overwrite-output-dir"]
    seconds = _quietly("training on the digits", lambda: image_command.run_command(flags))
    found = read_json(folder / "metrics.json")
    return (
        f"{epochs} epochs, loss {found['train']['loss']:.3f}, "
        f"top-1 {found['last']['top1']:.1f} % of the test images, {seconds:.1f} s"
    )


def _quietly(what: str, command: Callable[[], int]) -> float:
    """Run a command without its progress lines; its wall time in seconds."""
    began, log, errors = time.perf_counter(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(errors):
        status = command()
    if status:
        raise ValueError(f"{what} failed: {errors.getvalue().strip()}")
    return time.perf_counter() - began
