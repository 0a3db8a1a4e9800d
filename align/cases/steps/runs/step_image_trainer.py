"""Steps ``data``, ``training``, ``learning_rate`` and ``metric`` of the image trainer.

Ours: the trainer and the evaluation that the tools call, in this process, on a folder of pictures.
Reference: a plain PyTorch loop that reads the same files, makes its own order, batches, soft
targets, moving average and scores.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sot_paddle
from align.cases.case_pair import CasePair
from align.cases.context import Context
from align.cases.kinds.case_kinds import ImageTrainerCase
from align.cases.planted_controls import judge
from align.cases.sides import torch_image_trainer, torch_images
from align.cases.sides.picture_folder import write_pictures
from align.cases.sides.torch_image_trainer import Evaluated
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays, TrainingRun
from align.record.results import Comparison, ControlResult, StepResult, Tolerance

SEED = 42
LOUDER = 30.0
"""The classifiers' random weights are scaled by this, so that predictions differ."""
_WRITTEN = Tolerance("absolute", 6e-7, "the tool writes six decimals")


@dataclasses.dataclass
class _Runs:
    """Both sides of a case, run once for all its steps."""

    pair: CasePair
    ours: Any
    keys: np.ndarray
    batches: list[Arrays]
    reference: TrainingRun
    evaluated: list[Evaluated]


def run_data(case: ImageTrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare what the trainer feeds: images and labels of every step, shares of processes."""
    from align.cases.sides import paddle_image_trainer as trainer

    runs = _prepared(case, dtype, context)
    reference = {"epochs and images": runs.keys, **_steps(runs.batches)}
    reference["resumed/epochs and images"] = runs.keys[case.resume_at * case.batch_size :]
    two = {"processes": 2, "epochs": 2}
    count = case.pictures[0]
    reference |= torch_images.fed_keys(count, case.batch_size, SEED, **two)
    keys = trainer.fed_keys(count, case.batch_size, SEED, **two)
    ours = {"epochs and images": np.array(runs.ours.keys), **_steps(runs.ours.batches), **keys}
    ours["resumed/epochs and images"] = np.array(runs.ours.resumed.keys)

    def compare(arrays: Arrays) -> list[Comparison]:
        def rule(name: str) -> Tolerance:
            return TOLERANCES["pixels" if name.endswith("/images") else "data", None]

        return compare_mappings(arrays, reference, rule)

    other = trainer.fed_keys(count, case.batch_size, SEED + 1, **two)
    first, last = list(reference)[1], _steps(runs.batches[-1:], len(runs.batches))
    faults = {
        "another seed's order": ours | other,
        "the same order in every epoch": ours | _repeated(keys),
        "the last batch lost": {name: ours[name] for name in ours if name not in last},
        "pictures upside down": ours | {first: ours[first][:, :, ::-1]},
    }
    controls = [judge(name, compare(arrays), "the fed batches") for name, arrays in faults.items()]
    note = f"{len(runs.batches)} steps of {case.batch_size}; order of one process and of two"
    return _result(case, "data", dtype, runs, compare(ours), controls, note)


def run_training(case: ImageTrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare losses, rates, decayed set, final weights, statistics and their moving average."""
    runs = _prepared(case, dtype, context)
    pair = runs.pair

    def compare(reference: TrainingRun, ours: TrainingRun) -> Iterator[Comparison]:
        theirs = dataclasses.replace(pair.in_paddle_names(reference), moments={})
        found = pair.compare_training("training", ours, theirs, None)
        # a wrong decayed set or rate comes first: it shows in every loss and weight after it
        yield from sorted(found, key=lambda c: not c.name.startswith(("(decayed", "learning")))

    def changed(**changes: Any) -> TrainingRun:
        return torch_image_trainer.train(pair, runs.batches, case, **changes)[-1]

    whole, again = runs.ours.run, runs.ours.resumed.run
    reference = runs.reference
    controls = [
        judge("no label smoothing", compare(changed(smoothing=0.0), whole)),
        judge("the decay rule of text", compare(changed(decay="text"), whole)),
        judge("a slower moving average", compare(changed(ema_decay=0.9), whole)),
        judge("the rates of the next step", compare(_shifted(reference), whole)),
        judge("no moving average", compare(_unaveraged(reference), whole)),
    ]
    found = list(compare(reference, whole))
    rest = dataclasses.replace(
        reference,
        losses=reference.losses[case.resume_at :],
        learning_rates=reference.learning_rates[case.resume_at :],
    )
    found += [dataclasses.replace(c, name=f"resumed/{c.name}") for c in compare(rest, again)]
    found += _reported(runs, case, dtype)
    note = f"{len(reference.losses)} optimizer steps of the image trainer, and the last"
    note += f" {len(again.losses)} again from a checkpoint"
    return _result(case, "training", dtype, runs, found, controls, note)


def _reported(runs: _Runs, case: ImageTrainerCase, dtype: str) -> list[Comparison]:
    """What the summary of each run states, the continued one's mean loss too."""
    losses = runs.reference.losses
    epochs = case.recipe.by_epoch.epochs + case.recipe.by_epoch.cooldown_epochs
    facts = {"steps": len(losses), "epochs": float(epochs), "loss": float(np.mean(losses))}
    expected = {f"reported {name}": np.array(value) for name, value in facts.items()}
    rule = TOLERANCES["training", dtype]
    return [
        dataclasses.replace(one, name=f"{run}{one.name}")
        for run, ours in (("", runs.ours), ("resumed/", runs.ours.resumed))
        for one in compare_mappings(ours.reported, expected, rule)
    ]


def run_metric(case: ImageTrainerCase, dtype: str, context: Context) -> StepResult:
    """Compare the scores of every evaluation, the choice of the best and the tool's report."""
    runs = _prepared(case, dtype, context)
    tool = {f"tool/{name}": value for name, value in runs.ours.tool.items()}
    ours = runs.ours.scores | runs.ours.best | tool

    def compare(**changes: Any) -> list[Comparison]:
        reference = torch_image_trainer.reported(runs.evaluated, case.eval_metric, **changes)
        return compare_mappings(ours, reference, lambda name: _metric_rule(name, dtype))

    controls = [
        judge("the fourth place counted as the fifth", compare(second=4)),
        judge("the least likely class chosen", compare(sign=-1.0)),
        judge("labels in reverse order", compare(reverse=True)),
        judge("the average not applied", compare(averaged=False)),
        judge("evaluated in training mode", compare(training_mode=True)),
        judge("the worst kept as the best", compare(other_direction=True)),
    ]
    note = f"{len(runs.evaluated)} evaluations of {case.pictures[1]} images, of the weights and"
    note += " of their average"
    return _result(case, "metric", dtype, runs, compare(), controls, note)


def _metric_rule(name: str, dtype: str) -> Tolerance:
    if name.endswith("probabilities"):
        return _WRITTEN
    return TOLERANCES["training", dtype] if name.endswith("loss") else TOLERANCES["metric", None]


def _prepared(case: ImageTrainerCase, dtype: str, context: Context) -> _Runs:
    """Both runs; kept for the case's other steps."""
    kept = context.image_runs.get((case.name, dtype))
    if kept is None:
        with tempfile.TemporaryDirectory() as scratch:
            kept = _run(case, context.pair(case, dtype), Path(scratch))
        context.image_runs = {(case.name, dtype): kept}
    return kept


def _run(case: ImageTrainerCase, pair: CasePair, scratch: Path) -> _Runs:
    from align.cases.sides import paddle_image_trainer as trainer

    _make_louder(pair)
    train = [(16 + number % 3, 17) for number in range(case.pictures[0])]
    val = [(18, 16 + number % 4) for number in range(case.pictures[1])]
    folder = write_pictures(scratch, train=train, val=val, classes=case.num_classes)
    start = folder / "start.safetensors"
    sot_paddle.save_weights(pair.ours, start)
    options = trainer_options(case, pair.dtype) | {"initial_checkpoint": str(start)}
    ours = trainer.train_images(folder, options, case.resume_at)
    epochs = case.recipe.by_epoch.epochs + case.recipe.by_epoch.cooldown_epochs
    keys, batches = torch_images.fed_batches(folder, options, epochs)
    trained = torch_image_trainer.train(pair, batches, case)
    images = torch_images.evaluation_batch(folder, options)
    evaluated = torch_image_trainer.evaluate(pair, trained, images, case)
    return _Runs(pair, ours, keys, batches, trained[-1], evaluated)


def _make_louder(pair: CasePair) -> None:
    for name, value in pair.reference_state.items():
        if name.endswith(("cls_fc.weight", "word_fc.weight")):
            value *= LOUDER
    from align.cases.sides import paddle_side

    paddle_side.load_state(pair.ours, pair.to_paddle(pair.reference_state))


def trainer_options(case: ImageTrainerCase, dtype: str) -> dict[str, Any]:
    """The case as options of ``ImageTrainConfig``."""
    recipe, schedule = case.recipe, case.recipe.by_epoch
    model = {name: value for name, value in case.options.items() if name != "img_size"}
    return {
        "model": case.model,
        "model_options": model,
        "img_size": case.options["img_size"],
        "dtype": dtype,
        "seed": SEED,
        "batch_size": case.batch_size,
        "no_aug": True,
        "mixup": 0.0,
        "cutmix": 0.0,
        "drop_path": 0.0,
        "smoothing": case.smoothing,
        "eval_metric": case.eval_metric,
        "lr": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "opt_eps": recipe.epsilon,
        "clip_grad": recipe.clip_norm,
        "model_ema_decay": recipe.ema_decay,
        "epochs": schedule.epochs,
        "warmup_epochs": schedule.warmup_epochs,
        "cooldown_epochs": schedule.cooldown_epochs,
        "min_lr": schedule.min_lr,
        "warmup_lr": schedule.warmup_lr,
    }


def _steps(batches: list[Arrays], first: int = 1) -> Arrays:
    return {
        f"step {step}/{name}": batch[name]
        for step, batch in enumerate(batches, first)
        for name in ("images", "labels")
    }


def _repeated(keys: Arrays) -> Arrays:
    return {name: keys[name.replace("epoch 1", "epoch 0")] for name in keys}


def _unaveraged(run: TrainingRun) -> TrainingRun:
    return dataclasses.replace(run, average=run.state)


def _shifted(run: TrainingRun) -> TrainingRun:
    return dataclasses.replace(run, learning_rates=[*run.learning_rates[1:], 0.0])


def _result(
    case: ImageTrainerCase,
    step: str,
    dtype: str,
    runs: _Runs,
    comparisons: list[Comparison],
    controls: list[ControlResult],
    note: str,
) -> StepResult:
    stamps = {"ours": runs.ours.run.stamp, "reference": runs.reference.stamp}
    return StepResult(case.name, step, dtype, comparisons, controls, note=note, stamps=stamps)
