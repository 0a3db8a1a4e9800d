"""Edits of images: layout, flips, channels, crops, normalisation; another resize is a guess.

Legend: B images, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from align.explain.arrays.array_edits import computed, pairs, reordered, shifted, turned
from align.explain.experiment import Edits, first_cause, fitted

CHANNELS = (1, 3, 4)
FARTHEST = 8  # pixels that a crop may be shifted by
SINGLE = 16  # an array of rank 3 is one image from this height and width on, else a sequence
ALIKE = 0.5  # correlation above which two images show the same thing
LARGEST = 1_000_000  # elements that are looked at
BUDGET = 400  # trials

NAMES = {
    "reversed along axis 1": "channel order: Paddle's channels are reversed",
    "reversed along axis 2 and 3": "Paddle's images are turned by 180 degrees",
    "reversed along axis 3": "horizontal flip: Paddle's images are mirrored left to right",
    "reversed along axis 2": "vertical flip: Paddle's images are upside down",
    "axes are swapped: Paddle's are PyTorch's in the order (0, 1, 3, 2)": "height and width are "
    "swapped",
}
"""What an edit of an array is called in an image."""


def is_images(array: np.ndarray) -> bool:
    """Whether an array may hold images: (B, C, H, W), (B, H, W, C), or one of them."""
    if array.ndim not in (3, 4) or array.dtype.kind not in "fu":
        return False
    first, middle, last = array.shape[-3:]
    smallest = 2 if array.ndim == 4 else SINGLE
    sides = (middle, last) if first in CHANNELS else (first, middle) if last in CHANNELS else (0,)
    return min(sides) >= smallest


def explain_images(
    ours: np.ndarray, reference: np.ndarray, equal: Callable[[np.ndarray, np.ndarray], bool]
) -> str:
    """The cause of differing images, of any layout and kind of number; "" for none."""
    a, b = (x.astype(np.float64) for x in (ours, reference))
    a, b = (x[None] if x.ndim == 3 else x for x in (a, b))
    if a.ndim != b.ndim or len(a) != len(b):
        return ""
    count = max(1, LARGEST // max(a[0].size, b[0].size, 1))
    (a, layout), (b, own) = (_channels_first(x[:count]) for x in (a, b))
    told = [f"layout: {layout} in Paddle, {own} in PyTorch"] if layout != own else []
    if ours.dtype.kind == "u" and reference.dtype.kind == "f":
        told.append("Paddle's images are bytes")
    if a.shape != b.shape:
        sizes = [" x ".join(map(str, x.shape[1:])) for x in (a, b)]
        told.append(f"image size: {sizes[0]} in Paddle, {sizes[1]} in PyTorch (C x H x W)")
    elif np.isfinite(a).all() and np.isfinite(b).all() and not np.array_equal(a, b):
        precision = np.result_type(reference.dtype, np.float32)

        def passes(made: np.ndarray) -> bool:
            return made.shape == a.shape and equal(a.astype(precision), made.astype(precision))

        told.append(_in_words(first_cause(_edits(a, b), passes, BUDGET)) or _guess(a, b))
    return "; ".join(filter(None, told))


def _in_words(says: str) -> str:
    return next((says.replace(name, word) for name, word in NAMES.items() if name in says), says)


def _channels_first(x: np.ndarray) -> tuple[np.ndarray, str]:
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if last and not (first and x.shape[1] <= x.shape[3]):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "channels last (HWC)"
    return x, "channels first (CHW)"


def _edits(a: np.ndarray, b: np.ndarray) -> Edits:
    """Edits of images of one shape (B, C, H, W)."""
    yield from turned(b)
    for says, made in turned(b):
        if made.shape == b.shape:
            told = f"some images only: {says}: a random augmentation that is not shared"
            yield told, _nearest(a, b, made)
    yield from shifted(a, b, (2, 3), FARTHEST, "crop ")
    yield from computed(a, b)
    yield from reordered(a, b)
    yield from pairs(a, b)


def _nearest(a: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Image by image the nearer one."""
    apart = [np.abs(x - a).max(axis=(1, 2, 3), keepdims=True) for x in (one, other)]
    return np.where(apart[0] <= apart[1], one, other)


def _guess(a: np.ndarray, b: np.ndarray) -> str:
    """Images that show the same thing and differ everywhere: another part of it, or smoother."""
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) if a.std() and b.std() else 0.0
    if correlation < ALIKE or (np.abs(a - b) > 1e-6 * b.std()).mean() < 0.2:
        return ""
    inner = (..., *(slice(n // 4, n - n // 4) for n in a.shape[2:]))

    def apart(zoom: float) -> float:
        return float(((a[:2] - enlarged(b[:2], zoom))[inner] ** 2).mean())

    zoom = fitted(apart, 0.75, 1.25)
    what = "perhaps another interpolation of the resize"
    if abs(zoom - 1) > 0.03 and apart(1 / zoom) > apart(1.0):  # else both are smooth
        what = f"Paddle's shows {1 / zoom:.3g} times as much: perhaps another crop size"
    return f"differs everywhere by a little (correlation {correlation:.3f}): {what}"


def enlarged(x: np.ndarray, zoom: float) -> np.ndarray:
    """(B, C, H, W) enlarged about the centre."""
    for axis in (2, 3):
        middle = (x.shape[axis] - 1) / 2
        own = np.arange(x.shape[axis])
        at = (own - middle) / zoom + middle
        x = np.apply_along_axis(lambda line, at=at, own=own: np.interp(at, own, line), axis, x)
    return x
