"""The trainer's own choice of the best evaluation, on scripted metrics."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import paddle
from paddlenlp.trainer import TrainingArguments
from paddlenlp.utils.log import logger

from sot_paddle.train.feeding import MicroBatches, Pace
from sot_paddle.train.setup import Run
from sot_paddle.train.trainer import ExactTrainer

METRIC = "score"


class _Scripted(ExactTrainer):
    """A trainer whose evaluations give what they are told."""

    def scores(self, step: str) -> dict[str, float]:
        return {METRIC: next(self.scripted)}


def choices(values: Sequence[float], maximise: bool, patience: int) -> dict[str, list[int]]:
    """Evaluate once for each value, as the trainer does after an epoch.

    Returns:
        After each evaluation, counted from 0: ``best`` by the trainer's record, ``kept`` by the
        folder of the best model, ``since`` the evaluations in vain, ``stops`` 1 where the run
        stops early.
    """
    logger.set_level("ERROR")  # as the trainer's commands do
    found: dict[str, list[int]] = {"best": [], "kept": [], "since": [], "stops": []}
    with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
        options = SimpleNamespace(early_stopping_patience=patience)
        arguments = TrainingArguments(
            output_dir=scratch, device="cpu", disable_tqdm=True, report_to=[]
        )
        task = SimpleNamespace(train=[0], dev={}, metric=METRIC, maximise=maximise)
        setup = SimpleNamespace(options=options, task=task)
        run = Run(setup, 0, Path(scratch), stop=None, model=paddle.nn.Linear(1, 1))
        run.fill = lambda folder: None
        batches = MicroBatches(lambda epoch: [[0]])
        trainer = _Scripted(run, arguments, batches=batches, pace=Pace(1, 1))
        trainer.scripted = iter(values)
        for step in range(len(values)):
            trainer.state.global_step = step
            trainer.evaluate()
            text = (Path(scratch) / "best" / "best.json").read_text(encoding="utf-8")
            found["best"].append(trainer.progress.best_step)
            found["kept"].append(json.loads(text)["step"])
            found["since"].append(trainer.progress.since_best)
            found["stops"].append(int(trainer.out_of_patience))
    return found
