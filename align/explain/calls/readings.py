"""Causes that the two tensors show by themselves: rows that were looked up, factors."""

from __future__ import annotations

import numpy as np

from align.explain import formulas
from align.pair.isolation import Guilty
from align.record.arrays import Arrays

SHOWN = 6
SAME = 1e-6  # relative: two factors this close are one


def rows(guilty: Guilty, weights: Arrays) -> str:
    """Which rows of an embedding's table Paddle looks up instead of PyTorch's.

    Args:
        guilty: with the outputs of both sides.
        weights: tensors of the Paddle layer by leaf name.
    """
    table, ours, expected = weights.get("weight"), guilty.ours, guilty.expected
    if table is None or ours is None or expected is None or table.ndim != 2 or ours.ndim < 2:
        return ""
    if ours.shape != expected.shape or ours.shape[-1] != table.shape[1]:
        return ""
    found = [_numbers(a.astype(np.float64), table) for a in (ours, expected)]
    if found[0] is None or found[1] is None or np.array_equal(*found):
        return ""
    own, right = found
    wrong = own != right
    moved = np.unique(own[wrong] - right[wrong])
    if np.unique(own).size == 1:
        how = f"Paddle takes row {own.flat[0]} everywhere: the numbers are ignored"
    elif moved.size == 1 and wrong.all():
        how = f"Paddle's are off by {moved[0]:+d}: positions or numbers shifted"
    else:
        how = f"{int(wrong.sum())} of {wrong.size} differ"
    told = ", ".join(
        f"{a} for {b}" for a, b in list(zip(own[wrong], right[wrong], strict=True))[:3]
    )
    return f"rows of the embedding: {how} (row {told})"


def _numbers(output: np.ndarray, table: np.ndarray) -> np.ndarray | None:
    """The row of the table that each last axis is, None when one is no row."""
    flat = output.reshape(-1, table.shape[1])
    near = 1e-6 * float(np.abs(table).max() or 1.0)
    gaps = (
        np.abs(flat[:, None, :] - table[None]).max(axis=2) if flat.size * len(table) < 1e7 else None
    )
    if gaps is None or not (gaps.min(axis=1) <= near).all():
        return None
    return gaps.argmin(axis=1).reshape(output.shape[:-1])


def factors(ours: np.ndarray | None, expected: np.ndarray | None) -> str:
    """One factor for each index of an axis: a count, a norm or a trace is missing or wrong."""
    if ours is None or expected is None or ours.shape != expected.shape or ours.ndim < 2:
        return ""
    ours, expected = ours.astype(np.float64), expected.astype(np.float64)
    near = 0.01 * float(np.abs(ours - expected).max())
    for axis in range(ours.ndim):
        if ours.shape[axis] == 1:
            continue
        others = tuple(i for i in range(ours.ndim) if i != axis)
        energy = (expected * expected).sum(axis=others, keepdims=True)
        good = energy > 0
        factor = (ours * expected).sum(axis=others, keepdims=True) / np.where(good, energy, 1.0)
        if good.all() and np.ptp(factor) > SAME and formulas.close(factor * expected, ours, near):
            told = ", ".join(f"{f:.4g}" for f in factor.ravel()[:SHOWN])
            return (
                f"each index of axis {axis} has a factor of its own ({told}): a count (padded or "
                "valid positions), a norm, a trace or a scale for each is wrong"
            )
    return ""


def leaving(arriving: np.ndarray, ours: np.ndarray, expected: np.ndarray) -> str:
    """What a layer without parameters did with a gradient, from what arrived and what left.

    Args:
        arriving: gradient at its output.
        ours: gradient at its input in Paddle.
        expected: the same in PyTorch.
    """
    if ours.shape != expected.shape:
        return ""
    if not ours.any() and expected.any():
        return "no gradient passes: the graph is cut (detach, stop_gradient, no_grad)"
    if arriving.shape == ours.shape and np.array_equal(ours, arriving):
        return "the gradient passes unchanged, as through the identity: the derivative is missing"
    return ""
