"""Run the GLUE trainer as a user would and note the rate that every optimizer step applied.

Started by the step ``trainer_run`` as a program of its own, alone or by
``paddle.distributed.launch``: ``python trainer_worker.py RECORD.json flags of train_glue ...``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sot_paddle  # noqa: E402, F401 (tunes the CPU before Paddle is loaded)

# isort: split
import paddle  # noqa: E402

from sot_paddle.train import distributed  # noqa: E402
from sot_paddle.train.command_line import parse  # noqa: E402
from sot_paddle.train.failures import exit_status  # noqa: E402
from sot_paddle.train.optimizer import HFAdamW  # noqa: E402
from sot_paddle.train.session import run_config  # noqa: E402


class RateRecorder:
    """Wraps ``HFAdamW.step`` and keeps the rate it uses and whose tensors it updates."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.stamp: dict[str, str] = {}
        self._step = HFAdamW.step

    def install(self) -> None:
        """Replace the optimizer's step by one that records first."""
        recorder = self

        def step(optimizer: HFAdamW) -> None:
            recorder.rates.append(float(optimizer.get_lr()))
            parameter = optimizer._parameter_list[0]
            recorder.stamp = {
                "framework": type(parameter).__module__.split(".")[0],
                "version": paddle.__version__,
                "device": str(parameter.place),
                "processes": str(distributed.world_size()),
            }
            recorder._step(optimizer)

        HFAdamW.step = step


def _no_conversion(place: Path, model: str) -> dict:
    raise ValueError(f"{place}: expected a converted folder for {model}")


def main() -> int:
    """Train; the first process writes the rates."""
    destination, *flags = sys.argv[1:]
    recorder = RateRecorder()
    recorder.install()
    # as run_command, which would leave a process of several before the record is written
    status = exit_status("train_glue", lambda: run_config(parse(flags), _no_conversion))
    if status == 0 and distributed.rank() == 0:
        record = {"learning_rates": recorder.rates, "stamp": recorder.stamp}
        Path(destination).write_text(json.dumps(record), encoding="utf-8")
    return distributed.leave(status)


if __name__ == "__main__":
    sys.exit(main())
