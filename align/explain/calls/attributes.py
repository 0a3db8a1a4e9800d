"""Options of a wrong layer that have another value than PyTorch's of the same name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from align.explain.calls.trials import Bench
from align.pair.any_pair import AnyPair

NAMES = {"epsilon": "eps", "inplace": "", "training": "", "name": "", "p": "p"}
"""Paddle's word -> PyTorch's; "" for what says nothing."""


def repairs(pair: AnyPair, bench: Bench) -> Iterator[tuple[str, AbstractContextManager]]:
    """Each option that differs set to PyTorch's value."""
    _, module, _ = pair.layer(bench.key)
    if module is None:
        return
    theirs = {_plain(name): value for name, value in vars(module).items() if _simple(value)}
    wrong: dict[str, tuple[str, Any]] = {}
    for name, own in list(vars(bench.layer).items()):
        word = NAMES.get(_plain(name), _plain(name))
        if word not in theirs or not _simple(own) or _same(own, theirs[word]):
            continue
        value = theirs[word]
        said = f"{word}: Paddle's layer has {_shown(own)}, PyTorch's {_shown(value)}"
        wrong[name] = said, _like(own, value)
        yield (
            f"{said}; with {_shown(value)} it agrees",
            _set(bench.layer, {name: _like(own, value)}),
        )
    if len(wrong) > 1:
        said = "; ".join(text for text, _ in wrong.values())
        values = {name: value for name, (_, value) in wrong.items()}
        yield f"{said}; with PyTorch's values it agrees", _set(bench.layer, values)


@contextlib.contextmanager
def _set(layer: Any, values: dict[str, Any]):
    before = {name: getattr(layer, name) for name in values}
    for name, value in values.items():
        setattr(layer, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(layer, name, value)


def _plain(name: str) -> str:
    return name.lstrip("_").lower()


def _simple(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return 0 < len(value) <= 4 and all(isinstance(one, (int, float)) for one in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _same(a: Any, b: Any) -> bool:
    return _single(a) == _single(b)


def _single(value: Any) -> Any:
    """A pair of equal numbers as the number."""
    if isinstance(value, (list, tuple)) and all(one == value[0] for one in value):
        return value[0]
    return value


def _like(own: Any, value: Any) -> Any:
    """PyTorch's value in the form in which Paddle's layer holds it."""
    if isinstance(own, (list, tuple)) and not isinstance(value, (list, tuple)):
        return type(own)([value] * len(own))
    return type(own)(value) if isinstance(own, (list, tuple)) else value


def _shown(value: Any) -> str:
    value = _single(value)
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
