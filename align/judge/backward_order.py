"""Gradients in the order in which a backward pass makes them, and where they stop being right.

A wrong forward pass spoils every gradient; the forward step says where it begins. A wrong or cut
backward pass spoils the gradients between the fault and the input: the first wrong one, counted
from the loss, lies next to the fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator

from align.record.results import Comparison


def say_where_it_ends(
    comparisons: Iterable[Comparison], expected: Container[str]
) -> Iterator[Comparison]:
    """Pass comparisons in backward order on; the first failed one also says between which layers.

    Args:
        comparisons: of gradients, those of the last executed layer first.
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
