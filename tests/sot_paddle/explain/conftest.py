"""Tiny models and their folders."""

from __future__ import annotations

import types

import pytest

from tests.sot_paddle.explain import tiny_models


@pytest.fixture(scope="session")
def tiny() -> types.ModuleType:
    """The neighbour that makes tiny models."""
    return tiny_models
