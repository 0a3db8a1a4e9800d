"""Named tensors of a model as plain data: who owns them, of what type, under which other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One name in a state dict.

    Args:
        name: full dotted name.
        shape: of the tensor.
        dtype: "float32", "int64", ...
        owner: dotted name of the module that holds it, "" for the model itself.
        types: qualified class names of the owner, the class first, then its bases.
        trainable: an optimizer would move it.
        buffer: not a parameter (running statistics, tables).
        identity: equal for names of one and the same tensor (tied parameters).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    owner: str
    types: tuple[str, ...]
    trainable: bool
    buffer: bool
    identity: int

    @property
    def leaf(self) -> str:
        """The last component of the name."""
        return self.name.rpartition(".")[2]


def canonical(entries: Sequence[Entry]) -> dict[str, str]:
    """Every name -> the first name of its tensor."""
    first: dict[int, str] = {}
    return {entry.name: first.setdefault(entry.identity, entry.name) for entry in entries}


def qualified_types(owner: object) -> tuple[str, ...]:
    """Qualified names of an object's class and its bases, most derived first."""
    return tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in type(owner).__mro__)


def once(held: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a state dict, each under the first of its names."""
    first: dict[int, str] = {}
    for name, tensor in held.items():
        first.setdefault(id(tensor), name)
    return {name: held[name] for name in first.values()}
