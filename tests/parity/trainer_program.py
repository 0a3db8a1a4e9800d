"""Run the command that trains on GLUE and note what its optimizer does; may be interrupted.

    python trainer_program.py RECORD.json INTERRUPT_AFTER flags of train_glue ...

by ``paddle.distributed.launch``; or `record_run` in the caller's process.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import sot_paddle  # noqa: E402, F401 (tunes the CPU before Paddle is loaded)

# isort: split
import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle.optimizer import AdamW  # noqa: E402 (whose step HFAdamW has too)

from sot_paddle import distributed  # noqa: E402
from sot_paddle.cli import TERMINATED, exit_status  # noqa: E402
from sot_paddle.command_line import parse  # noqa: E402
from sot_paddle.tasks.glue_options import TrainConfig  # noqa: E402
from sot_paddle.train import exact_state  # noqa: E402
from sot_paddle.train.feeding import MicroBatches  # noqa: E402
from sot_paddle.train.text_command import run_config  # noqa: E402
from sot_paddle.train.trainer import ExactTrainer  # noqa: E402


class StepRecorder:
    """Notes what the optimizer steps of a run use, and interrupts it when asked to.

    Args:
        interrupt_after: optimizer step of the whole run after which it is interrupted, 0 for none.

    Attributes:
        rates: of every optimizer step.
        draws: random numbers by generator, drawn after every step, as many as there were steps: a
            run that continues has to go on with them.
        places: epoch and number of each micro-batch, as its loss is weighted.
        first: ``gradient/NAME`` before clipping and ``weight/NAME`` after the first step.
    """

    def __init__(self, interrupt_after: int) -> None:
        self.rates: list[float] = []
        self.draws: dict[str, list[float]] = {"python": [], "numpy": []}
        self.places: list[tuple[int, int]] = []
        self.first: dict[str, np.ndarray] = {}
        self._interrupt_after = interrupt_after
        self._trainer: ExactTrainer | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the optimizer's step by one that records, for the length of the block."""
        step, begin = AdamW.step, ExactTrainer.create_optimizer_and_scheduler
        weight = MicroBatches.weight

        def recorded_step(optimizer: AdamW) -> None:
            self._before(optimizer)
            step(optimizer)
            self._after()

        def recorded_begin(trainer: ExactTrainer, num_training_steps: int) -> None:
            self._trainer = trainer
            begin(trainer, num_training_steps)

        def recorded_weight(batches: MicroBatches, epoch: int, batch: int) -> float:
            self.places.append((epoch, batch))
            return weight(batches, epoch, batch)

        with (
            mock.patch.object(AdamW, "step", recorded_step),
            mock.patch.object(ExactTrainer, "create_optimizer_and_scheduler", recorded_begin),
            mock.patch.object(MicroBatches, "weight", recorded_weight),
        ):
            yield

    def _before(self, optimizer: AdamW) -> None:
        if not self.rates:
            for name, parameter in self._trainer.model.named_parameters():
                if parameter.grad is not None:
                    self.first[f"gradient/{name}"] = parameter.grad.numpy().copy()
        self.rates.append(float(optimizer.get_lr()))

    def _after(self) -> None:
        if len(self.rates) == 1:
            for name, parameter in self._trainer.model.named_parameters():
                self.first[f"weight/{name}"] = parameter.numpy().copy()
        step = self._trainer.state.global_step + 1
        for _ in range(step):
            self.draws["python"].append(random.gauss(0.0, 1.0))
            self.draws["numpy"].append(np.random.normal())
        if step == self._interrupt_after:
            signal.raise_signal(signal.SIGTERM)  # as the user or the system would


def record_run(destination: Path, interrupt_after: int, flags: Sequence[str]) -> int:
    """Train; the first process writes the record and, beside it, the first step's arrays.

    Returns:
        The command's status; 0 for a run that was interrupted where it was asked for.
    """
    recorder = StepRecorder(interrupt_after)
    summary: dict[str, Any] = {}
    with recorder.installed():
        # not `commands.program`, which leaves a process of several before the record is written
        status = exit_status(
            "train_glue", lambda: summary.update(run_config(parse(TrainConfig, flags))["train"])
        )
    if interrupt_after:
        status = {TERMINATED: 0, 0: 1}.get(status, status)
    if status == 0 and distributed.rank() == 0:
        record = {name: getattr(recorder, name) for name in ("rates", "draws", "places")}
        record |= {"summary": summary, "processes": distributed.world_size()}
        destination.write_text(json.dumps(record), encoding="utf-8")
        np.savez(destination.with_suffix(".npz"), **recorder.first)
    return status


@contextlib.contextmanager
def settings_put_back() -> Iterator[None]:
    """Put back the precision, the device and the generators that a run of the trainer sets."""
    states, device = exact_state.random_states(), paddle.get_device()
    dtype = paddle.get_default_dtype()
    try:
        yield
    finally:
        paddle.set_default_dtype(dtype)
        paddle.set_device(device)
        exact_state.restore_random_states(states)


def main() -> int:
    """Run with the arguments of the command line; return the exit status."""
    destination, interrupt_after, *flags = sys.argv[1:]
    return distributed.leave(record_run(Path(destination), int(interrupt_after), flags))


if __name__ == "__main__":
    sys.exit(main())
