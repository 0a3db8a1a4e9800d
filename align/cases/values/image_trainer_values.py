"""Steps ``data``, ``training`` and ``metric`` of the image trainer.

Ours: the trainer and the evaluation that the tools call, in this process, on a folder of pictures.
Reference: a plain PyTorch loop that reads the same files, makes its own order, batches, soft
targets, moving average and scores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sot_paddle
from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.kinds.case_kinds import ImageTrainerCase
from align.cases.model_pair import ModelPair
from align.cases.sides import torch_image_trainer, torch_images
from align.cases.sides.picture_folder import write_pictures
from align.cases.sides.torch_image_trainer import Evaluated
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_arrays, compare_mappings
from align.record.arrays import Arrays, TrainingRun
from align.record.results import Comparison, Tolerance

SEED = 42
LOUDER = 30.0
"""The classifiers' random weights are scaled by this, so that predictions differ."""
_WRITTEN = Tolerance("absolute", 6e-7, "the tool writes six decimals")


@dataclasses.dataclass
class _Runs:
    """Both sides of a case, run once for all its steps."""

    pair: ModelPair
    ours: Any
    keys: np.ndarray
    batches: list[Arrays]
    reference: TrainingRun
    evaluated: list[Evaluated]
    names: np.ndarray

    @property
    def stamps(self) -> dict[str, dict[str, Any]]:
        """Who computed each side."""
        return stamps(self.ours.run.stamp, self.reference.stamp)


def data(setting: Setting) -> BothSides:
    """What the trainer feeds: images and labels of every step, shares of processes."""
    from align.cases.sides import paddle_image_trainer as trainer

    case, runs = setting.case, _prepared(setting)
    reference = {"epochs and images": runs.keys, **_steps(runs.batches)}
    reference["resumed/epochs and images"] = runs.keys[case.resume_at * case.batch_size :]
    order, two = (case.pictures[0], case.batch_size), {"processes": 2, "epochs": 2}
    reference |= torch_images.fed_keys(*order, SEED, **two)
    keys = trainer.fed_keys(*order, SEED, **two)
    ours = {"epochs and images": np.array(runs.ours.keys), **_steps(runs.ours.batches), **keys}
    ours["resumed/epochs and images"] = np.array(runs.ours.resumed.keys)
    ours["saved steps"], steps = np.array(runs.ours.saved), len(runs.batches)
    ends = range(case.recipe.by_epoch.steps, steps + 1, case.recipe.by_epoch.steps)
    reference["saved steps"] = np.array(sorted({*ends, case.resume_at}))
    first, last = list(reference)[1], _steps(runs.batches[-1:], len(runs.batches))
    return BothSides(
        ours,
        reference,
        {
            "another seed's order": lambda: ours | trainer.fed_keys(*order, SEED + 1, **two),
            "the same order in every epoch": ours
            | {name: keys[name.replace("epoch 1", "epoch 0")] for name in keys},
            "the last batch lost": {name: ours[name] for name in ours if name not in last},
            "pictures upside down": ours | {first: ours[first][:, :, ::-1]},
        },
        "the fed batches",
        rule=lambda name: TOLERANCES["pixels" if name.endswith("/images") else "data", None],
        note=f"{len(runs.batches)} steps of {case.batch_size}; order of one process and of two",
        stamps=runs.stamps,
    )


def training(setting: Setting) -> BothSides:
    """Losses, rates, decayed set, final weights, statistics, their moving average; the summary."""
    case, runs = setting.case, _prepared(setting)
    pair, reference = runs.pair, runs.reference
    count, epochs = len(reference.losses), case.recipe.by_epoch
    summary = {
        "steps": count,
        "epochs": float(epochs.epochs + epochs.cooldown_epochs),
        "loss": float(np.mean(reference.losses)),
        "options kept": True,
        "in training mode": False,
    }
    reported = {f"reported {name}": np.array(value) for name, value in summary.items()}

    def judged(ours: TrainingRun, expected: TrainingRun) -> list[Comparison]:
        # a wrong decayed set or rate comes first: it shows in every loss and weight after it
        partners = pair.setup.weights.partners()
        decayed = {name for source in expected.decayed for name in partners[source]}
        rates = np.asarray(ours.learning_rates), np.asarray(expected.learning_rates)
        sides = _left(ours), _left(expected, pair.to_paddle)
        return [
            _decayed(ours.decayed, decayed),
            compare_arrays("learning rates", *rates, TOLERANCES["learning_rate", None]),
            *compare_mappings(*sides, TOLERANCES["training", pair.dtype]),
        ]

    def compare(_: None, expected: TrainingRun) -> Iterator[Comparison]:
        rest = dataclasses.replace(
            expected,
            losses=expected.losses[case.resume_at :],
            learning_rates=expected.learning_rates[case.resume_at :],
        )
        both = (("", runs.ours, expected), ("resumed/", runs.ours.resumed, rest))
        for prefix, ours, theirs in both:
            found = judged(ours.run, theirs)
            steps = range(count)[-len(theirs.losses) :]
            done = {"epochs done": np.array(ours.paces)}
            paces = [(step / epochs.steps, case.pictures[0]) for step in steps]
            wanted = {"epochs done": np.array(paces)}
            rule = TOLERANCES["training", pair.dtype]
            found += compare_mappings(ours.reported | done, reported | wanted, rule)
            for one in found:
                yield dataclasses.replace(one, name=f"{prefix}{one.name}")

    def changed(**changes: Any) -> TrainingRun:
        return torch_image_trainer.train(pair, runs.batches, case, **changes)[-1]

    rates = [*reference.learning_rates[1:], 0.0]
    faults = {
        "no label smoothing": changed(smoothing=0.0),
        "the decay rule of text": changed(decay="text"),
        "a slower moving average": changed(ema_decay=0.9),
        "the rates of the next step": dataclasses.replace(reference, learning_rates=rates),
        "no moving average": dataclasses.replace(reference, average=reference.state),
    }
    again = len(runs.ours.resumed.run.losses)
    return BothSides(
        None,
        reference,
        {name: ValueFault(reference=run) for name, run in faults.items()},
        compare=compare,
        note=f"{count} optimizer steps of the image trainer, and the last {again} again from a "
        "checkpoint",
        stamps=runs.stamps,
    )


def metric(setting: Setting) -> BothSides:
    """The scores of every evaluation, the choice of the best and the tool's report."""
    case, runs = setting.case, _prepared(setting)
    tool = {f"tool/{name}": value for name, value in runs.ours.tool.items()}

    def reported(**changes: Any) -> Arrays:
        found = torch_image_trainer.reported(runs.evaluated, case.eval_metric, **changes)
        return found | {"tool/images": runs.names}

    faults: dict[str, dict[str, Any]] = {
        "the fourth place counted as the fifth": {"second": 4},
        "the least likely class chosen": {"sign": -1.0},
        "labels in reverse order": {"reverse": True},
        "the average not applied": {"averaged": False},
        "evaluated in training mode": {"training_mode": True},
        "the worst kept as the best": {"other_direction": True},
    }
    note = f"{len(runs.evaluated)} evaluations of {case.pictures[1]} images, of the weights and"
    return BothSides(
        runs.ours.scores | runs.ours.best | tool,
        reported(),
        {name: ValueFault(reference=reported(**change)) for name, change in faults.items()},
        rule=lambda name: _metric_rule(name, setting.dtype),
        note=f"{note} of their average",
        stamps=runs.stamps,
    )


def _metric_rule(name: str, dtype: str) -> Tolerance:
    if name.endswith("probabilities"):
        return _WRITTEN
    return TOLERANCES["training", dtype] if name.endswith("loss") else TOLERANCES["metric", None]


def _prepared(setting: Setting) -> _Runs:
    """Both runs; kept for the case's other steps."""
    key, held = (setting.case.name, setting.dtype), setting.context.image_runs
    if key not in held:
        held.clear()
        held[key] = _run(setting.case, setting.pair, setting.folder())
    return held[key]


def _run(case: ImageTrainerCase, pair: ModelPair, scratch: Path) -> _Runs:
    from align.cases.sides import paddle_image_trainer as trainer

    _make_louder(pair)
    train = [(16 + number % 3, 17) for number in range(case.pictures[0])]
    val = [(18, 16 + number % 4) for number in range(case.pictures[1])]
    folder = write_pictures(scratch, train=train, val=val, classes=case.num_classes)
    start = folder / "start.safetensors"
    sot_paddle.save_weights(pair.model, start)
    options = trainer_options(case, pair.dtype) | {"initial_checkpoint": str(start)}
    ours = trainer.train_images(folder, options, case.resume_at)
    epochs = case.recipe.by_epoch.epochs + case.recipe.by_epoch.cooldown_epochs
    keys, batches = torch_images.fed_batches(folder, options, epochs)
    trained = torch_image_trainer.train(pair, batches, case)
    images = torch_images.evaluation_batch(folder, options)
    evaluated = torch_image_trainer.evaluate(pair, trained, images, case)
    return _Runs(pair, ours, keys, batches, trained[-1], evaluated, images["names"])


def _make_louder(pair: ModelPair) -> None:
    state = pair.setup.state
    pair.change(
        {n: LOUDER * state[n] for n in state if n.endswith(("cls_fc.weight", "word_fc.weight"))}
    )


def _left(run: TrainingRun, rename: Callable[[Arrays], Arrays] = dict) -> Arrays:
    """Losses, weights, statistics and their moving average."""
    average = {f"average/{name}": value for name, value in rename(run.average).items()}
    return {"losses": np.asarray(run.losses), **rename(run.state), **average}


def _decayed(ours: set[str], expected: set[str]) -> Comparison:
    """Weight decay must apply to the same parameters, by name."""
    names, wrong = sorted(expected | ours), sorted(expected ^ ours)
    return compare_arrays(
        f"(decayed parameters{': ' + ', '.join(wrong) if wrong else ''})",
        np.asarray([name in ours for name in names], dtype="int64"),
        np.asarray([name in expected for name in names], dtype="int64"),
        TOLERANCES["data", None],
    )


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
        "crop_pct": 0.8,
        "mean": (0.4, 0.5, 0.6),
        "std": (0.3, 0.2, 0.25),
        "mixup": 0.0,
        "cutmix": 0.0,
        "drop_path": 0.0,
        "smoothing": case.smoothing,
        "eval_metric": case.eval_metric,
        "lr": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "opt_eps": recipe.epsilon,
        "opt_betas": recipe.betas,
        "clip_grad": recipe.clip_norm,
        "model_ema_decay": recipe.ema_decay,
        "model_ema_warmup": recipe.ema_warmup,
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
