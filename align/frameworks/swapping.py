"""Other values of attributes for the length of a ``with`` block. No framework here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any


@contextlib.contextmanager
def set_to(values: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Other values of attributes, each (owner, name, value), for the length of a ``with`` block."""
    values = list(values)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in values]
    try:
        for one in values:
            setattr(*one)
        yield
    finally:
        for one in before:
            setattr(*one)


def attributes(owner: Any, **values: Any) -> AbstractContextManager[None]:
    """The same of one object."""
    return set_to((owner, name, value) for name, value in values.items())


def modules_of(layers: Iterable[Any]) -> list[Any]:
    """The Python modules that define the classes of some layers, and their base classes."""
    names = {kind.__module__ for layer in layers for kind in type(layer).__mro__}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]
