"""The suite on a GPU."""

from __future__ import annotations

import pytest


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_case_of_the_project(exactly, dtype):
    exactly("-m", "align", "--dtype", dtype)
