"""One image training run: model, folder, moving average, training, what it leaves behind."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddlenlp.trainer import TrainingArguments

from sot_paddle import distributed
from sot_paddle.checkpoint import read_tensors
from sot_paddle.distributed import say
from sot_paddle.failures import Interrupted
from sot_paddle.registry import create_model
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks.losses import image_loss
from sot_paddle.train import checkpointing, image_scores, run_folder
from sot_paddle.train.callbacks import Flow, ProgressLines, RunLogs, StepCount, StopRequest
from sot_paddle.train.device import runs_on_gpu, seed_everything
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.evaluation import duration, evaluation_mode
from sot_paddle.train.feeding import MicroBatches, Pace
from sot_paddle.train.image_arguments import EVALUATION_ONLY, ImageTrainConfig
from sot_paddle.train.image_model import (
    EMA,
    ImageConverter,
    ImageModelConfig,
    find_model_folder,
    fitted_set,
    flat_options,
    load_foreign,
    weight_set,
    weights_file,
    write_model_folder,
)
from sot_paddle.train.image_splits import ImageSplits, training_batches, training_loader
from sot_paddle.train.optimizer import ClipGradByGlobalNorm, decay_filter, decayed_names_by_shape
from sot_paddle.train.recipe import Recipe
from sot_paddle.train.run_folder import FolderUse
from sot_paddle.train.schedule import PerEpoch
from sot_paddle.train.trainer import ExactTrainer
from sot_paddle.weights import load_weights


@dataclass
class ImageRun:
    """Everything of one run.

    Attributes:
        config: its options.
        splits: its images.
        convert: reads foreign checkpoints.
        stop: Ctrl-C's request.
        model: the model.
        ema: its moving average.
        record: what the folders of the run say about the model.
        autocast: context of a forward pass outside of training.
    """

    config: ImageTrainConfig
    splits: ImageSplits
    convert: ImageConverter
    stop: StopRequest
    model: nn.Layer = field(init=False)
    ema: ModelEma = field(init=False)
    record: ImageModelConfig = field(init=False)
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext

    @property
    def root(self) -> Path:
        """The output folder."""
        return Path(self.config.output_dir)

    @property
    def use(self) -> FolderUse:
        """The files it reads and writes beside checkpoints."""
        return folder_use(self.config)

    @property
    def metric(self) -> str:
        """Name of the score that selects the best: that of the moving average."""
        return f"ema_{self.config.eval_metric}"


def folder_use(config: ImageTrainConfig) -> FolderUse:
    """What a run reads that lies perhaps in its own folder."""
    given = config.initial_checkpoint
    return FolderUse(sources={"--initial-checkpoint": Path(given) if given else None})


def run_training(run: ImageRun) -> dict[str, Any]:
    """Train, evaluate each epoch, write metrics.json.

    Returns:
        What metrics.json holds.

    Raises:
        ValueError: options, folder or weights that cannot be used.
        TrainingStopped: the run ended early; a message says where to continue.
    """
    config = run.config
    seed_everything(config.seed)
    run.model = create_model(config.model, len(run.splits.classes), **config.overrides)
    run.record = _record(run)
    _check_metric(run)
    _describe(run)
    continued = run_folder.will_continue(run.root, config)
    if not continued:
        _initialise(run)
    if config.sync_bn:
        layers = distributed.synchronise_batch_norm(run.model)
        say(f"batch normalisation synchronised in {layers} layers")
    run.ema = ModelEma(run.model, config.model_ema_decay)
    batches = MicroBatches(
        training_batches(config, len(run.splits.train)),
        rank=distributed.rank(),
        world=distributed.world_size(),
        key=lambda epoch, index: (epoch, index),
    )
    pace = Pace(len(batches), min(config.gradient_accumulation_steps, len(batches)))
    recipe = _recipe(run, pace)
    if config.overwrite_output_dir:
        _try_model(run)
    record = {"options": vars(config), "environment": environment_stamp()}
    with run_folder.open_run(run.root, config, record, run.use) as checkpoint:  # removes an older
        if continued and checkpoint is None:
            raise ValueError(f"{run.root} has changed meanwhile: run the same command again")
        return _finish(run, _train(run, batches, recipe, checkpoint))


def _try_model(run: ImageRun) -> None:
    """What only a forward pass shows is refused before an older run is removed."""
    side = run.config.img_size
    with evaluation_mode(run.model):
        run.model(paddle.zeros([1, 3, side, side]))


def _record(run: ImageRun) -> ImageModelConfig:
    config = run.config
    return ImageModelConfig(
        model=config.model,
        num_classes=len(run.splits.classes),
        options=flat_options(run.model),
        classes=run.splits.classes,
        img_size=config.img_size,
        crop_pct=config.crop_pct,
        interpolation=config.interpolation,
        mean=config.mean,
        std=config.std,
    )


def _check_metric(run: ImageRun) -> None:
    classes = len(run.splits.classes)
    if run.config.eval_metric == "top5" and classes <= image_scores.TOP:
        raise ValueError(f"--eval-metric top5 needs more than five classes, got {classes}")
    if run.config.loss_add and run.model.head_config.fusion != "sum_loss":
        raise ValueError("--loss_add needs a head with fusion sum_loss")


def _describe(run: ImageRun) -> None:
    config, splits = run.config, run.splits
    head = run.model.head_config
    count = sum(int(np.prod(p.shape)) for p in run.model.parameters() if not p.stop_gradient)
    parts = [f"head {head.pooling}", f"tokens {run.model.backbone_config.token_type}"]
    say(f"{config.model}: {count / 1e6:.2f} M trained parameters, {', '.join(parts)}")
    say(
        f"{len(splits.train)} training and {len(splits.val)} validation images of "
        f"{len(splits.classes)} classes, {config.img_size} pixels"
    )
    if config.warmup_epochs >= config.epochs:
        say(f"all {config.epochs} epochs lie in the warm-up of {config.warmup_epochs}")


def _initialise(run: ImageRun) -> None:
    """Load ``--initial-checkpoint``; what does not fit of the head starts afresh, said aloud."""
    given = run.config.initial_checkpoint
    if not given:
        return
    place = Path(given)
    if not place.exists():
        raise ValueError(f"--initial-checkpoint {given}: there is no such file or folder")
    trained = find_model_folder(place) is not None
    place = weights_file(place) if trained else place
    fitted = load_foreign(run.model, place, run.convert)
    for note in fitted.notes:
        say(note)
    loaded = len(run.model.state_dict()) - len(fitted.fresh)
    which = weight_set(place) if trained else fitted_set(fitted)
    say(f"weights: {loaded} tensors from {place} ({which}), {len(fitted.fresh)} start afresh")


def _train(
    run: ImageRun, batches: MicroBatches, recipe: Recipe, checkpoint: Path | None
) -> dict[str, Any]:
    config = run.config
    pace = Pace(len(batches), recipe.arguments.gradient_accumulation_steps)
    per_step = config.batch_size * distributed.world_size() * pace.accumulation
    flow = Flow(run.stop, eval_steps=None, save_steps=pace.steps * config.save_epochs)
    trainer = ExactTrainer(
        run.model,
        recipe,
        dataset=run.splits.train,
        batches=batches,
        callbacks=[
            RunLogs(run.root / run_folder.LOGS),
            StepCount(),
            flow,
            ProgressLines(items=per_step, evaluated="val"),
        ],
    )
    flow.trainer = trainer
    run.autocast = trainer.autocast_smart_context_manager
    seed_everything(config.seed + distributed.rank())  # each process draws masks of its own
    say(
        f"{config.rates.total_epochs} epochs of {pace.steps} steps of {per_step} images, "
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
            "command again to continue"
        )
    say(f"trained to step {step} in {duration(time.monotonic() - started)}")
    return {
        "steps": step,
        "epochs": pace.epochs_done(step),
        "loss": trainer.progress.loss_sum / max(1, step),
        "images_per_step": per_step,
        "processes": distributed.world_size(),
        "best_step": trainer.progress.best_step,
        "evaluations": dict(trainer.progress.evaluations),
    }


def _recipe(run: ImageRun, pace: Pace) -> Recipe:
    config, splits = run.config, run.splits
    optimizer = _optimizer(config, run.model, pace)  # now: a refusal comes before all else
    identity = config.identity() | {
        "processes": distributed.world_size(),
        "train_data": splits.train_print,
    }
    measured = [str(getattr(config, name)) for name in EVALUATION_ONLY]
    return Recipe(
        arguments=_arguments(run, pace),
        optimizer=lambda steps: optimizer,  # its schedule goes by the epoch
        fill_model=lambda folder: write_model_folder(folder, run.model, run.record, run.ema),
        load_model=lambda folder: _load(run, folder),
        identity=identity,
        evaluate=lambda: _scores(run),
        evaluation_data=f"{splits.val_print} " + " ".join(measured),
        main_metric=run.metric,
        maximise=config.eval_metric != "loss",
        keep=config.save_total_limit,
        keep_states=config.keep_states,
        loss=functools.partial(image_loss, smoothing=config.smoothing),
        after_step=run.ema.update,
        loader=training_loader(splits, config.workers, config.dtype),
    )


def _load(run: ImageRun, folder: Path) -> None:
    load_weights(run.model, folder)
    averages, _ = read_tensors(folder / EMA)
    run.ema.load(averages)


def _arguments(run: ImageRun, pace: Pace) -> TrainingArguments:
    config = run.config
    return TrainingArguments(
        output_dir=str(run.root),
        logging_dir=str(run.root / run_folder.LOGS),
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=pace.accumulation,
        learning_rate=config.lr,
        num_train_epochs=config.rates.total_epochs,
        max_steps=config.max_steps,
        logging_steps=config.log_interval,
        save_steps=config.recovery_interval or pace.steps * config.save_epochs,
        seed=config.seed,
        device="gpu" if runs_on_gpu() else "cpu",
        disable_tqdm=True,
        ignore_data_skip=True,
        fp16=config.amp and config.amp_dtype == "float16",
        bf16=config.amp and config.amp_dtype == "bfloat16",
        fp16_opt_level="O1",
        ddp_find_unused_parameters=run.model.head_config.fusion in ("concat", "aggre_all"),
        report_to=[],  # RunLogs writes VisualDL's
    )


def _optimizer(config: ImageTrainConfig, model: nn.Layer, pace: Pace) -> tuple[Any, Any]:
    schedule = PerEpoch(config.rates, pace.steps)
    optimizer = paddle.optimizer.AdamW(
        learning_rate=schedule,
        beta1=config.opt_betas[0],
        beta2=config.opt_betas[1],
        epsilon=config.opt_eps,
        parameters=[p for p in model.parameters() if not p.stop_gradient],
        weight_decay=config.weight_decay,
        apply_decay_param_fun=decay_filter(model, decayed_names_by_shape),
        grad_clip=ClipGradByGlobalNorm(config.clip_grad) if config.clip_grad else None,
    )
    return optimizer, schedule


def _scores(run: ImageRun) -> dict[str, float]:
    """Scores of the weights and, with the prefix ``ema_``, of their moving average."""
    distributed.share_buffers(run.model)
    raw = _evaluate(run)
    with run.ema.in_place():
        distributed.share_buffers(run.model)
        averaged = _evaluate(run)
    return raw | {f"ema_{name}": value for name, value in averaged.items()}


def _evaluate(run: ImageRun) -> dict[str, float]:
    found = image_scores.predict(
        run.model,
        run.splits.val,
        batch_size=run.config.batch_size * run.config.eval_batch_multiplier,
        workers=run.config.workers,
        dtype=run.config.dtype,
        autocast=run.autocast,
        report=say,
    )
    return image_scores.score(found.logits, found.labels)


def _finish(run: ImageRun, train: dict[str, Any]) -> dict[str, Any]:
    """Write metrics.json and say what was best."""
    run.stop.immediately = True  # all is saved: nothing to wait for
    evaluations: Mapping[str, dict[str, float]] = train.pop("evaluations")
    best, last = str(train.pop("best_step")), str(train["steps"])
    if not evaluations:  # measured on other images before, and the run had already ended
        evaluations, best = {last: _scores(run)}, last
    content = {
        "model": run.config.model,
        "metric": run.metric,
        "seed": run.config.seed,
        "train": train,
        "last": {"step": last} | evaluations.get(last, {}),
        "best": {"step": best} | evaluations[best],
        "evaluations": evaluations,
        "options": vars(run.config),
        "environment": environment_stamp(),
        "finished": True,
    }
    shown = " ".join(f"{name} {value:.2f}" for name, value in evaluations[best].items())
    best_folder = run.root / run_folder.BEST
    kept = run_folder.read_json(best_folder / "best.json") or {}
    there = str(kept.get("step")) == best and checkpointing.is_whole(best_folder)
    where = f", in {best_folder}" if there else ""
    say(f"best: step {best} {shown}{where}")
    distributed.on_first_process(
        lambda: run_folder.write_entry(run.root, run_folder.METRICS, content)
    )
    return content
