"""What other precisions make of float64 values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Values rounded to bfloat16 (nearest, ties to even), held as float64."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    even = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    return _upper_half(bits + even).reshape(x.shape)


def cut_to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Values cut off to bfloat16, held as float64."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return _upper_half(bits).reshape(x.shape)


def _upper_half(bits: np.ndarray) -> np.ndarray:
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def _through(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: x.astype(dtype).astype(np.float64)


PRECISIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "float32": _through("float32"),
    "float16": _through("float16"),
    "bfloat16": to_bfloat16,
    "bfloat16 (cut off, not rounded)": cut_to_bfloat16,
    "whole numbers": np.rint,
    "whole numbers (cut off)": np.trunc,
}
"""Name -> what it makes of float64 values."""
