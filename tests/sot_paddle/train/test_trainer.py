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

from sot_paddle import distributed
from sot_paddle.failures import Interrupted, TrainingStopped
from sot_paddle.train import callbacks, evaluation
from sot_paddle.train.callbacks import Flow, ProgressLines, StepCount, StopRequest
from sot_paddle.train.ema import ModelEma
from sot_paddle.train.feeding import Pace
from sot_paddle.train.schedule import EpochRates, PerEpoch


def _state(step, **more):
    fields = {"epoch": 0.5, "max_steps": 100, "is_world_process_zero": True}
    return SimpleNamespace(global_step=step, **{**fields, **more})


@pytest.fixture
def now(monkeypatch):
    """What the clock of the callbacks says, in seconds."""
    seconds = [0.0]
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def test_progress_between_log_lines(now, capsys):
    lines = ProgressLines()
    lines.on_train_begin(None, _state(0), None)
    for step in range(1, 9):
        now[0] += 10.0
        lines.on_step_end(None, _state(step), None)
    assert capsys.readouterr().err.splitlines() == [
        "step 4/100 epoch 0.50 0.10 steps/s, 16 min 00 s left",
        "step 8/100 epoch 0.50 0.10 steps/s, 15 min 20 s left",
    ]


def test_progress_of_evaluation_and_of_other_processes(capsys):
    lines = ProgressLines()
    lines.on_log(None, _state(3), None, logs={"eval_acc": 0.25, "eval_loss": 1.0})
    lines.on_log(None, _state(3, is_world_process_zero=False), None, logs={"eval_acc": 0.25})
    lines.on_log(None, _state(3), None, logs={"train_loss": 1.0})
    assert capsys.readouterr().err == "step 3/100 epoch 0.50 dev: acc 0.2500 loss 1.0000\n"


@pytest.mark.parametrize(
    ("eval_steps", "due"), [(None, [3, 6, 7]), (2, [2, 4, 6, 7]), (0, [])], ids=str
)
def test_flow_evaluates_when_due_and_at_the_end(eval_steps, due):
    flow = Flow(eval_steps=eval_steps, save_steps=3)
    flow.trainer = SimpleNamespace(pace=Pace(6, 2), stop=StopRequest())
    evaluated, saved = [], []
    for step in range(1, 8):
        control = SimpleNamespace(should_evaluate=False, should_save=False, should_log=False)
        flow.on_step_end(None, _state(step, max_steps=7), control)
        evaluated += [step] * control.should_evaluate
        saved += [step] * control.should_save
    assert evaluated == due
    assert saved == [3, 6, 7]


def test_a_stop_request_saves_and_stops(capsys):
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        flow = Flow(eval_steps=0)
        flow.trainer = SimpleNamespace(pace=Pace(6, 2), stop=stop)
        flow.on_step_end(None, _state(1), control)
        assert control.should_save
        assert control.should_training_stop
        with pytest.raises(Interrupted, match="stopped by SIGINT") as error:
            os.kill(os.getpid(), signal.SIGINT)
        assert error.value.status == 130
    assert "once more to stop at once" in capsys.readouterr().err


def test_steps_that_a_loss_scaler_skips_do_not_delay_the_rate():
    """As paddlenlp's Trainer does it: the schedule is stepped only where the optimizer ran."""
    rates = EpochRates(learning_rate=0.1, epochs=3, warmup_epochs=1, cooldown_epochs=0)
    schedule, count, used = PerEpoch(rates, steps=3), StepCount(), []
    for step in range(9):
        used.append(schedule())
        if step not in (1, 4):
            schedule.step()
        count.on_step_end(None, _state(step + 1), None, lr_scheduler=schedule)
    assert used == [rates.rate(epoch) for epoch in range(3) for _ in range(3)]


class Net(nn.Layer):
    """A matrix, a running statistic and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("running_mean", paddle.zeros([2]))
        self.register_buffer("batches", paddle.zeros([], dtype="int64"))


def _shake(model: nn.Layer, draw: np.random.Generator) -> None:
    for tensor in model.state_dict().values():
        if paddle.is_floating_point(tensor):
            tensor.set_value(draw.normal(size=tensor.shape).astype(str(tensor.numpy().dtype)))
    model.batches.set_value(model.batches + 1)


def test_in_place_swaps_and_restores_even_after_an_error() -> None:
    model = Net()
    ema = ModelEma(model, 0.5)
    before = model.fc.weight.numpy().copy()
    _shake(model, np.random.default_rng(2))
    shaken = model.fc.weight.numpy().copy()
    seen = []

    def fail() -> None:
        with ema.in_place():
            seen.append(model.fc.weight.numpy().copy())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    np.testing.assert_array_equal(seen[0], before)
    np.testing.assert_array_equal(model.fc.weight.numpy(), shaken)
    np.testing.assert_array_equal(ema.arrays()["fc.weight"], before)


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


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.6, "5 s"), (61, "1 min 01 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds, text):
    assert evaluation.duration(seconds) == text


def test_one_process_needs_no_reduction(tiny_bert):
    x = paddle.to_tensor([1.0, 2.0])
    assert distributed.sum_across_processes(x) is x
    assert distributed.gather("a") == ["a"]
    assert distributed.mean_across_processes(3.5) == 3.5
    assert distributed.synchronise_batch_norm(tiny_bert()) == 0


def test_first_process_failures_are_raised():
    def fail():
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        distributed.on_first_process(fail)


def test_only_a_process_with_others_leaves_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(distributed.os, "_exit", left.append)
    assert distributed.leave(2) == 2
    assert left == []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    distributed.leave(130)
    assert left == [130]
