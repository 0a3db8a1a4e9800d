"""Long work on files that goes on after a kill: what was written, and the state to go on from."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from sot_paddle.atomic import write_atomically
from sot_paddle.data.errors import DataError
from sot_paddle.reading import read_object

STATE = "progress.json"
_KEYS = {"identity": dict, "stage": str, "values": dict, "sizes": dict}


class Journal:
    """Files of a folder that only grow, and a state that fits their recorded sizes.

    A kill between two records loses what was written since the first one: the files are cut to
    the recorded sizes, and the work goes on from the recorded state.

    Args:
        folder: made when it is not there.
        identity: what the result depends on, JSON-ready; another one than the recorded is refused.

    Attributes:
        stage: of the recorded state, "" at the beginning.
        values: of the recorded state.

    Raises:
        DataError: the folder belongs to a preparation with other options or data.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._identity = folder, json.loads(json.dumps(identity))
        self.stage, self.values = "", {}
        self._sizes: dict[str, int] = {}
        self._open: dict[str, BinaryIO] = {}
        if (folder / STATE).exists():
            state = read_object(folder / STATE, _KEYS)
            self._require_same(state["identity"])
            self.stage, self.values, self._sizes = state["stage"], state["values"], state["sizes"]

    def _require_same(self, saved: Mapping[str, Any]) -> None:
        names = sorted(set(saved) | set(self._identity))
        for name in names:
            if saved.get(name) != self._identity.get(name):
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
            "identity": self._identity,
            "stage": stage,
            "values": values,
            "sizes": self._sizes,
        }
        write_atomically(self.folder / STATE, json.dumps(content).encode())

    def close(self) -> None:
        """Close the files."""
        while self._open:
            self._open.popitem()[1].close()

    def drop(self, *names: str) -> None:
        """Remove files that are needed no more, and forget their sizes."""
        for name in names:
            if name in self._open:
                self._open.pop(name).close()
            self._sizes.pop(name, None)
            (self.folder / name).unlink(missing_ok=True)


def random_state(rng: random.Random) -> list[Any]:
    """The state of a generator, JSON-ready."""
    version, internal, gauss = rng.getstate()
    return [version, list(internal), gauss]


def restored_random(state: list[Any]) -> random.Random:
    """A generator in a state that `random_state` returned."""
    rng = random.Random()
    version, internal, gauss = state
    rng.setstate((version, tuple(internal), gauss))
    return rng
