"""The one training run, of any kind of task: seed, model, folder, batches, recipe, trainer, resume.

A command (text_command.py, image_command.py) says in a ``Setup`` what is trained and how;
outcome.py concludes the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddlenlp.trainer import TrainingArguments

from sot_paddle import distributed
from sot_paddle.config import some
from sot_paddle.distributed import say
from sot_paddle.failures import Interrupted
from sot_paddle.runtime import environment_stamp
from sot_paddle.train import outcome, run_folder
from sot_paddle.train.callbacks import Flow, ProgressBar, ProgressLines, RunLogs, StepCount
from sot_paddle.train.device import seed_everything
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.evaluation import duration, evaluation_mode
from sot_paddle.train.feeding import MicroBatches, Pace
from sot_paddle.train.setup import Run
from sot_paddle.train.tensorboard_logs import TensorBoardLogs
from sot_paddle.train.trainer import ExactTrainer, saved_state

_UNUSED_PARAMETERS = ("concat", "aggre_all")
"""Fusions whose heads leave parameters without a gradient."""
_MOST_CLASSES, _LONGEST_NAME = 20, 40
"""Classes that are told one by one, and letters of their names."""


def run_once(run: Run) -> dict[str, Any]:
    """Train, evaluate and predict as the options ask; write the scores.

    Returns:
        What the file of scores holds.

    Raises:
        ValueError: options, folder, weights or data that cannot be used; nothing was removed for
            them.
        TrainingStopped: the run ended early; a message says where to continue.
    """
    options, source, plan = run.setup.options, run.setup.source, run.setup.plan
    seed_everything(run.seed)
    run.model = source.build(run.task)
    _describe(run)
    continued = options.do_train and run_folder.will_continue(run.root, options)
    if not continued:
        run.fresh = source.load(run.model)
    synchronised = distributed.synchronise_batch_norm(run.model) if plan.sync_bn else 0
    if synchronised:
        say(f"batch normalisation synchronised in {synchronised} layers")
    if plan.ema_decay is not None:
        run.ema = ModelEma(run.model, plan.ema_decay, warmup=plan.ema_warmup)
    if options.do_train:
        saved_state(run, run_folder.named_checkpoint(options))
    elif options.overwrite_output_dir or not run.root.exists():
        _require_head(run, trained=False)
    trainer = _trainer(run) if options.do_train else None
    if options.overwrite_output_dir:
        _try_model(run)
    with run_folder.open_run(run.root, options, source.files, run.predicted_files) as checkpoint:
        if continued and checkpoint is None:
            raise ValueError(f"{run.root} has changed meanwhile: run the same command again")
        outcome.kept_best(run.root / run_folder.BEST)  # refused before the work
        if trainer is None:
            trained = outcome.load_trained(run)
            _require_head(run, trained=trained)
            if not trained:
                _write_options(run)
        else:
            trainer.accept(checkpoint)
            _write_options(run)
            _train(run, trainer, checkpoint)
        outcome.finish(run)
    return run.result


def _write_options(run: Run) -> None:
    """Write run.json: the options that the folder's weights were trained with belong to them."""
    options = vars(run.setup.options)
    record = {"options": options, "seed": run.seed, "environment": environment_stamp()}
    distributed.on_first_process(lambda: run_folder.write_entry(run.root, run_folder.RUN, record))


def _try_model(run: Run) -> None:
    """What only a forward pass shows is refused before an older run is removed."""
    task = run.task
    split = next(iter((*task.dev.values(), *task.test.values(), task.train)))
    for batch in split.load([[0]]):
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        with evaluation_mode(run.model), run.autocast():
            run.model(**inputs)


def _require_head(run: Run, *, trained: bool) -> None:
    if run.fresh and not trained:
        raise ValueError(
            f"neither {run.root} nor {run.setup.source.origin} holds a trained head: give "
            "--do_train"
        )


def _describe(run: Run) -> None:
    task, parameters = run.task, run.model.parameters()
    count = sum(int(np.prod(p.shape)) for p in parameters if not p.stop_gradient)
    what = f"{task.title}: {run.model.name}, {count / 1e6:.2f} M trained parameters"
    say(f"{what}, {run.setup.source.about(run.model)}")
    splits = ({"train": task.train} if task.train else {}) | {**task.dev, **task.test}
    say(", ".join(f"{name} {len(split)} {task.unit}" for name, split in splits.items()))
    labels = {name: split.labels for name, split in splits.items() if task.classes}
    for name in [name for name, known in labels.items() if known is not None]:
        say(f"{name}, {class_counts(task.classes, labels[name])}")


def class_counts(classes: Sequence[str], labels: np.ndarray) -> str:
    """How many examples each class has, as a line; of many classes the rarest first, and not all.

    Args:
        classes: names; a label is a position in it.
        labels: (M,).
    """
    counts = np.bincount(labels, minlength=len(classes))  # (K,)
    many = len(classes) > _MOST_CLASSES
    order = np.argsort(counts, kind="stable") if many else range(len(classes))
    named = [f"{classes[label][:_LONGEST_NAME]} ({counts[label]})" for label in order]
    listed = f", the rarest first: {some(named)}" if many else f": {', '.join(named)}"
    return f"{len(classes)} classes{listed}"


def _trainer(run: Run) -> ExactTrainer:
    """Everything that training needs, so that what cannot work is refused before a file changes."""
    task, plan = run.task, run.setup.plan
    batches = MicroBatches(
        task.order(run.seed),
        rank=distributed.rank(),
        world=distributed.world_size(),
        by_epoch=task.by_epoch,
    )
    pace = Pace(len(batches), min(plan.accumulation, len(batches)), len(task.train))
    flow = Flow(run.stop, eval_steps=plan.eval_steps, save_steps=pace.steps * plan.save_epochs)
    kind = ProgressBar if sys.stderr.isatty() else ProgressLines
    progress = kind(items=_items(run, pace), unit=task.unit, evaluated=next(iter(task.dev), ""))
    logs = run.root / run_folder.LOGS
    trainer = ExactTrainer(
        run,
        _arguments(run, pace),
        batches=batches,
        pace=pace,
        callbacks=[TensorBoardLogs(logs), RunLogs(logs), StepCount(), flow, progress],
    )
    flow.trainer = progress.trainer = trainer
    run.autocast = trainer.autocast_smart_context_manager
    if trainer.total_steps < 1:
        raise ValueError(
            f"{plan.epochs} epochs of {pace.steps} steps make no step: train for more epochs"
        )
    trainer.create_optimizer_and_scheduler(trainer.total_steps)
    return trainer


def _items(run: Run, pace: Pace) -> int:
    """Examples of an optimizer step: a batch may be larger than the data."""
    asked = run.setup.plan.batch_size * distributed.world_size() * pace.accumulation
    return min(asked, pace.rows)


def _train(run: Run, trainer: ExactTrainer, checkpoint: Path | None) -> None:
    plan, task = run.setup.plan, run.task
    seed_everything(run.seed + (distributed.rank() if plan.own_masks else 0))
    effective = min(plan.batch_size * distributed.world_size(), trainer.pace.rows)
    say(
        f"{trainer.total_steps} steps of {effective} x {trainer.pace.accumulation} {task.unit}, "
        f"checkpoints in {run.root}"
    )
    if checkpoint is not None:
        say(f"continuing from {checkpoint}")
    started = time.monotonic()
    trainer.resume(checkpoint)
    step = trainer.state.global_step
    if run.stop.requested:
        raise Interrupted(
            f"stopped after step {step}, saved in {run.root / f'checkpoint-{step}'}; run the same "
            "command again to continue",
            status=run.stop.status,
        )
    say(f"trained to step {step} in {duration(time.monotonic() - started)}")
    progress = trainer.progress
    run.result["train"] = {
        "steps": step,
        "epochs": trainer.pace.epochs_done(step),
        "loss": trainer.mean_loss(),
        "stopped_early": step < trainer.total_steps,
        f"{task.unit}_per_step": _items(run, trainer.pace),
        "processes": distributed.world_size(),
        "operators": progress.operators,
    }
    run.result["evaluations"] = dict(progress.evaluations)


def _arguments(run: Run, pace: Pace) -> TrainingArguments:
    plan, options = run.setup.plan, run.setup.options
    head = getattr(run.model, "head_config", None)  # models on hidden states have none
    return TrainingArguments(
        output_dir=str(run.root),
        logging_dir=str(run.root / run_folder.LOGS),
        per_device_train_batch_size=plan.batch_size,
        gradient_accumulation_steps=pace.accumulation,
        num_train_epochs=plan.epochs,
        max_steps=options.max_steps,
        logging_steps=plan.log_steps,
        save_steps=plan.save_steps,  # Flow saves at the end of epochs
        seed=run.seed,
        device=paddle.get_device().partition(":")[0],
        disable_tqdm=True,
        ignore_data_skip=True,
        fp16=plan.half == "float16",
        bf16=plan.half == "bfloat16",
        fp16_opt_level=plan.half_level,
        ddp_find_unused_parameters=head is None or head.fusion in _UNUSED_PARAMETERS,
        sharding=plan.sharding,
        report_to=[],  # RunLogs writes VisualDL's
    )
