"""The Paddle side of an image training run: the trainer and the evaluation that the tools call.

The run happens in this process, on a folder, through ``run_config``; what it fed, lost and applied
is noted on the way, what it left is read from its folder.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle

from align.cases.sides.paddle_images import train_config
from align.cases.sides.paddle_side import settings_kept
from align.cases.sides.torch_images import text_numbers
from align.frameworks import on_paddle
from align.record.arrays import Arrays, TrainingRun
from sot_paddle import distributed
from sot_paddle.data.image_dataset import ImageTrainSet
from sot_paddle.registry import create_model
from sot_paddle.tasks.image_options import ImageEvalConfig
from sot_paddle.tasks.images import ImageSplit
from sot_paddle.train import image_command, image_evaluation, image_model
from sot_paddle.train.feeding import MicroBatches
from sot_paddle.train.trainer import ExactTrainer


@dataclass
class ImageTrainerRun:
    """What a run of the image trainer did and left.

    Attributes:
        keys: (n, 2) epoch and index of every training image that was asked for.
        batches: images and labels of each step, as the model got them.
        paces: epochs that each step found done, a whole number where one begins, and its images.
        run: losses, rates, decayed set, final weights and their moving average.
        scores: of each evaluation, ``step 5/ema_top1`` and so on.
        reported: steps, epochs and mean loss as the run's summary states them, and whether its
            folder holds the options of the model.
        best: step of the checkpoint kept as the best, and the value that it was chosen for.
        saved: steps of the checkpoints.
        tool: what ``tools/eval_image.py`` says of that checkpoint.
        resumed: a second run that continued a checkpoint of the first.
    """

    keys: list[tuple[int, int]] = field(default_factory=list)
    batches: list[Arrays] = field(default_factory=list)
    paces: list[tuple[float, int]] = field(default_factory=list)
    run: TrainingRun = field(default_factory=TrainingRun)
    scores: Arrays = field(default_factory=dict)
    reported: Arrays = field(default_factory=dict)
    best: Arrays = field(default_factory=dict)
    saved: list[int] = field(default_factory=list)
    tool: Arrays = field(default_factory=dict)
    resumed: ImageTrainerRun | None = None


def train_images(folder: Path, options: Mapping[str, Any], resume_at: int) -> ImageTrainerRun:
    """Train on a folder and evaluate the best checkpoint, both with the tools' functions.

    Args:
        folder: with train and val; the runs are written beside them.
        options: of ``ImageTrainConfig``.
        resume_at: step from whose checkpoint a second run is continued.
    """
    out = folder / "out"
    options = {**options, "recovery_interval": resume_at, "save_total_limit": None}
    with settings_kept(), _quiet():
        found = _run(folder, {**options, "output_dir": str(out)})
        kept = json.loads((out / "best" / "best.json").read_text(encoding="utf-8"))
        found.saved = sorted(int(one.name.split("-")[1]) for one in out.glob("checkpoint-*"))
        found.best["best kept"] = np.array(kept["step"])
        found.best[f"best {options['eval_metric']}"] = np.array(kept["value"])
        found.tool = _evaluated(folder, options["dtype"], options["batch_size"])
        second = {"output_dir": str(folder / "resumed"), "resume": f"{out}/checkpoint-{resume_at}"}
        found.resumed = _run(folder, {**options, **second})
    return found


def _run(folder: Path, options: Mapping[str, Any]) -> ImageTrainerRun:
    config, found = train_config(folder, options), ImageTrainerRun()
    with (
        mock.patch.object(ExactTrainer, "training_step", _noted(found)),
        mock.patch.object(ImageTrainSet, "__getitem__", _noted_keys(found)),
    ):
        content = image_command.run_config(config)
    last = Path(config.output_dir) / "last"
    model, kept = image_model.load_trained(last, ema=False)
    found.run.state = _weights(model)
    found.run.average = _weights(image_model.load_trained(last)[0])
    asked = create_model(config.model, kept.num_classes, **config.overrides)
    again = create_model(config.model, kept.num_classes, **kept.options)
    configs = [(one.backbone_config, one.head_config) for one in (again, asked)]
    left = {"options kept": configs[0] == configs[1], "in training mode": model.training}
    left |= {name: content["train"][name] for name in ("steps", "epochs", "loss")}
    found.reported = {f"reported {name}": np.array(value) for name, value in left.items()}
    found.best = {"best step": np.array(int(content["best"]["step"]))}
    for step, scores in content["evaluations"].items():
        found.scores |= {f"step {step}/{name}": np.array(v) for name, v in scores.items()}
    return found


def _noted(found: ImageTrainerRun):
    """``training_step`` that first notes what it was given and what it will apply."""
    original = ExactTrainer.training_step

    def training_step(trainer, model, inputs, *more):
        arrays = {name: value.numpy().copy() for name, value in inputs.items()}
        found.batches.append(arrays)
        done = trainer.pace.epochs_done(trainer.state.global_step)
        found.paces.append((done, trainer.pace.rows))
        found.run.learning_rates.append(float(trainer.optimizer.get_lr()))
        applies = trainer.optimizer._apply_decay_param_fun
        named = list(trainer.model.named_parameters())
        found.run.decayed = {name for name, p in named if applies is None or applies(p.name)}
        found.run.stamp = on_paddle.stamp(named[0][1])
        loss = original(trainer, model, inputs, *more)
        found.run.losses.append(float(loss))
        return loss

    return training_step


def _noted_keys(found: ImageTrainerRun):
    """``__getitem__`` of the training set that first notes what was asked for."""
    original = ImageTrainSet.__getitem__

    def getitem(images, key):
        found.keys.append(key)
        return original(images, key)

    return getitem


def _evaluated(folder: Path, dtype: str, batch_size: int) -> Arrays:
    """Scores and predictions of the best checkpoint, as the tool writes them."""
    config = ImageEvalConfig(
        data_dir=str(folder),
        weights=str(folder / "out" / "best"),
        dtype=dtype,
        cpu=True,
        workers=0,
        batch_size=batch_size,
    )
    content, predictions = image_evaluation.evaluate(config)
    names = [row["name"] for row in content["classes"]]
    rows = list(csv.DictReader(io.StringIO(predictions())))
    return {
        **{name: np.array(value) for name, value in content["scores"].items()},
        "images": text_numbers(row["image"] for row in rows),
        "labels": np.array([names.index(row["label"]) for row in rows]),
        "predictions": np.array([names.index(row["prediction"]) for row in rows]),
        "probabilities": np.array([float(row["probability"]) for row in rows]),
        "top1 of classes": np.array([row["top1"] for row in content["classes"]]),
    }


def fed_keys(
    count: int, batch_size: int, seed: int, *, processes: int, epochs: int
) -> dict[str, np.ndarray]:
    """The images that each process of a run asks for: epochs in a row, then one resumed.

    Returns:
        ``process 1/epoch 0`` -> step and index of each image, (n, 2); ``.../resumed`` from the
        second batch on.
    """
    found: dict[str, np.ndarray] = {}
    with mock.patch.object(distributed, "world_size", return_value=processes):
        epochs_of = ImageSplit(range(count), None, batch_size).order(batch_size, seed)
    for rank in range(processes):
        batches = MicroBatches(epochs_of, rank=rank, world=processes)
        for epoch in range(epochs):
            found[f"process {rank}/epoch {epoch}"] = _in_steps(batches)
        batches.seek(0, 1)
        found[f"process {rank}/resumed"] = _in_steps(batches)
    return found


def _in_steps(batches: MicroBatches) -> np.ndarray:
    """(step, index) of every image of one pass, (n, 2)."""
    return np.array([(step, at) for step, batch in enumerate(batches) for at in batch])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the run's progress lines to itself."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield


def _weights(model: paddle.nn.Layer) -> Arrays:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}
