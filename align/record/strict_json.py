"""Strict JSON: it has no NaN and no infinity, so those numbers travel as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def json_ready(value: Any) -> Any:
    """Turns a value into what strict JSON can hold.

    Args:
        value: None, bool, str, number (NumPy's too), list, tuple, or mapping with string keys.

    Returns:
        The same with plain types; NaN and infinities become "nan", "inf", "-inf".

    Raises:
        TypeError: any other type, named.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        return json_ready(value.item())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"a mapping for JSON needs string keys, got {sorted(map(repr, value))}")
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot go into JSON: convert it to a number or text")
