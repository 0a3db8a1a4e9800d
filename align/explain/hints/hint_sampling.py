"""Causes in layers that sample: pools, interpolations, rows of an embedding, sizes of outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from align.explain.formulas import RESIZE, resize
from align.explain.hints.hint_case import Case


def formula(case: Case) -> str:
    """Which formula of an input gives Paddle's output, and which one PyTorch's."""
    for what, made in _tables(case):
        ours, expected = (
            next((name for name, x in made.items() if gives(x)), None)
            for gives in (case.explains, case.is_expected)
        )
        if ours and expected and ours != expected:
            lost = {ours, expected} == {"the mean", "the sum"}
            text = f"{what}: Paddle computes {ours}, PyTorch {expected}"
            return text + (": a division by N is missing (1/N)" if lost else "")
    return ""


def _tables(case: Case) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """What is asked of an input, and its candidate outputs by name."""
    shape = case.expected.shape
    for name, x in case.floats():
        images = x.ndim == case.expected.ndim == 4 and x.shape[:2] == shape[:2]
        if images and x.shape[2:] != shape[2:] and min(x.shape[2:]) > 1:
            yield "interpolation", {n: resize(x, shape[2:], n) for n in RESIZE}
        for _, mask in case.whole:
            fits = x.ndim == 3 and mask.shape == x.shape[:2] and mask.dtype.kind in "iub"
            if fits and shape == (x.shape[0], x.shape[2]):
                for keep in (mask != 0, mask == 0):
                    kept = (x * keep[..., None]).sum(1)
                    yield (
                        f"mean of {name}",
                        {
                            "the mean of all positions (padding counts)": x.mean(1),
                            "the mean of the unmasked positions": kept
                            / keep.sum(1).clip(1)[:, None],
                            "the sum of the unmasked ones by all positions": kept / x.shape[1],
                        },
                    )
        for axes in itertools.chain(*(itertools.combinations(range(1, x.ndim), n) for n in (1, 2))):
            left = tuple(n for i, n in enumerate(x.shape) if i not in axes)
            if left == tuple(n for n in shape if n != 1 or 1 in left):
                told = ", ".join(map(str, axes))
                made = {title: take(x, axis=axes) for title, take in _REDUCTIONS.items()}
                yield f"over axis {told} of {name}", {n: m.reshape(shape) for n, m in made.items()}


_REDUCTIONS = {"the mean": np.mean, "the maximum": np.max, "the sum": np.sum, "the minimum": np.min}


def average_pool(case: Case) -> str:
    """An average that leaves the padding out (Paddle's default) against one that counts it."""
    if "AvgPool" not in type(case.layer).__name__:
        return ""
    good = np.abs(case.expected) > 1e-12
    if not good.any():
        return ""
    ratio = case.ours[good] / case.expected[good]
    inside = np.isclose(ratio, 1.0, rtol=1e-6)
    if inside.all() or not ((ratio > 0).all() and (inside | (np.abs(ratio - 1) > 1e-3)).all()):
        return ""
    word = "leaves padding out of" if np.median(ratio[~inside]) > 1 else "counts padding in"
    right = "False" if np.median(ratio[~inside]) > 1 else "True"
    return f"average pool: Paddle {word} the mean (PyTorch does not): use exclusive={right}"


def rows(case: Case) -> str:
    """Rows of an embedding: another index, shifted, or zeros for one of them."""
    weight = case.weights.get("weight")
    if weight is None or weight.ndim != 2 or case.ours.ndim < 2:
        return ""
    if weight.shape[1] != case.ours.shape[-1]:
        return ""
    ours = case.ours.reshape(-1, weight.shape[1])
    expected = case.expected.reshape(-1, weight.shape[1])
    wrong = np.abs(ours - expected).max(axis=1) > 0
    if not ours[wrong].any() and any((weight == row).all(1).any() for row in expected[wrong]):
        return "padding_idx: Paddle's embedding gives zeros for that index, PyTorch the row"
    own, theirs = (_indices(weight, side) for side in (ours, expected))
    if own is None or theirs is None:
        return ""
    steps = own - theirs
    if (steps == steps[0]).all() and steps[0]:
        return (
            f"rows of the embedding: Paddle reads every row {abs(steps[0])} too "
            f"{'late' if steps[0] > 0 else 'early'} ({_told(own)} instead of {_told(theirs)}): an "
            "offset of the positions or indices"
        )
    return f"rows of the embedding: Paddle reads {_told(own)}, PyTorch {_told(theirs)}"


def _indices(weight: np.ndarray, rows_: np.ndarray) -> np.ndarray | None:
    """The row of the table that each row is, None when one is none of them."""
    table = weight.astype(np.float32)
    found = []
    for row in rows_[:4096].astype(np.float32):
        at = np.flatnonzero((table == row).all(axis=1))
        if not at.size:
            return None
        found.append(int(at[0]))
    return np.asarray(found)


def _told(indices: np.ndarray) -> str:
    more = ", ..." if len(indices) > 5 else ""
    return "[" + ", ".join(str(i) for i in indices[:5]) + more + "]"


def size(ours: np.ndarray, expected: np.ndarray, inputs: list, layer: Any, module: Any) -> str:
    """Why a pool or a convolution gives another size: rounding up, stride, padding, dilation.

    Args:
        ours: Paddle's output; expected: PyTorch's, of another shape.
        inputs: (description, array) of what the layer got.
        layer: the Paddle layer.
        module: the PyTorch module.
    """
    kind = type(layer).__name__
    images = [a for _, a in inputs if a.ndim == expected.ndim > 2 and a.dtype.kind == "f"]
    if not images or ours.ndim != expected.ndim or not ("Pool" in kind or "Conv" in kind):
        return ""
    other = [i for i in range(2, ours.ndim) if ours.shape[i] != expected.shape[i]]
    if not other:
        return ""
    axis = other[0]
    length, own, theirs = images[0].shape[axis], ours.shape[axis], expected.shape[axis]
    held = {name: _option(layer, name) for name in ("kernel_size", "stride", "padding", "dilation")}
    if None in (held["kernel_size"], held["padding"]):
        return ""
    window = (held["dilation"] or 1) * (held["kernel_size"] - 1) + 1
    stride = held["stride"] or held["kernel_size"]
    exact = (length + 2 * held["padding"] - window) / stride
    down, up = int(np.floor(exact)) + 1, int(np.ceil(exact)) + 1
    if "Pool" in kind and down != up and {own, theirs} == {down, up}:
        word = "up" if own == up else "down"
        return (
            f"ceil_mode: Paddle rounds the size of the pool {word} ({own}), PyTorch does not "
            f"({theirs})"
        )
    pairs = {name: (value, _option(module, name)) for name, value in held.items()}
    pairs["ceil_mode"] = tuple(getattr(one, "ceil_mode", None) for one in (layer, module))
    told = [
        f"{name}: Paddle has {a}, PyTorch {b}"
        for name, (a, b) in pairs.items()
        if None not in (a, b) and a != b
    ]
    return f"{', '.join(told)}: the sizes are {own} and {theirs}" if told else ""


_WORDS = {
    "kernel_size": ("kernel_size", "_kernel_size", "ksize"),
    "stride": ("stride", "_stride", "stride"),
    "padding": ("padding", "_padding"),
    "dilation": ("dilation", "_dilation"),
}


def _option(layer: Any, name: str) -> int | None:
    """An option of a layer as one number, None without it or when its numbers differ."""
    for word in _WORDS[name]:
        value = getattr(layer, word, None)
        if isinstance(value, (tuple, list)) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, int):
            return value
    return None
