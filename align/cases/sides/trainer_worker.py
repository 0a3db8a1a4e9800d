"""Run the GLUE trainer as a user would and note what its optimizer does.

Kept are the rate of every optimizer step, random numbers drawn after it (as many as there were
steps: a run that continues has to go on with them) and, of the first one, the gradients that it is
given (after accumulation and reduction, before clipping) and the weights that it leaves; and the
place of each micro-batch by which its loss is weighted. A program of its own, alone or by
``paddle.distributed.launch``: ``python trainer_worker.py RECORD.json INTERRUPT_AFTER flags of
train_glue ...``; or `record_run` in the caller's process.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import sot_paddle  # noqa: E402, F401 (tunes the CPU before Paddle is loaded)

# isort: split
import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle.optimizer import AdamW  # noqa: E402 (whose step HFAdamW has too)

from align.frameworks.swapping import set_to  # noqa: E402
from sot_paddle import distributed  # noqa: E402
from sot_paddle.command_line import parse  # noqa: E402
from sot_paddle.failures import TERMINATED, exit_status  # noqa: E402
from sot_paddle.train.feeding import MicroBatches  # noqa: E402
from sot_paddle.train.text_command import COMMAND, run_config  # noqa: E402
from sot_paddle.train.trainer import ExactTrainer  # noqa: E402


class StepRecorder:
    """Notes what the optimizer steps of a run use, and interrupts it when asked to.

    Args:
        interrupt_after: optimizer step of the whole run after which it is interrupted, 0 for none.
    """

    def __init__(self, interrupt_after: int = 0) -> None:
        self.rates: list[float] = []
        self.stamp: dict[str, str] = {}
        self.first: dict[str, np.ndarray] = {}
        self.draws: dict[str, list[float]] = {"python": [], "numpy": []}
        self.places: list[tuple[int, int]] = []
        self._interrupt_after = interrupt_after
        self._trainer: ExactTrainer | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the optimizer's step by one that records, for the length of the block."""
        step, begin = AdamW.step, ExactTrainer.create_optimizer_and_scheduler
        weight = MicroBatches.weight

        def recording(optimizer: AdamW) -> None:
            self._before(optimizer)
            step(optimizer)
            self._after()

        def begun(trainer: ExactTrainer, num_training_steps: int) -> None:
            self._trainer = trainer
            begin(trainer, num_training_steps)

        def weighted(batches: MicroBatches, epoch: int, batch: int) -> float:
            self.places.append((epoch, batch))
            return weight(batches, epoch, batch)

        started = (ExactTrainer, "create_optimizer_and_scheduler", begun)
        with set_to([(AdamW, "step", recording), started, (MicroBatches, "weight", weighted)]):
            yield

    def _before(self, optimizer: AdamW) -> None:
        parameter = optimizer._parameter_list[0]
        self.stamp = {
            "framework": type(parameter).__module__.split(".")[0],
            "version": paddle.__version__,
            "device": str(parameter.place),
            "processes": str(distributed.world_size()),
        }
        if not self.rates:
            for name, parameter in self._trainer.model.named_parameters():
                if parameter.grad is not None:
                    self.first[f"gradient/{name}"] = parameter.grad.numpy().copy()
        self.rates.append(float(optimizer.get_lr()))

    def _after(self) -> None:
        if len(self.rates) == 1:
            for name, parameter in self._trainer.model.named_parameters():
                self.first[f"weight/{name}"] = parameter.numpy().copy()
        for _ in range(self._trainer.state.global_step + 1):
            self.draws["python"].append(random.gauss(0.0, 1.0))
            self.draws["numpy"].append(np.random.normal())
        if self._trainer.state.global_step + 1 == self._interrupt_after:
            signal.raise_signal(signal.SIGTERM)  # as the user or the system would


def record_run(destination: Path, interrupt_after: int, flags: Sequence[str]) -> int:
    """Train; the first process writes the record and, beside it, the first step's arrays.

    Returns:
        The command's status; 0 for a run that was interrupted where it was asked for.
    """
    recorder = StepRecorder(interrupt_after)
    with recorder.installed():
        # as run_command, which would leave a process of several before the record is written
        status = exit_status("train_glue", lambda: run_config(parse(COMMAND, flags)))
    if interrupt_after:
        status = {TERMINATED: 0, 0: 1}.get(status, status)
    if status == 0 and distributed.rank() == 0:
        record = {name: getattr(recorder, name) for name in ("rates", "stamp", "draws", "places")}
        destination.write_text(json.dumps(record), encoding="utf-8")
        np.savez(destination.with_suffix(".npz"), **recorder.first)
    return status


def main() -> int:
    """The program."""
    destination, interrupt_after, *flags = sys.argv[1:]
    return distributed.leave(record_run(Path(destination), int(interrupt_after), flags))


if __name__ == "__main__":
    sys.exit(main())
