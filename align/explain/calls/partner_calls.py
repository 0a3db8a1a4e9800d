"""Edits of Paddle's calls after PyTorch's of the same functions: options compared by meaning."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from align.explain.calls.layer_words import partner_of, single
from align.explain.experiment import number
from align.frameworks import on_paddle, on_torch
from align.frameworks.called_torch import TorchCall
from align.frameworks.watched_calls import WatchedCall

FUNCTIONS = {
    "clamp": "clip",
    "amax": "max",
    "amin": "min",
    "huber_loss": "smooth_l1_loss",
    "multilabel_soft_margin_loss": "multi_label_soft_margin_loss",
}
"""PyTorch's name of a function -> Paddle's, where they differ."""
SILENT = frozenset(("x", "y", "input", "logit", "other", "label", "labels", "shape", "training"))
"""Arguments that are data, or the mode of a model."""
MEANS = {("ctc_loss", "mean"): " (each divided by the length of its target)"}
"""What a value of an option means, where its word does not say it."""


class OtherArgument(NamedTuple):
    """An argument that differs: Paddle's word, Paddle's value, PyTorch's in Paddle's meaning."""

    word: str
    own: Any
    value: Any


def changes(
    call: WatchedCall, ours: Sequence[WatchedCall], theirs: Sequence[TorchCall]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments of a call set to PyTorch's, in words: one, two, then all that differ.

    Args:
        call: one of ours.
        ours: the watched calls of one run.
        theirs: PyTorch's; the one of the same number counts, all where there are more or fewer.
    """
    same = [one.number for one in ours if one.name == call.name]
    found = [one for one in theirs if FUNCTIONS.get(one.name, one.name) == call.name]
    if len(same) == len(found):
        found = [found[same.index(call.number)]]
    told = {}
    for partner in found:
        apart = list(_differences(call, partner.arguments))
        for count in (1, 2, len(apart)):
            for some in itertools.combinations(apart, count) if apart else ():
                values = {one.word: one.value for one in some}
                told.setdefault(_sentence(call.name, some), values)
    yield from told.items()


def _differences(call: WatchedCall, theirs: dict[str, Any]) -> Iterator[OtherArgument]:
    for word, own in call.arguments().items():
        other, convert = partner_of(word, theirs)
        if other not in theirs or word in SILENT:
            continue
        own, value = (_plain(one) for one in (own, theirs[other]))
        if not (_is_option(own) and _is_option(value)):
            continue
        value = False if value is None and isinstance(own, bool) else value
        value = value if convert is None or value is None else convert(value)
        if word == "axis" and isinstance(own, int) and isinstance(value, int):
            rank = len(getattr(call.args[0], "shape", ()))
            own, value = (axis + rank * (axis < 0) for axis in (own, value))
        if not _same(own, value):
            yield OtherArgument(word, own, value)


def _plain(value: Any) -> Any:
    """Tensors as arrays, pairs of equal numbers as the number."""
    for side in (on_paddle, on_torch):
        if side.is_tensor(value):
            array = side.numpy(value)
            return array if array.ndim else array.item()
    return single(value)


def _is_option(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    parts = value if isinstance(value, (list, tuple)) else [value]
    return all(one is None or isinstance(one, (bool, int, float, str)) for one in parts)


def _same(own: Any, value: Any) -> bool:
    if isinstance(own, str) != isinstance(value, str) and None not in (own, value):
        return True  # no values of one option
    a, b = np.asarray(own), np.asarray(value)
    numbers = a.dtype.kind in "biuf" and b.dtype.kind in "biuf"
    return a.shape == b.shape and bool(np.allclose(a, b, 1e-12, 0) if numbers else (a == b).all())


def _sentence(name: str, some: Sequence[OtherArgument]) -> str:
    for one, other in itertools.permutations(some, 2):
        if one.own is None and other.value is None and _same(other.own, one.value):
            return (
                f"{one.word} of {name}: Paddle has it as {other.word} ({_shown(name, other.own)})"
            )
    sides = [(one.word, _shown(name, one.own), _shown(name, one.value)) for one in some]
    return "; ".join(f"{word} of {name}: Paddle has {a}, PyTorch {b}" for word, a, b in sides)


def _shown(name: str, value: Any) -> str:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return number(value) + MEANS.get((name, str(value)), "")
