"""The batches of a training run as a user gives them: (inputs, labels), checked one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from align.record.casting import is_array
from align.record.nested import leaves


def is_pair(given: Any) -> bool:
    """A tuple or a list of two."""
    return isinstance(given, (tuple, list)) and len(given) == 2


def given_inputs(title: str, given: Any) -> Any:
    """Inputs as a tuple (by position) or a mapping (by keyword).

    Args:
        title: what they are, for the message.
        given: an array, or a tuple, list or mapping of arrays and plain values.

    Raises:
        ValueError: anything else, or nothing in it.
    """
    if isinstance(given, np.ndarray):
        return (given,)
    if not isinstance(given, (tuple, list, Mapping)) or not given:
        raise ValueError(
            f"{title}: got {type(given).__name__}, expected NumPy arrays in a tuple (by "
            "position) or a dict (by keyword)"
        )
    return given


def read_batches(given: Any, steps: int, inputs: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    """The batches of the first steps, each as (inputs, labels).

    Args:
        given: an iterable of pairs, or a callable without arguments that returns one.
        steps: how many are read at most.
        inputs: those of the request: every batch has arrays under the same names.
        labels: those of the request: every batch has some, or none has.

    Raises:
        ValueError: no steps, no batch, or one of another form.
    """
    if not steps:
        raise ValueError("batches= needs optimizer= and steps=: they are for training")
    given = given() if callable(given) else given
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise ValueError(
            f"batches: got {type(given).__name__}, expected a sequence of (inputs, labels)"
        )
    read = list(itertools.islice(given, steps))
    if not read:
        raise ValueError("batches: there is none; leave batches= out to train on inputs=")
    for number, batch in enumerate(read):
        yield _checked(f"batches[{number}]", batch, inputs, labels)


def _checked(title: str, batch: Any, inputs: Any, labels: Any) -> tuple[Any, Any]:
    if not is_pair(batch):
        raise ValueError(
            f"{title} is a {type(batch).__name__}, expected a pair (inputs, labels); labels are "
            "None without a loss that takes some"
        )
    if (batch[1] is None) != (labels is None):
        own, asked = ("has labels", "has none") if labels is None else ("has none", "has some")
        raise ValueError(f"{title} {own}, labels= {asked}")
    fed = given_inputs(title, batch[0])
    names, expected = (", ".join(p for p, _ in leaves(x, is_array)) for x in (fed, inputs))
    if names != expected:
        raise ValueError(
            f"{title} has the inputs {names or 'none'}, inputs= has {expected or 'none'}"
        )
    return fed, batch[1]


def exchanged(batches: Sequence[Any], step: int = 1) -> tuple[int, list[Any]]:
    """The batches with the first and the first other one exchanged.

    Args:
        batches: from `read_batches`.
        step: batches of one step, within which the order does not matter.

    Returns:
        Number of that other one, and the batches in the new order; (0, []) when all are alike.
    """
    for number, batch in enumerate(batches):
        if number >= step and not _alike(batch, batches[0]):
            return number, [batch, *batches[1:number], batches[0], *batches[number + 1 :]]
    return 0, []


def _alike(one: Any, other: Any) -> bool:
    pairs = zip(leaves(one, is_array), leaves(other, is_array), strict=True)
    return all(np.array_equal(a, b) for (_, a), (_, b) in pairs)
