"""What a training prints while it runs, and how it is interrupted.

`WATCHES` is for a search, which may end a training early.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping

import visualdl  # noqa: F401 (imported with the rest, while imports are quiet)
from paddlenlp.trainer import TrainerCallback

from sot_paddle import distributed
from sot_paddle.cli import INTERRUPTED, TERMINATED, TrainingStopped, answering
from sot_paddle.train.evaluation import duration


class StopRequest:
    """A request to stop after the present step, by Ctrl-C or SIGTERM; a second one stops at once.

    Several processes stop at once on the first signal, because they would otherwise disagree about
    the last step.
    """

    SIGNALS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}

    def __init__(self) -> None:
        self.requested = False
        self.status = INTERRUPTED

    def awaited(self) -> contextlib.AbstractContextManager[None]:
        """Take the signals inside of the block."""
        numbers = self.SIGNALS if distributed.world_size() == 1 else ()
        return answering(dict.fromkeys(numbers, self._on_signal))

    def _on_signal(self, number: int, frame: object) -> None:
        self.status = self.SIGNALS[signal.Signals(number)]
        if self.requested:
            name = signal.Signals(number).name
            raise TrainingStopped(
                f"stopped by {name}; what was saved is intact: run the same command again to "
                "continue",
                status=self.status,
            )
        self.requested = True
        print("finishing the step, then saving; once more to stop at once", file=sys.stderr)


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
