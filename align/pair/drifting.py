"""How far the weights of both sides drift apart, step by step, when the sides run apart.

Which elements are looked at follows from PyTorch's names and shapes alone: all of a small tensor,
LIMIT drawn ones of a large one. The Paddle side finds the same elements through the mapping.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from align.judge.drift import LIMIT, UNSTEADY, Track
from align.match.mapping import WeightMapping
from align.record.entries import Entry, canonical, named


def elements(entries: Sequence[Entry]) -> dict[str, np.ndarray]:
    """Flat places in each trained PyTorch tensor, by canonical name."""
    first = canonical(entries)
    found: dict[str, np.ndarray] = {}
    for entry in entries:
        held = not entry.buffer and entry.dtype.startswith("float")
        if not held or first[entry.name] != entry.name:
            continue
        size = math.prod(entry.shape)
        places = np.arange(size)
        if size > LIMIT:
            drawn = np.random.default_rng(zlib.crc32(entry.name.encode())).choice(size, LIMIT)
            places = np.sort(drawn)
        found[entry.name] = places
    return found


class Reference:
    """The chosen elements of a PyTorch model.

    Args:
        entries: PyTorch's.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._places = elements(entries)

    def __call__(self, side: Any, model: Any) -> np.ndarray:
        """(N,) float64."""
        live = named(side, model)
        parts = [_pick(side, live[name], few) for name, few in self._places.items()]
        return np.concatenate([np.zeros(0), *parts])


def partners(
    entries: Sequence[Entry], weights: WeightMapping
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Where the chosen elements lie on the Paddle side.

    Args:
        entries: PyTorch's.
        weights: the mapping.

    Returns:
        Paddle tensor -> flat places in it, and their places in the vector of `Reference`.
    """
    shapes = {entry.name: entry.shape for entry in entries}
    numbers: dict[str, np.ndarray] = {}
    size = 0
    for name, places in elements(entries).items():
        held = np.zeros(math.prod(shapes[name]), dtype=np.int64)
        held[places] = np.arange(size + 1, size + 1 + places.size)
        numbers[name] = held.reshape(shapes[name])
        size += places.size
    found = {}
    for name, array in weights.to_paddle(numbers).items():
        flat = array.reshape(-1)
        few = np.flatnonzero(flat)
        found[name] = few, flat[few] - 1
    return found


class Port:
    """The same elements of a Paddle model; 0 for those that the mapping leaves out.

    Args:
        entries: PyTorch's.
        weights: the mapping.
    """

    def __init__(self, entries: Sequence[Entry], weights: WeightMapping) -> None:
        self._places = partners(entries, weights)
        self._size = sum(places.size for places in elements(entries).values())

    def __call__(self, side: Any, model: Any) -> np.ndarray:
        """(N,) float64, in the order of `Reference`."""
        live = named(side, model)
        found = np.zeros(self._size)
        for name, (few, places) in self._places.items():
            found[places] = _pick(side, live[name], few)
        return found


def distances(
    ours: np.ndarray, plain: np.ndarray, moved: np.ndarray, parts: Sequence[np.ndarray]
) -> tuple[list[float], list[float]]:
    """Distance from the reference after every step, and the noise band.

    Args:
        ours: (steps + 1, N) Paddle's weights, before the first step and after every one.
        plain: the same of the reference.
        moved: the same of the reference, moved by one unit in the last place before every step.
        parts: places of each Paddle tensor's elements.

    Returns:
        Two lists of as many L2 distances as steps, in units of the reference's norm. Tensors that
        rounding drives are left out, by the rule of `align.judge.drift`.
    """
    way, noise = plain[-1] - plain[0], moved[-1] - plain[-1]
    sizes = [[float(np.linalg.norm(a[part])) for a in (noise, way)] for part in parts]
    shares = [a / b if b > 0 else math.inf for a, b in sizes]
    most = UNSTEADY * max(float(np.median(shares or [0.0])), float(np.finfo(np.float64).eps))
    kept = [part for part, share in zip(parts, shares, strict=True) if share <= most] or parts
    chosen = np.concatenate([np.zeros(0, np.int64), *kept])
    tracks = [_track(rows) for rows in (ours, plain, moved)]
    return tracks[0].apart(tracks[1], chosen), tracks[2].apart(tracks[1], chosen)


def _track(rows: np.ndarray) -> Track:
    track = Track(lambda row: row)
    for row in rows:
        track.watch(row)
    return track


def _pick(side: Any, tensor: Any, few: np.ndarray) -> np.ndarray:
    return side.numpy(tensor.detach().reshape([-1])[side.tensor(few)]).astype(np.float64)
