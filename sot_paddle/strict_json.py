"""Strict JSON: it has no NaN and no infinity, so those numbers travel as something else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def as_null(_: float) -> None:
    """What stands for a number that is not finite where readers expect numbers or nothing."""
    return


def json_ready(value: Any, nonfinite: Callable[[float], Any] = str) -> Any:
    """Turns a value into what strict JSON can hold.

    Args:
        value: None, bool, str, number (NumPy's too), list, tuple, or mapping with string keys.
        nonfinite: what becomes of NaN and infinities: text ("nan", "inf", "-inf"), or `as_null`.

    Raises:
        TypeError: any other type, named.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite(value)
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"a mapping for JSON needs string keys, got {sorted(map(repr, value))}")
        return {key: json_ready(item, nonfinite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item, nonfinite) for item in value]
    raise TypeError(f"{type(value).__name__} cannot go into JSON: convert it to a number or text")


def dumps(value: Any, nonfinite: Callable[[float], Any] = str) -> str:
    """A whole JSON file with indented lines; see `json_ready`."""
    ready = json_ready(value, nonfinite)
    return json.dumps(ready, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
