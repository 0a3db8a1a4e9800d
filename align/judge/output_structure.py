"""What two models return, when it is not the same number of tensors: told with its remedy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.comparator import compare_arrays
from align.record.arrays import Leaf
from align.record.results import Comparison

NAME = "(outputs of the model)"
NEAR = 1e-3  # of the largest value: two outputs that agree so far are one


def are_uneven(
    reference: Sequence[Leaf], ours: Sequence[Leaf], pairs: Sequence[tuple[str, Any, Any]]
) -> bool:
    """Whether two outputs hold other tensors: another number, or other shapes under other names.

    Args:
        reference: (path, array) of PyTorch's output.
        ours: of Paddle's.
        pairs: (label, reference's, ours) as `nested.pair_leaves` makes them.
    """
    if len(reference) != len(ours):
        return True
    named = {path for path, _ in reference} == {path for path, _ in ours}
    return not named and any(a.shape != b.shape for _, a, b in pairs)


def missing_outputs(reference: Sequence[Leaf], ours: Sequence[Leaf]) -> Comparison:
    """The failed comparison of two outputs that do not hold the same tensors.

    Args:
        reference: (path, array) of PyTorch's output.
        ours: of Paddle's.
    """
    counts = (np.asarray([len(side)]) for side in (ours, reference))
    found = compare_arrays(NAME, *counts, bounds.EXACT)
    text = f"PyTorch returns {_told(reference)}, Paddle {_told(ours)}"
    hint = f"not the same tensors: pick what both return, outputs={_proposal(reference, ours)}"
    return dataclasses.replace(found, passed=False, reason=text, hint=hint)


def _told(side: Sequence[Leaf]) -> str:
    shapes = [f"{path} {array.shape}".strip() for path, array in side]
    return f"{len(side)} tensor{'s' * (len(side) != 1)} ({', '.join(shapes)})"


def _proposal(reference: Sequence[Leaf], ours: Sequence[Leaf]) -> str:
    """The first two that have the same numbers, else the same shape."""
    same = [(a, b) for a in reference for b in ours if a[1].shape == b[1].shape]
    near = [(a, b) for a, b in same if _near(a[1], b[1])]
    if not same:
        return "(torch, paddle): a key, an index or a function for each side"
    return str(tuple(_key(path) for path, _ in (near or same)[0]))


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=0, atol=NEAR * float(np.abs(a).max(initial=0.0))))


def _key(path: str) -> str | int | None:
    return int(path) if path.isdigit() else path or None
