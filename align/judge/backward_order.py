"""Gradients in the order in which a backward pass makes them, and where they stop being right.

A wrong forward pass spoils every gradient; the forward step says where it begins. A wrong or cut
backward pass spoils the gradients between the fault and the input: the first wrong one, counted
from the loss, lies next to the fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TypeVar

from align.record.results import Comparison
from align.weights.engine.conversion_plan import PlanEntry

Value = TypeVar("Value")


def backward_order(
    gradients: Mapping[str, Value], registered: Iterable[str], entries: Iterable[PlanEntry]
) -> dict[str, Value]:
    """Gradients from the loss to the input.

    Args:
        gradients: by Paddle's name, in any order; names in parentheses are inputs of the model.
        registered: the reference's names in the order in which it registers its parameters, which
            is that of execution (a root's own parameters come first, as if they were its input).
        entries: of the conversion plan, from the reference's names to Paddle's.

    Returns:
        The same items, the last executed layer first, the inputs last.
    """
    destination = {entry.source: entry.destination for entry in entries}
    names = dict.fromkeys(destination.get(name, name) for name in registered)
    place = {name: position for position, name in enumerate(names)}
    return dict(sorted(gradients.items(), key=lambda item: (item[0][0] == "(", -place[item[0]])))


def say_where_it_ends(
    comparisons: Iterable[Comparison], expected: Container[str]
) -> Iterator[Comparison]:
    """Pass comparisons in backward order on; the first failed one also says between which layers.

    Args:
        comparisons: of gradients, in :func:`backward_order`.
        expected: names that the reference has a gradient of; what is beside them has no place.

    Yields:
        The same; the first failed one's reason names the layer up to which every gradient is right
        and the first with a wrong or missing one.
    """
    right, failed = "the loss itself", False
    for comparison in comparisons:
        layer = comparison.name.rpartition(".")[0] or comparison.name
        if comparison.passed:
            right = layer
        elif not failed and comparison.name in expected:
            failed = True
            where = f"going back from the loss, the last right gradient is of {right}"
            reason = f"{comparison.reason}; {where}, the first wrong one of {layer}"
            comparison = dataclasses.replace(comparison, reason=reason)
        yield comparison
