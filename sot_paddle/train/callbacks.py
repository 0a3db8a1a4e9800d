"""Callbacks of the Trainer: when to evaluate and stop, what to print, how to be interrupted.

`WATCHES` is for a search, which may end a training early.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping

import visualdl  # noqa: F401 (imported with the rest, while imports are quiet)
from paddlenlp.trainer import TrainerCallback

from sot_paddle import distributed
from sot_paddle.cli import INTERRUPTED, TERMINATED, Interrupted
from sot_paddle.train.evaluation import duration


class StopRequest:
    """Turns Ctrl-C and SIGTERM inside of the block into a request to stop after the present step.

    A second signal stops at once. Several processes stop at once on the first signal, because
    they would otherwise disagree about the last step.
    """

    SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}

    def __init__(self) -> None:
        self.requested = False
        self.status = INTERRUPTED
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        for number in self.SIGNALS if distributed.world_size() == 1 else ():
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: object) -> None:
        self.status = self.SIGNALS[signal.Signals(number)]
        if self.requested:
            name = signal.Signals(number).name
            raise Interrupted(
                f"stopped by {name}; what was saved is intact: run the same command again to "
                "continue",
                status=self.status,
            )
        self.requested = True
        print("finishing the step, then saving; once more to stop at once", file=sys.stderr)


class Flow(TrainerCallback):
    """Decides what happens after each optimizer step.

    Args:
        eval_steps: steps between evaluations, None for the end of each epoch, 0 for never.
        save_steps: steps between checkpoints beside those of the Trainer's arguments, 0 for none.
    """

    def __init__(self, *, eval_steps: int | None, save_steps: int = 0) -> None:
        self.eval_steps, self.save_steps = eval_steps, save_steps
        self.trainer = None

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:
        """Let a resumed run finish the micro-batches carried over from the last epoch."""
        self.trainer.begin_epoch()

    def on_optimizer_end(self, args, state, control, **kwargs) -> None:
        """Do what follows every optimizer step."""
        self.trainer.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        """Evaluate, save and stop as due."""
        pace = self.trainer.pace
        state.epoch = pace.epochs_done(state.global_step)
        final = state.global_step >= state.max_steps
        every = pace.steps if self.eval_steps is None else self.eval_steps
        if every and (final or state.global_step % every == 0):
            control.should_evaluate = True
        if self.save_steps and state.global_step % self.save_steps == 0:
            control.should_save = True
        if final:
            control.should_save = control.should_log = True
        if self.trainer.stop.requested:
            control.should_save = control.should_training_stop = True
        return control

    def on_evaluate(self, args, state, control, **kwargs):
        """End the run after too many evaluations without progress."""
        if self.trainer.out_of_patience:
            control.should_training_stop = control.should_save = True
        return control


class StepCount(TrainerCallback):
    """Sets the schedule to the run's step, for rates that belong to an epoch.

    PADDLE: the Trainer advances the schedule only where the optimizer ran; each step that a loss
    scaler skips (float16) would delay every later change of the rate by one step.
    """

    def on_step_end(self, args, state, control, lr_scheduler=None, **kwargs) -> None:
        """Choose the rate of the next step."""
        lr_scheduler.step(epoch=state.global_step)  # Paddle's "epoch" is the schedule's position


class ProgressLines(TrainerCallback):
    """A line for each log entry: step, loss, rate, speed, time left."""

    def __init__(self, *, items: int = 0, unit: str = "examples", evaluated: str = "dev") -> None:
        self._items, self._unit, self._evaluated = items, unit, evaluated
        self._started, self._first = 0.0, 0

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Start the clock at the first step of this process."""
        self._started = time.monotonic()
        self._first = state.global_step

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        """Print a training or an evaluation line."""
        if not state.is_world_process_zero or logs is None:
            return
        scores = {k: v for k, v in logs.items() if k.startswith("eval_")}
        if "loss" in logs:
            rate = f"loss {logs['loss']:.4f} lr {logs['learning_rate']:.3g}"
            self._print(state, f"{rate} {self._speed(state)}")
        elif scores:
            text = " ".join(f"{k.removeprefix('eval_')} {v:.4f}" for k, v in scores.items())
            self._print(state, f"{self._evaluated}: {text}")

    def _print(self, state, text: str) -> None:
        head = f"step {state.global_step}/{state.max_steps} epoch {state.epoch:.2f}"
        print(f"{head} {text}".rstrip(), file=sys.stderr, flush=True)

    def _speed(self, state) -> str:
        done = state.global_step - self._first
        seconds = time.monotonic() - self._started
        if done <= 0 or seconds <= 0:
            return ""
        left = (state.max_steps - state.global_step) * seconds / done
        speed = f"{done / seconds:.2f} steps/s"
        if self._items:
            speed += f", {self._items * done / seconds:.0f} {self._unit}/s"
        return f"{speed}, {duration(left)} left"


WATCHES: list[Callable[[int, int, Mapping[str, float]], None]] = []
"""Called after each evaluation of a training in this process: with the step, the steps of the whole
run and the scores by name, the one that chooses the best as ``main`` too. What one raises ends the
run."""
