"""Edits of images: layout, channel order, flips, crops, normalisation; a resize is a guess.

Geometry is composed with one scale and one offset for each channel, fitted.

Legend: B images, C channels, H x W pixels, a = ours (Paddle), b = the reference (PyTorch).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from align.explain.arrays.array_edits import affine
from align.explain.experiment import Edit
from align.explain.experiment import explain as first_edit
from align.judge.rounding import PRECISIONS

CHANNELS = (1, 3, 4)
FARTHEST = 8  # pixels that a crop may be shifted by
SINGLE = 16  # an array of rank 3 is one image from this height and width on, else a sequence
ALIKE = 0.5  # correlation above which two images show the same thing
ZOOMS = 1 + np.arange(-10, 11) / 40  # that a guess of another crop tries
LARGEST = 1_000_000  # elements that are looked at
BUDGET = 400  # trials
BYTES = 255.0

STATISTICS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "one half (Inception's)": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
}
"""Known mean and standard deviation of each channel, for values in [0, 1]."""

FACTORS: Mapping[float, str] = {
    BYTES: "not divided by 255 in Paddle",
    1 / BYTES: "divided by 255 once too often in Paddle",
    256 / BYTES: "divided by 255 in Paddle, by 256 in PyTorch",
    BYTES / 256: "divided by 256 in Paddle, by 255 in PyTorch",
}

GEOMETRY: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda x: x,
    "channel order: Paddle's channels are reversed (BGR against RGB)": lambda x: x[:, ::-1],
    "horizontal flip: Paddle's images are mirrored left to right": lambda x: x[..., ::-1],
    "vertical flip: Paddle's images are upside down": lambda x: x[..., ::-1, :],
    "Paddle's images are turned by 180 degrees": lambda x: x[..., ::-1, ::-1],
    "height and width are swapped": lambda x: x.swapaxes(2, 3),
}


def is_images(array: np.ndarray) -> bool:
    """Whether an array may hold images: (B, C, H, W), (B, H, W, C), or one of them."""
    if array.ndim not in (3, 4) or array.dtype.kind not in "fu":
        return False
    first, middle, last = array.shape[-3:]
    smallest = 2 if array.ndim == 4 else SINGLE
    sides = (middle, last) if first in CHANNELS else (first, middle) if last in CHANNELS else (0,)
    return min(sides) >= smallest


def explain(
    ours: np.ndarray, reference: np.ndarray, equal: Callable[[np.ndarray, np.ndarray], bool]
) -> str:
    """The cause of differing images, "" when no edit explains it.

    Args:
        ours: Paddle's images, any layout and kind of number.
        reference: PyTorch's.
        equal: the judge of the stage.
    """
    found = []
    a, b = (x.astype(np.float64) for x in (ours, reference))
    a, b = (x[None] if x.ndim == 3 else x for x in (a, b))
    if a.ndim != b.ndim or len(a) != len(b):
        return ""
    count = max(1, LARGEST // max(a[0].size, b[0].size, 1))
    (a, layout), (b, own) = (_channels_first(x[:count]) for x in (a, b))
    if layout != own:
        found.append(f"layout: {layout} in Paddle, {own} in PyTorch")
    if ours.dtype.kind == "u" and reference.dtype.kind == "f":
        found.append("Paddle's images are bytes")
    if a.shape[1] != b.shape[1]:
        found.append(f"{a.shape[1]} channels in Paddle, {b.shape[1]} in PyTorch")
    elif a.shape != b.shape:
        sizes = [" x ".join(map(str, x.shape[2:])) for x in (a, b)]
        found.append(f"image size: {sizes[0]} in Paddle, {sizes[1]} in PyTorch (height x width)")
    elif np.isfinite(a).all() and np.isfinite(b).all() and not np.array_equal(a, b):
        precision = np.result_type(reference.dtype, np.float32)

        def passes(made: np.ndarray) -> bool:
            sides = (x.astype(precision) for x in (a, made))
            return made.shape == a.shape and equal(*sides)

        with np.errstate(all="ignore"):
            one = first_edit(b, _edits(a, b), passes, BUDGET)
            found.append(_guess(a, b) if one is None else one.cause)
    return "; ".join(filter(None, found))


def _channels_first(x: np.ndarray) -> tuple[np.ndarray, str]:
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if last and not (first and x.shape[1] <= x.shape[3]):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "channels last (HWC)"
    return x, "channels first (CHW)"


def _edits(a: np.ndarray, b: np.ndarray) -> Iterator[Edit[np.ndarray]]:
    """Edits of images of one shape (B, C, H, W)."""
    for title, turn in GEOMETRY.items():
        made = turn(b)
        if made.shape != a.shape or (title and np.array_equal(made, b)):
            continue
        if title:
            yield Edit(title, turn)
        scale, offset = affine(a, made, (0, 2, 3))
        if (scale > 0).all():
            says = _normalisation(a, b, scale.ravel(), offset.ravel())
            yield Edit(
                "; ".join(filter(None, (title, says))),
                lambda x, turn=turn, s=scale, o=offset: s * turn(x) + o,
            )
    for name, through in PRECISIONS.items():
        yield Edit(f"values are rounded to {name} in Paddle", through)
    first, level = _levels(a)
    yield Edit(
        "values are rounded to bytes (uint8) in Paddle",
        lambda x: np.rint((x - first) / level) * level + first,
    )
    yield _cropped(a, b)
    for title, turn in itertools.islice(GEOMETRY.items(), 1, None):
        if turn(b).shape == b.shape:
            yield Edit(
                f"some images only: {title}: a random augmentation that is not shared",
                lambda x, turn=turn: _nearest(a, x, turn(x)),
            )


def _normalisation(a: np.ndarray, b: np.ndarray, scale: np.ndarray, offset: np.ndarray) -> str:
    """What a = scale b + offset, for each channel, says about the preprocessing."""
    near = 1e-3 * float(np.abs(a).max())
    same, shifted = np.ptp(scale) <= 1e-3 * scale.mean(), np.abs(offset).max() > near
    for factor, text in FACTORS.items() if same else ():
        if abs(scale.mean() / factor - 1) < 1e-4:
            before = ", before mean and standard deviation" if shifted else ""
            return f"{text}{before} (factor {scale.mean():.6g})"
    if same and not shifted:
        return f"Paddle's values are {scale.mean():.6g} times as large"
    if np.allclose(scale * scale[::-1], 1, rtol=1e-3) and not same:
        return "they are so before mean and standard deviation of the other channels are applied"
    for (own, (m, s)), (theirs, (n, t)) in itertools.permutations(STATISTICS.items(), 2):
        m, s, n, t = (np.asarray(v)[: len(scale)] for v in (m, s, n, t))
        known = len(m) == len(scale) and np.allclose(scale, t / s, rtol=2e-3)
        if known and np.allclose(offset, (n - m) / s, atol=2e-3):
            return f"other mean and standard deviation: {own} in Paddle, {theirs} in PyTorch"
    for low, high, mean, std, where in (
        (a, b, offset, scale, "not applied in Paddle"),
        (b, a, -offset / scale, 1 / scale, "applied in Paddle only"),
    ):
        if low.min() >= 0 > high.min():
            unit = BYTES if low.max() > 2 else 1.0
            in_bytes = " and not divided by 255" if unit > 1 else ""
            fitted = f"mean {_list(mean / unit)} and std {_list(std / unit)}"
            return f"mean and standard deviation are {where}{in_bytes}: fitted {fitted}"
    return (
        "other normalisation: for each channel Paddle's value is PyTorch's x "
        f"{_list(scale)} plus {_list(offset)}"
    )


def _list(values: np.ndarray) -> str:
    return f"({', '.join(f'{v + 0.0:.4g}' for v in values)})"


def _levels(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(1, C, 1, 1) the lowest value of each channel, the smallest step between two values."""
    held = [np.unique(a[:, channel]) for channel in range(a.shape[1])]
    steps = [np.diff(v).min() if 1 < len(v) <= 256 else np.nan for v in held]
    first = [v[0] for v in held]
    return tuple(np.reshape(v, (1, -1, 1, 1)) for v in (first, steps))


def _cropped(a: np.ndarray, b: np.ndarray) -> Edit[np.ndarray]:
    """Crops that begin some pixels lower or farther right; what falls in is Paddle's own."""
    far = max(0, min(FARTHEST, min(a.shape[2:]) // 2 - 1))
    every = sorted(itertools.product(range(-far, far + 1), repeat=2), key=lambda s: np.abs(s).sum())
    steps = []
    for own, theirs in zip(a, b, strict=True):
        apart = [np.abs(np.subtract(*_overlap(own, theirs, step))).mean() for step in every]
        steps.append(every[int(np.argmin(apart))])
    down, right = next((step for step in steps if step != (0, 0)), (0, 0))
    image = steps.index((down, right))
    rows = f"{abs(down)} pixels {'lower' if down >= 0 else 'higher'}"
    columns = f"{abs(right)} pixels farther {'right' if right >= 0 else 'left'}"
    some = f" in image {image}, elsewhere by other steps" if len(set(steps)) > 1 else ""

    def crop(x: np.ndarray) -> np.ndarray:
        made = a.copy()
        for own, theirs, step in zip(made, x, steps, strict=True):
            inside, shown = _overlap(own, theirs, step)
            inside[...] = shown
        return made

    return Edit(f"crop shifted: Paddle's begins {rows} and {columns}{some}", crop)


def _overlap(a: np.ndarray, b: np.ndarray, step: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Views of what both show when a's crop lies a step (down, right) of b's, (C, H, W)."""
    own, theirs = [slice(None)], [slice(None)]
    for length, moved in zip(a.shape[1:], step, strict=True):
        first, last = max(0, -moved), max(0, moved)
        own.append(slice(first, length - last))
        theirs.append(slice(last, length - first))
    return a[tuple(own)], b[tuple(theirs)]


def _nearest(a: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Image by image the nearer one."""
    apart = [np.abs(x - a).max(axis=(1, 2, 3), keepdims=True) for x in (one, other)]
    return np.where(apart[0] <= apart[1], one, other)


def _guess(a: np.ndarray, b: np.ndarray) -> str:
    """Images that show the same thing and differ everywhere: another part of it, or smoother."""
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) if a.std() and b.std() else 0.0
    if correlation < ALIKE or (np.abs(a - b) > 1e-6 * b.std()).mean() < 0.2:
        return ""
    inner = tuple(slice(n // 4, n - n // 4) for n in a.shape[2:])
    apart = [(((a[:2] - _enlarged(b[:2], zoom))[(..., *inner)]) ** 2).mean() for zoom in ZOOMS]
    best, same = int(np.argmin(apart)), len(ZOOMS) // 2
    what = "perhaps another interpolation of the resize"
    if abs(best - same) > 1 and apart[len(ZOOMS) - 1 - best] > apart[same]:  # else both smooth
        seen = 1 / ZOOMS[best]
        what = f"Paddle's shows {seen:.3g} times as much: perhaps another crop size"
    return f"differs everywhere by a little (correlation {correlation:.3f}): {what}"


def _enlarged(x: np.ndarray, zoom: float) -> np.ndarray:
    """(B, C, H, W) enlarged about the centre."""
    for axis in (2, 3):
        middle = (x.shape[axis] - 1) / 2
        own = np.arange(x.shape[axis])
        at = (own - middle) / zoom + middle
        x = np.apply_along_axis(lambda line, at=at, own=own: np.interp(at, own, line), axis, x)
    return x
