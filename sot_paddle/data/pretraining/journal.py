"""Long work on files that goes on after a kill: what was written, and the state to go on from."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sot_paddle.atomic import write_atomically
from sot_paddle.config import some
from sot_paddle.data.errors import DataError
from sot_paddle.reading import read_object, shown

STATE = "progress.json"
SECONDS = 5.0
"""From one record of the state to the next."""

_LOCK = "run.lock"  # of the command that holds the folder
_KEYS = {"identity": dict, "stage": str, "values": dict, "sizes": dict}


class Journal:
    """Files of a folder that only grow, and a state that fits their recorded sizes.

    A kill between two records loses what was written since the first one: the files are cut to
    the recorded sizes, and the work goes on from the recorded state. `contextlib.closing` closes
    the files.

    Args:
        folder: made when it is not there.
        identity: what the result depends on, JSON-ready; another one than the recorded is refused.

    Attributes:
        identity: as it is recorded; older versions recorded more.
        stage: of the recorded state, "" at the beginning.
        values: of the recorded state.

    Raises:
        DataError: the folder belongs to a preparation with other options or data, or to none and
            is not empty.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.identity = folder, json.loads(json.dumps(identity))
        self.stage, self.values = "", {}
        self._sizes: dict[str, int] = {}
        self._open: dict[str, BinaryIO] = {}
        self._recorded = time.monotonic()
        if (folder / STATE).exists():
            state = read_object(folder / STATE, _KEYS)
            if state["stage"]:  # else nothing is kept of what was begun
                self.require_same(state["identity"], self.identity)
                self.identity = state["identity"]
            self.stage, self.values, self._sizes = state["stage"], state["values"], state["sizes"]
        else:
            self._require_empty()
            self.save("")

    def _require_empty(self) -> None:
        """Files are cut, and removed in the end: none of them may be somebody else's."""
        held = sorted(path.name for path in self.folder.iterdir() if path.name != _LOCK)
        names = [name for name in held if not name.startswith(".")]
        if names:
            raise DataError(
                f"{shown(self.folder)}: expected an empty folder or a preparation to continue, "
                f"found {some(names)}; choose another folder"
            )

    def require_same(self, saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Refuse options or data that differ from the recorded ones, by name.

        Args:
            saved: the recorded ones.
            given: JSON-ready.

        Raises:
            DataError: one of them differs.
        """
        given = json.loads(json.dumps(given))
        for name in sorted(given):
            if saved.get(name) != given[name]:
                raise DataError(
                    f"{self.folder} was begun with another {name}: repeat the command that began "
                    "it, or choose another folder"
                )

    def file(self, name: str) -> BinaryIO:
        """A file to append to, cut to its recorded size; empty where none is recorded."""
        if name not in self._open:
            stream = open(self.folder / name, "ab")  # noqa: SIM115 (closed by `close`)
            recorded = self._sizes.get(name, 0)
            if os.fstat(stream.fileno()).st_size < recorded:
                stream.close()
                raise DataError(
                    f"{self.folder / name} is missing or cut off: delete {self.folder} and run "
                    "the same command again"
                )
            stream.truncate(recorded)
            stream.seek(recorded)
            self._open[name] = stream
        return self._open[name]

    def due(self) -> bool:
        """Whether it is time to record the state again."""
        return time.monotonic() - self._recorded >= SECONDS

    def save(self, stage: str, **values: Any) -> None:
        """Record a state that fits what has been written so far.

        Args:
            stage: of the work.
            values: JSON-ready.
        """
        for name, stream in self._open.items():
            stream.flush()
            os.fsync(stream.fileno())
            self._sizes[name] = os.fstat(stream.fileno()).st_size
        self.stage, self.values = stage, values
        content = {
            "identity": self.identity,
            "stage": stage,
            "values": values,
            "sizes": self._sizes,
        }
        write_atomically(self.folder / STATE, json.dumps(content).encode())
        self._recorded = time.monotonic()

    def close(self) -> None:
        """Close the files."""
        while self._open:
            self._open.popitem()[1].close()

    def drop(self, name: str) -> None:
        """Remove a file that is needed no more, and forget its size."""
        if name in self._open:
            self._open.pop(name).close()
        self._sizes.pop(name, None)
        (self.folder / name).unlink(missing_ok=True)


def restored_random(state: Sequence[Any]) -> random.Random:
    """A generator in a state that `random.Random.getstate` returned, in JSON or not."""
    rng = random.Random()
    version, internal, gauss = state
    rng.setstate((version, tuple(internal), gauss))
    return rng
