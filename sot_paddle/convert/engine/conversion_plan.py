"""The plan of a conversion: every tensor's source, destination and transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sot_paddle.config import some
from sot_paddle.convert.engine.transforms import KINDS


@dataclass(frozen=True)
class PlanEntry:
    """One tensor's way.

    Args:
        source: name in the file that is read.
        destination: name in the file that is written.
        transform: ``"copy"``, ``"transpose"``, ``"squeeze+transpose"``.
        source_shape: axis lengths of the source, whole.
        destination_shape: axis lengths of the destination, whole.
        kind: layer kind, key of `sot_paddle.convert.engine.transforms.KINDS`.
    """

    source: str
    destination: str
    transform: str
    source_shape: tuple[int, ...]
    destination_shape: tuple[int, ...]
    kind: str


@dataclass(frozen=True)
class ConversionPlan:
    """What a conversion does, tensor by tensor.

    Args:
        layout: layout name.
        model: registry name.
        head: head found in the file.
        reverse: from Paddle to PyTorch.
        depth: number of layers, of all stages together.
        prefix: what stands for the layout's optional prefix on the PyTorch side.
        entries: every tensor that is converted.
        ignored: source name -> reason.
        absent: destinations of the task head for which there is no source.
        counters: destinations written as an int64 zero (reverse only).
        sizes: symbol of the table -> its value, with all that the shapes tell.
        depths: number of layers of each stage; one number for a backbone without stages.
        embed: token embedding found in the file, "" for a family without choice of it.
    """

    layout: str
    model: str
    head: str
    reverse: bool
    depth: int
    prefix: str
    entries: tuple[PlanEntry, ...]
    ignored: Mapping[str, str]
    absent: tuple[str, ...]
    counters: tuple[str, ...]
    sizes: Mapping[str, int]
    depths: tuple[int, ...] = ()
    embed: str = ""

    def apply(
        self, arrays: Mapping[str, np.ndarray], *, partial: bool = False
    ) -> dict[str, np.ndarray]:
        """Convert arrays that follow the plan's source names.

        Args:
            arrays: source name -> array of the planned shape, any dtype.
            partial: convert only what is there (gradients, moments); counters are left out.

        Returns:
            Destination name -> array; views of the input where no data moves.

        Raises:
            ValueError: a name that the plan does not have, a wrong shape, or (unless partial) a
                missing tensor.
        """
        planned = {entry.source: entry for entry in self.entries}
        unknown = [name for name in arrays if name not in planned and name not in self.ignored]
        missing = [name for name in planned if name not in arrays]
        if unknown:
            raise ValueError(f"not in the plan: {some(unknown)}")
        if missing and not partial:
            raise ValueError(f"missing: {some(missing)}")
        for name, entry in planned.items():
            if name in arrays and tuple(arrays[name].shape) != entry.source_shape:
                raise ValueError(
                    f"{name}: expected shape {entry.source_shape}, got {arrays[name].shape}"
                )
        converted = {
            entry.destination: self.convert(entry.destination, arrays)
            for entry in self.entries
            if entry.source in arrays
        }
        if not partial:
            converted.update({name: np.zeros((), np.int64) for name in self.counters})
        return converted

    def names(self) -> dict[str, Mapping]:
        """The plan as a table of names, PyTorch's to Paddle's, whichever way it converts.

        Returns:
            What ``weights=`` of a comparison takes: ``map`` (PyTorch name -> where it goes and how
            it is laid out), and the reasons of what is left out on the side that is read.
        """
        table = {}
        for entry in self.entries:
            ends = (entry.source, entry.destination)
            torch_name, paddle_name = reversed(ends) if self.reverse else ends
            table[torch_name] = {"to": paddle_name, "transform": entry.transform}
        side = "ignore_paddle" if self.reverse else "ignore_torch"
        return {"map": table, side: dict(self.ignored)}

    @property
    def destination_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the converted tensors by name, counters left out."""
        return {entry.destination: entry.destination_shape for entry in self.entries}

    @cached_property
    def by_destination(self) -> Mapping[str, PlanEntry]:
        """Destination -> its entry."""
        return {entry.destination: entry for entry in self.entries}

    def convert(self, destination: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Make one destination tensor.

        Args:
            destination: its name.
            arrays: source name -> array.

        Returns:
            The converted array, a view where no data moves.
        """
        entry = self.by_destination[destination]
        transform = KINDS[entry.kind]
        move = transform.reverse if self.reverse else transform.forward
        return move(arrays[entry.source])


def by_reason(reasons: Mapping[str, str]) -> list[str]:
    """``names (reason)`` for each reason; of more than four names the first and a count."""
    together: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        together.setdefault(reason, []).append(name)
    return [
        (", ".join(names) if len(names) <= 4 else f"{names[0]} and {len(names) - 1} more")
        + f" ({reason})"
        for reason, names in together.items()
    ]
