"""What the trainer is made of: callbacks, average, evaluation, one process of several."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.cli import TrainingStopped
from sot_paddle.train import evaluation
from sot_paddle.train.callbacks import ProgressLines, StopRequest
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.feeding import Pace
from sot_paddle.train.schedule import EpochRates, PerEpoch
from sot_paddle.train.trainer import ExactTrainer


def _state(step, **more):
    fields = {"epoch": 0.5, "max_steps": 100, "is_world_process_zero": True}
    return SimpleNamespace(global_step=step, **{**fields, **more})


def test_progress_of_evaluation_and_of_other_processes(capsys):
    lines = ProgressLines()
    lines.on_log(None, _state(3), None, logs={"eval_acc": 0.25, "eval_loss": 1.0})
    lines.on_log(None, _state(3, is_world_process_zero=False), None, logs={"eval_acc": 0.25})
    lines.on_log(None, _state(3), None, logs={"train_loss": 1.0})
    assert capsys.readouterr().err == "step 3/100 epoch 0.50 dev: acc 0.2500 loss 1.0000\n"


def _trainer(eval_steps, *, save_epochs=0, stop=None):
    """What `_end_step` asks of a trainer whose epochs have three steps."""
    setup = SimpleNamespace(eval_steps=eval_steps, save_epochs=save_epochs)
    run = SimpleNamespace(setup=setup)
    return SimpleNamespace(run=run, pace=Pace(6, 2), stop=stop or StopRequest())


def _end_step(trainer, state, control, schedule=None):
    schedule = schedule or PerEpoch(EpochRates(learning_rate=0.1), steps=3)
    ExactTrainer.on_step_end(trainer, None, state, control, lr_scheduler=schedule)


@pytest.mark.parametrize(
    ("eval_steps", "due"), [(None, [3, 6, 7]), (2, [2, 4, 6, 7]), (0, [])], ids=str
)
def test_flow_evaluates_when_due_and_at_the_end(eval_steps, due):
    trainer = _trainer(eval_steps, save_epochs=1)
    evaluated, saved = [], []
    for step in range(1, 8):
        control = SimpleNamespace(should_evaluate=False, should_save=False, should_log=False)
        _end_step(trainer, _state(step, max_steps=7), control)
        evaluated += [step] * control.should_evaluate
        saved += [step] * control.should_save
    assert evaluated == due
    assert saved == [3, 6, 7]


def test_a_stop_request_saves_and_stops(capsys):
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    stop = StopRequest()
    with stop.awaited():
        os.kill(os.getpid(), signal.SIGTERM)
        _end_step(_trainer(0, stop=stop), _state(1), control)
        assert control.should_save
        assert control.should_training_stop
        with pytest.raises(TrainingStopped, match="stopped by SIGINT") as error:
            os.kill(os.getpid(), signal.SIGINT)
        assert error.value.status == 130
    assert "once more to stop at once" in capsys.readouterr().err


def test_steps_that_a_loss_scaler_skips_do_not_delay_the_rate():
    """As paddlenlp's Trainer does it: the schedule is stepped only where the optimizer ran."""
    rates = EpochRates(learning_rate=0.1, epochs=3, warmup_epochs=1, cooldown_epochs=0)
    schedule, trainer, used = PerEpoch(rates, steps=3), _trainer(0), []
    for step in range(9):
        used.append(schedule())
        if step not in (1, 4):
            schedule.step()
        _end_step(trainer, _state(step + 1), None, schedule)
    assert used == [rates.rate(epoch) for epoch in range(3) for _ in range(3)]


def test_with_a_warm_up_the_average_follows_closely_at_first():
    model = nn.Linear(2, 1)
    ema, plain = ModelEma(model, 0.99, warmup=True), ModelEma(model, 0.99)
    start = {name: array.copy() for name, array in ema.arrays().items()}
    model.weight.set_value(model.weight + 1.0)
    for kept, average in ((0.1, ema), (0.99, plain)):
        average.update(0)
        moved = average.arrays()["weight"] - start["weight"]
        assert moved == pytest.approx(1.0 - kept)
    ema.update(10_000)  # long after: the decay itself
    assert ema.arrays()["weight"] - start["weight"] == pytest.approx(1.0 - 0.1 * 0.99)


class _Echo(nn.Layer):
    """Gives back its input and remembers whether it was training."""

    def __init__(self):
        super().__init__()
        self.modes = []

    def forward(self, x):
        self.modes.append(self.training)
        return x


@dataclass(frozen=True)
class _Split:
    examples: np.ndarray
    batches: list

    def load(self, batches):
        for batch in batches:
            rows = self.examples[list(batch)]
            yield {"x": paddle.to_tensor(rows), "labels": paddle.to_tensor(np.array(batch))}


def test_nan_logits_stop_the_run():
    examples = np.zeros((3, 2), dtype="float32")
    examples[1, 0] = np.nan
    with pytest.raises(TrainingStopped, match="output for example 1 is not a finite number"):
        evaluation.predict(_Echo(), _Split(examples, [[0, 1, 2]]))
