"""Scalars for TensorBoard, beside VisualDL's and under the same names, where it is installed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddlenlp.trainer import TrainerCallback
from paddlenlp.trainer.integrations import rewrite_logs

from sot_paddle.train import run_record


def _formats() -> tuple[Callable[[Path], Any], Any] | None:
    """What opens an event file, and the class of an event; None where nothing is installed."""
    with contextlib.suppress(ImportError):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        return lambda path: RecordWriter(path.open("xb")), Event
    with contextlib.suppress(ImportError):
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import RecordWriter

        return lambda path: RecordWriter(str(path)), Event
    return None


class TensorBoardLogs(TrainerCallback):
    """Writes loss, rate and scores; nothing where neither tensorboard nor tensorboardX is there.

    Args:
        folder: receives the event file, whose name the output folder's record knows first.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._formats, self._file = folder, _formats(), None

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Open a file of this run's own, on the first process."""
        if self._formats is None or not state.is_world_process_zero:
            return
        open_file, _ = self._formats
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        run_record.note(self._folder.parent, [f"{self._folder.name}/{name}"])
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = open_file(self._folder / name)
        self._write(file_version="brain.Event:2")

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:
        """Write the numbers of a log entry."""
        if self._file is None or not logs:
            return
        values = [
            {"tag": name, "simple_value": float(value)}
            for name, value in rewrite_logs(logs).items()
            if isinstance(value, int | float)
        ]
        self._write(step=state.global_step, summary={"value": values})
        self._file.flush()

    def _write(self, **content: Any) -> None:
        event = self._formats[1](wall_time=time.time(), **content)
        self._file.write(event.SerializeToString())

    def on_train_end(self, args, state, control, **kwargs) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
