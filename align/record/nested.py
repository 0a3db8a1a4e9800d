"""Tensors inside tuples, lists, dicts and records: find them in order, put others in their place.

No framework: what counts as a tensor is the caller's predicate.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Leaf = tuple[str, Any]
"""Path inside the structure ("" for the structure itself, "0", "hidden", "1.key") and value."""


def leaves(value: Any, is_leaf: Callable[[Any], bool]) -> list[Leaf]:
    """Every leaf with its path, depth first in the order of the structure.

    Args:
        value: any nesting of tuples, lists, mappings and dataclasses; other objects are skipped.
        is_leaf: which objects to collect.
    """
    return list(_walk(value, is_leaf, ""))


def _walk(value: Any, is_leaf: Callable[[Any], bool], path: str) -> Iterator[Leaf]:
    if is_leaf(value):
        yield path, value
        return
    for key, item in _items(value):
        yield from _walk(item, is_leaf, f"{path}.{key}" if path else str(key))


def _items(value: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a container, nothing for any other object."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return []


def replace(value: Any, is_leaf: Callable[[Any], bool], change: Callable[[str, Any], Any]) -> Any:
    """The same structure with every leaf passed through ``change(path, leaf)``."""
    return _replace(value, is_leaf, change, "")


def _replace(value: Any, is_leaf: Callable, change: Callable, path: str) -> Any:
    if is_leaf(value):
        return change(path, value)
    items = _items(value)
    if not items:
        return value
    changed = {
        key: _replace(item, is_leaf, change, f"{path}.{key}" if path else str(key))
        for key, item in items
    }
    if all(changed[key] is item for key, item in items):
        return value
    if isinstance(value, Mapping):
        held = copy.copy(value)
        for key, item in changed.items():
            held[key] = item
        return held
    if isinstance(value, tuple):
        parts = list(changed.values())
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, list):
        return type(value)(changed.values())
    return dataclasses.replace(value, **changed)


def pick(value: Any, path: str) -> Any:
    """The part of a nested structure under a dotted path ("logits", "1.0"), "" for all of it.

    A number counts the items of any container; the first item of a single tensor is the tensor.

    Raises:
        ValueError: there is no such part; says what there is.
    """
    for key in filter(None, path.split(".")):
        items = {str(name): item for name, item in _items(value)}
        by_place = dict(enumerate(items.values() if items else [value]))
        if key in items:
            value = items[key]
        elif key.isdigit() and int(key) in by_place:
            value = by_place[int(key)]
        elif hasattr(value, key):
            value = getattr(value, key)
        else:
            names = ", ".join(items) or f"one {type(value).__name__}"
            raise ValueError(f"outputs: no {key!r} in what the model returns: {names}")
    return value


def pair_leaves(
    reference: list[Leaf], ours: list[Leaf]
) -> tuple[list[tuple[str, Any, Any]], list[str], list[str]]:
    """Pairs the leaves of two outputs: by path when both have the same ones, else by position.

    Args:
        reference: leaves of the reference's output.
        ours: leaves of ours.

    Returns:
        (label, reference's leaf, ours) for each pair, then the paths left over on each side. The
        label is "" when there is one leaf on both sides.
    """
    paths, own = [path for path, _ in reference], [path for path, _ in ours]
    if set(paths) == set(own):
        held = dict(ours)
        pairs = [(path, value, held[path]) for path, value in reference]
    else:
        pairs = [(r[0], r[1], o[1]) for r, o in zip(reference, ours, strict=False)]
    if len(reference) == len(ours) == 1:
        pairs = [("", pairs[0][1], pairs[0][2])]
    count = len(pairs)
    return pairs, paths[count:], own[count:]
