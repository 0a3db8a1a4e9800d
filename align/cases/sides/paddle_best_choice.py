"""The trainer's own choice of the best evaluation, on scripted metrics."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import paddle
from paddlenlp.trainer import TrainingArguments
from paddlenlp.utils.log import logger

from sot_paddle.train.feeding import MicroBatches
from sot_paddle.train.recipe import Recipe
from sot_paddle.train.trainer import ExactTrainer

METRIC = "score"


def choices(values: Sequence[float], maximise: bool, patience: int) -> dict[str, list[int]]:
    """Evaluate once for each value, as the trainer does after an epoch.

    Returns:
        After each evaluation, counted from 0: ``best`` by the trainer's record, ``kept`` by the
        folder of the best model, ``since`` the evaluations in vain, ``stops`` 1 where the run
        stops early.
    """
    logger.set_level("ERROR")  # as the trainer's commands do
    scripted = iter(values)
    found: dict[str, list[int]] = {"best": [], "kept": [], "since": [], "stops": []}
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        recipe = Recipe(
            arguments=TrainingArguments(
                output_dir=scratch, device="cpu", disable_tqdm=True, report_to=[]
            ),
            optimizer=lambda steps: (None, None),
            fill_model=lambda folder: None,
            load_model=lambda folder: None,
            loss=lambda outputs, labels: outputs,
            loader=lambda batches: batches,
            identity={},
            evaluate=lambda: {METRIC: next(scripted)},
            main_metric=METRIC,
            maximise=maximise,
            patience=patience,
        )
        batches = MicroBatches(lambda epoch: [[0]])
        model = paddle.nn.Linear(1, 1)
        trainer = ExactTrainer(model, recipe, dataset=[0], batches=batches)
        for step in range(len(values)):
            trainer.state.global_step = step
            trainer.evaluate()
            text = (Path(scratch) / "best" / "best.json").read_text(encoding="utf-8")
            found["best"].append(trainer.progress.best_step)
            found["kept"].append(json.loads(text)["step"])
            found["since"].append(trainer.progress.since_best)
            found["stops"].append(int(trainer.out_of_patience))
    return found
