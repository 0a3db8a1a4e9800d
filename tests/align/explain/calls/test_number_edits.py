"""One number of a call, fitted."""

from __future__ import annotations

import math

import pytest

from align.explain.calls.number_edits import _root


def test_the_number_is_found_in_few_digits() -> None:
    assert _root(1.0, lambda value: value - 2.5) == 2.5


@pytest.mark.parametrize("beyond", [math.nan, math.inf])
def test_a_search_that_meets_no_number_ends(beyond: float) -> None:
    """A power of a negative number is one for whole exponents alone."""

    def miss(value: float) -> float:
        return -1.0 if value < 1.8 else 1.0 if value > 2.9 else beyond

    found = _root(1.0, miss)
    assert found is None or 1.7 <= found <= 3.0
