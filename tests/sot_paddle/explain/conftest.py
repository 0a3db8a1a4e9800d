"""Tiny models and their folders."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny() -> types.ModuleType:
    """The neighbour that makes tiny models."""
    path = Path(__file__).with_name("tiny_models.py")
    spec = importlib.util.spec_from_file_location("tiny_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
