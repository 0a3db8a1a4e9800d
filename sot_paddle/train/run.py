"""The one training run, of any kind of task: seeds, model, batches, recipe, trainer, resume.

A command (text_command.py, image_command.py) says in a ``Setup`` what is trained and how;
outcome.py concludes a run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddlenlp.trainer import TrainingArguments

from sot_paddle import distributed
from sot_paddle.cli import TrainingStopped
from sot_paddle.config import some
from sot_paddle.distributed import say
from sot_paddle.runtime import environment_stamp
from sot_paddle.train import outcome, run_folder
from sot_paddle.train.callbacks import ProgressLines
from sot_paddle.train.device import seed_everything
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.evaluation import duration
from sot_paddle.train.feeding import MicroBatches, Pace
from sot_paddle.train.setup import Run, Setup
from sot_paddle.train.trainer import ExactTrainer
from sot_paddle.versions import PADDLE

_UNUSED_PARAMETERS = ("concat", "aggre_all")
"""Fusions whose heads leave parameters without a gradient."""
_FEWEST_SPANS = 10
"""A run as long as so many spans of its moving average, 1 / (1 - decay) steps, needs no warm-up."""
_MOST_CLASSES, _LONGEST_NAME = 20, 40
"""Classes that are told one by one, and letters of their names."""


def train(setup: Setup, checkpoint: Path | None) -> dict[str, Any]:
    """Train, evaluate and predict as the options ask; returns what the file of scores holds.

    An older run in the output folder is removed when everything that can be refused was tried.

    Args:
        checkpoint: to continue from, None to start.

    Raises:
        ValueError: options, folder, weights or data that cannot be used; nothing was removed for
            them.
        TrainingStopped: the run ended early; a message says where to continue.
    """
    options, task = setup.options, setup.task
    seed_everything(options.seed)
    model = setup.source.build(task)
    _describe(setup, model)
    fresh = setup.source.load(model) if checkpoint is None else ()
    if setup.sync_bn and (count := distributed.synchronise_batch_norm(model)):
        say(f"batch normalisation synchronised in {count} layers")
    ema = None
    if setup.ema_decay is not None:
        ema = ModelEma(model, setup.ema_decay, warmup=bool(setup.ema_warmup))
    run = Run(setup, Path(options.output_dir), model, ema)
    predictions = [task.prediction_file(split) for split in task.test]
    run_folder.check_outputs(run.root, options, predictions)
    trainer = None
    if options.do_train:
        trainer = _trainer(run)
        if ema is not None and setup.ema_warmup is None:
            _choose_warmup(ema, trainer.total_steps)
        trainer.accept(checkpoint)
    elif fresh and (options.overwrite_output_dir or not run_folder.weights_in(run.root)):
        raise ValueError(
            f"neither {run.root} nor {setup.source.origin} holds a trained head: give --do_train"
        )
    if options.overwrite_output_dir:
        distributed.on_first_process(lambda: run_folder.start_afresh(run.root, predictions))
    step = outcome.load_trained(run) if trainer is None else None
    if step is None:  # the options that the folder's weights were trained with belong to them
        record = {"options": vars(options), "environment": environment_stamp()}
        path = run.root / run_folder.RUN
        distributed.on_first_process(lambda: run_folder.write_json(path, record))
    if trainer is not None:
        return _train(run, trainer, checkpoint)
    return outcome.finish(run, step=step or "given")


def _choose_warmup(ema: ModelEma, steps: int) -> None:
    """Warm the average up where the run is so short that it would lag behind the weights."""
    span = round(1 / (1 - ema.decay))
    ema.warmup = steps < _FEWEST_SPANS * span
    if ema.warmup:
        say(
            f"the moving average warms up: decay {ema.decay:g} averages over {span} steps, of "
            f"which this run has {steps} (--set model_ema_warmup=false: as published)"
        )


def _describe(setup: Setup, model: nn.Layer) -> None:
    task, parameters = setup.task, model.parameters()
    count = sum(p.size for p in parameters if not p.stop_gradient)
    what = f"{task.title}: {model.name}, {count / 1e6:.2f} M trained parameters"
    say(f"{what}, {setup.source.about(model)}")
    splits = ({"train": task.train} if task.train else {}) | {**task.dev, **task.test}
    say(", ".join(f"{name} {len(split)} {task.unit}" for name, split in splits.items()))
    for name, split in splits.items() if task.classes else ():
        if split.labels is not None:
            say(f"{name}, {class_counts(task.classes, split.labels)}")


def class_counts(classes: Sequence[str], labels: np.ndarray) -> str:
    """How many examples each class has, as a line; of many classes the rarest first, and not all.

    Args:
        labels: (M,).
    """
    counts = np.bincount(labels, minlength=len(classes))  # (K,)
    named = [f"{name[:_LONGEST_NAME]} ({counts[label]})" for label, name in enumerate(classes)]
    if len(classes) <= _MOST_CLASSES:
        return f"{len(classes)} classes: {', '.join(named)}"
    rarest = [named[label] for label in np.argsort(counts, kind="stable")]
    return f"{len(classes)} classes, the rarest first: {some(rarest)}"


def _trainer(run: Run) -> ExactTrainer:
    """Everything that training needs, so that what cannot work is refused before a file changes."""
    task, setup = run.task, run.setup
    batches = MicroBatches(
        task.order(setup.options.seed),
        rank=distributed.rank(),
        world=distributed.world_size(),
        by_epoch=task.by_epoch,
    )
    accumulation = min(setup.options.gradient_accumulation_steps, len(batches))
    pace = Pace(len(batches), accumulation, len(task.train))
    progress = ProgressLines(
        items=_examples_per_step(run, pace), unit=task.unit, evaluated=next(iter(task.dev), "")
    )
    trainer = ExactTrainer(
        run, _arguments(run, pace), batches=batches, pace=pace, callbacks=[progress]
    )
    if trainer.total_steps < 1:
        raise ValueError(
            f"{setup.arguments['num_train_epochs']} epochs of {pace.steps} steps make no step: "
            "train for more epochs"
        )
    trainer.create_optimizer_and_scheduler(trainer.total_steps)
    return trainer


def _examples_per_step(run: Run, pace: Pace) -> int:
    """Examples of an optimizer step of all processes: a batch may be larger than the data."""
    size = run.setup.arguments["per_device_train_batch_size"] * distributed.world_size()
    return min(size * pace.accumulation, pace.rows)


def _train(run: Run, trainer: ExactTrainer, checkpoint: Path | None) -> dict[str, Any]:
    task, pace = run.task, trainer.pace
    size = run.setup.arguments["per_device_train_batch_size"] * distributed.world_size()
    options = run.setup.options
    seed_everything(options.seed + (distributed.rank() if run.setup.own_masks else 0))
    say(
        f"{trainer.total_steps} steps of {min(size, pace.rows)} x {pace.accumulation} "
        f"{task.unit}, checkpoints in {run.root}"
    )
    if checkpoint is not None:
        say(f"continuing from {checkpoint}")
    started = time.monotonic()
    with trainer.stop.awaited():
        trainer.resume(checkpoint)
    step = trainer.state.global_step
    if trainer.stop.requested:
        raise TrainingStopped(
            f"stopped after step {step}, saved in {run.root / f'checkpoint-{step}'}; run the same "
            "command again to continue",
            status=trainer.stop.status,
        )
    say(f"trained to step {step} in {duration(time.monotonic() - started)}")
    trained = {
        "steps": step,
        "epochs": pace.epochs_done(step),
        "loss": trainer.mean_loss(),
        "stopped_early": step < trainer.total_steps,
        f"{task.unit}_per_step": _examples_per_step(run, pace),
        "processes": distributed.world_size(),
        "operators": trainer.progress.operators,
    }
    evaluations = trainer.progress.evaluations
    return outcome.finish(trainer.run, step=str(step), trained=trained, evaluations=evaluations)


def _arguments(run: Run, pace: Pace) -> TrainingArguments:
    head = getattr(run.model, "head_config", None)  # models on hidden states have none
    arguments = dict(run.setup.arguments)
    if PADDLE >= (3, 0):  # paddlenlp 2.8, which runs before it, has no such option
        unused = head is None or head.fusion in _UNUSED_PARAMETERS
        arguments["ddp_find_unused_parameters"] = unused
    return TrainingArguments(
        output_dir=str(run.root),
        logging_dir=str(run.root / run_folder.LOGS),
        max_steps=run.setup.options.max_steps,
        gradient_accumulation_steps=pace.accumulation,
        seed=run.setup.options.seed,
        device=paddle.get_device().partition(":")[0],
        disable_tqdm=not sys.stderr.isatty(),  # a bar in a terminal, beside the lines
        ignore_data_skip=True,
        report_to=["visualdl"],
        **arguments,
    )
