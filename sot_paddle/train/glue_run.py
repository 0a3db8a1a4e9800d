"""One GLUE run: device, folder, model, training; outcome.py concludes it."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddlenlp.trainer import TrainingArguments

from sot_paddle import distributed
from sot_paddle.distributed import say
from sot_paddle.failures import Interrupted
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import outcome, pretrained, run_folder
from sot_paddle.train.callbacks import Flow, ProgressLines, RunLogs
from sot_paddle.train.device import prepare_device, runs_on_gpu, seed_everything
from sot_paddle.train.evaluation import duration, evaluation_mode
from sot_paddle.train.feeding import MicroBatches
from sot_paddle.train.model_folder import fill_model_folder
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, HFAdamW, decay_filter
from sot_paddle.train.recipe import Recipe
from sot_paddle.train.run import Run
from sot_paddle.train.schedule import build_schedule
from sot_paddle.train.trainer import ExactTrainer
from sot_paddle.weights import load_weights


def set_up(config: TrainConfig) -> None:
    """Choose device and dtype, refuse what they cannot do, join the other processes.

    Raises:
        ValueError: mixed precision without a GPU.
    """
    half = "--fp16" if config.fp16 else "--bf16" if config.bf16 else ""
    prepare_device(dtype=config.dtype, cpu=config.no_cuda, half=half)
    for name in ("server_ip", "server_port"):
        if getattr(config, name):
            say(f"--{name} is ignored: remote debugging of the original")
    if config.local_rank != -1:
        say("--local_rank is ignored: start several processes with paddle.distributed.launch")


def run_once(run: Run) -> dict[str, Any]:
    """Train, evaluate and predict as the options ask; write metrics.json.

    Returns:
        What metrics.json holds.

    Raises:
        ValueError: options, folder or data that cannot be used; nothing was removed for them.
        TrainingStopped: the run ended early; a message says where to continue.
    """
    config = run.config
    seed_everything(run.seed)
    run.model = pretrained.build(config, run.source, run.task.num_outputs)
    if not config.do_train:
        pretrained.check_trained_head(run.model, run.source.config, run.source.origin)
    loaded, run.fresh = pretrained.load(run.model, run.source)
    _describe_model(run, loaded)
    synchronised = distributed.synchronise_batch_norm(run.model)
    if synchronised:
        say(f"batch normalisation synchronised in {synchronised} layers")
    trainer = _trainer(run) if config.do_train else None
    if config.overwrite_output_dir:
        _try_model(run)
    record = {"options": vars(config), "seed": run.seed, "environment": environment_stamp()}
    with run_folder.open_run(run.root, config, record, run.use) as checkpoint:
        if trainer is None:
            _require_head(run, trained=outcome.load_trained(run))
        else:
            _train(run, trainer, checkpoint)
        outcome.finish(run)
    return run.result


def _try_model(run: Run) -> None:
    """What only a forward pass shows is refused before an older run is removed."""
    if not run.config.do_train:
        _require_head(run, trained=False)
    splits = (run.task.train, *run.task.dev.values(), *run.task.test.values())
    first = next(split for split in splits if split is not None)
    inputs = dict(next(iter(first.load([[0]]))))
    inputs.pop("labels", None)
    with evaluation_mode(run.model), run.autocast():
        run.model(**inputs)


def _require_head(run: Run, *, trained: bool) -> None:
    if run.fresh and not trained:
        raise ValueError(
            f"neither {run.root} nor {run.source.origin} holds a trained head: give --do_train"
        )


def _describe_model(run: Run, loaded: int) -> None:
    head = ", ".join(f"{k} {v}" for k, v in run.config.head_options.items() if v is not None)
    count = sum(int(np.prod(p.shape)) for p in run.model.parameters())
    say(f"{run.task.title}: {run.model.name}, {count / 1e6:.2f} M parameters, head {head}")
    fresh = f", {len(run.fresh)} new ones in the head" if run.fresh and loaded else ""
    say(f"weights: {loaded} tensors from {run.source.origin}{fresh}")


def _trainer(run: Run) -> ExactTrainer:
    """Everything that training needs, so that what cannot work is refused before a file changes."""
    config, task = run.config, run.task
    batches = MicroBatches(
        task.order(run.seed),
        rank=distributed.rank(),
        world=distributed.world_size(),
    )
    recipe = _recipe(run)
    flow = Flow(run.stop, eval_steps=_eval_steps(config))
    trainer = ExactTrainer(
        run.model,
        recipe,
        dataset=task.train,
        batches=batches,
        callbacks=[RunLogs(run.root / run_folder.LOGS), flow, ProgressLines()],
    )
    flow.trainer = trainer
    run.autocast = trainer.autocast_smart_context_manager
    if trainer.total_steps < 1:
        raise ValueError(
            f"{config.num_train_epochs} epochs of {trainer.pace.steps} steps make no step: raise "
            "--num_train_epochs"
        )
    recipe.optimizer(trainer.total_steps)
    return trainer


def _train(run: Run, trainer: ExactTrainer, checkpoint: Path | None) -> None:
    config, task = run.config, run.task
    seed_everything(run.seed)
    effective = config.per_gpu_train_batch_size * distributed.world_size()
    say(
        f"{len(task.train)} examples, {trainer.total_steps} steps of "
        f"{effective} x {trainer.pace.accumulation} examples"
    )
    if checkpoint is not None:
        say(f"continuing from {checkpoint}")
    started = time.monotonic()
    trainer.resume(checkpoint)
    step = trainer.state.global_step
    if run.stop.requested:
        raise Interrupted(
            f"stopped after step {step}, saved in {run.root / f'checkpoint-{step}'}; run the same "
            "command again to continue"
        )
    say(f"trained to step {step} in {duration(time.monotonic() - started)}")
    progress = trainer.progress
    run.result["train"] = {
        "steps": step,
        "epochs": trainer.pace.epochs_done(step),
        "loss": progress.loss_sum / max(1, step),
        "stopped_early": step < trainer.total_steps,
        "examples_per_step": effective * trainer.pace.accumulation,
        "processes": distributed.world_size(),
    }
    run.result["evaluations"] = dict(progress.evaluations)


def _eval_steps(config: TrainConfig) -> int | None:
    if not config.do_eval:
        return 0
    return config.logging_steps if config.evaluate_during_training else config.eval_steps


def _recipe(run: Run) -> Recipe:
    config, task, model = run.config, run.task, run.model
    identity = config.identity() | {
        "seed": run.seed,
        "processes": distributed.world_size(),
        "train_data": task.train.fingerprint,
    }
    return Recipe(
        arguments=_arguments(run),
        optimizer=functools.cache(lambda steps: _optimizer(config, model, steps)),
        fill_model=lambda folder: fill_model_folder(model, run.source, task.table, folder),
        load_model=lambda folder: load_weights(model, folder),
        identity=identity,
        evaluate=(lambda: outcome.current_scores(run)) if config.do_eval else None,
        evaluation_data=",".join(split.fingerprint for split in task.dev.values()),
        main_metric=run.metric,
        keep=config.save_total_limit,
        keep_states=config.keep_states,
        patience=config.early_stopping_patience,
        loss=task.loss,
        loader=task.train.load,
    )


def _arguments(run: Run) -> TrainingArguments:
    config = run.config
    return TrainingArguments(
        output_dir=str(run.root),
        logging_dir=str(run.root / run_folder.LOGS),
        per_device_train_batch_size=config.per_gpu_train_batch_size,
        per_device_eval_batch_size=config.per_gpu_eval_batch_size,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        learning_rate=config.learning_rate,
        num_train_epochs=config.num_train_epochs,
        max_steps=config.max_steps,
        logging_steps=config.logging_steps,
        save_steps=config.save_steps,
        seed=run.seed,
        device="gpu" if runs_on_gpu() else "cpu",
        disable_tqdm=True,
        ignore_data_skip=True,
        fp16=config.fp16,
        bf16=config.bf16,
        fp16_opt_level=config.fp16_opt_level,
        ddp_find_unused_parameters=config.fusion in ("concat", "aggre_all"),
        report_to=[],  # RunLogs writes VisualDL's
    )


def _optimizer(config: TrainConfig, model: nn.Layer, steps: int) -> tuple[Any, Any]:
    schedule = build_schedule(
        config.lr_scheduler,
        learning_rate=config.learning_rate,
        warmup_steps=config.warmup_steps,
        total_steps=steps,
    )
    kind = HFAdamW if config.optimizer == "hf_adamw" else paddle.optimizer.AdamW
    optimizer = kind(
        learning_rate=schedule,
        epsilon=config.adam_epsilon,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=config.weight_decay,
        apply_decay_param_fun=decay_filter(model),
        grad_clip=ClipGradByGlobalNorm(config.max_grad_norm) if config.max_grad_norm else None,
        multi_precision=config.fp16_opt_level == "O2" and (config.fp16 or config.bf16),
    )
    return optimizer, schedule
