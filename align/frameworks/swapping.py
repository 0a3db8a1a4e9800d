"""Other values of attributes for the length of a ``with`` block, above all a framework's functions.

A function is replaced under every name that holds it: in the framework's own modules, in its
tensor class, and in the modules that define the layers of a model, which may have imported it by
name. No framework here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

Place = tuple[Any, str]


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


def swapped(
    replacements: Mapping[Callable, Callable], package: str, owners: Iterable[Any]
) -> AbstractContextManager[None]:
    """Replace functions everywhere they are held, then put them back.

    Args:
        replacements: original -> replacement.
        package: the framework's top-level package.
        owners: further modules and classes to look into.
    """
    originals = tuple(replacements)
    places = list(_in_package(originals, package, len(sys.modules)))
    for owner in owners:
        places += [place for place in _holding(owner, originals) if place not in places]
    return set_to((owner, name, replacements[vars(owner)[name]]) for owner, name in places)


def modules_of(layers: Iterable[Any]) -> list[Any]:
    """The Python modules that define the classes of some layers, and their base classes."""
    names = {kind.__module__ for layer in layers for kind in type(layer).__mro__}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


@functools.lru_cache(maxsize=8)
def _in_package(originals: tuple[Callable, ...], package: str, _: int) -> tuple[Place, ...]:
    """Looked up again only when modules have been imported in between."""
    names = [n for n in list(sys.modules) if n == package or n.startswith(f"{package}.")]
    found = [place for n in names for place in _holding(sys.modules[n], originals)]
    return tuple(found)


def _holding(owner: Any, originals: tuple[Callable, ...]) -> list[Place]:
    known = {id(function) for function in originals}
    return [(owner, name) for name, value in list(vars(owner).items()) if id(value) in known]
