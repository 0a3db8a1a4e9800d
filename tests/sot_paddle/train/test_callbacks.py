import os
import signal
from types import SimpleNamespace

import pytest

from sot_paddle.failures import Interrupted
from sot_paddle.train import callbacks
from sot_paddle.train.callbacks import Flow, ProgressLines, StepCount, StopRequest
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
