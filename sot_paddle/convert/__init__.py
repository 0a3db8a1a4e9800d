"""Weight conversion between PyTorch checkpoints and the Paddle side, in NumPy alone.

One engine, one pure-data table for each named layout, both directions from the same table. Names
are imported when they are used: what compares two dumps needs none of the readers of checkpoints.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "DTYPES": "engine.convert",
    "TABLES": "engine.registry",
    "MODELS": "engine.known_models",
    "PlanEntry": "engine.conversion_plan",
    "Layout": "engine.layout",
    "Manifest": "engine.description",
    "ConversionPlan": "engine.conversion_plan",
    "Row": "engine.layout",
    "build_plan": "engine.build",
    "convert_file": "engine.convert",
    "find_checkpoint": "installed",
}
__all__ = list(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
