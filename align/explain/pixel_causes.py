"""Causes of differing images: layout, channel order, flips, crops, normalisation, resizing.

The geometry is tried first, each candidate with a scale and an offset fitted for every channel.

Legend: B images, C channels, H x W pixels, a = ours (Paddle), b = the reference (PyTorch).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np

from align.judge.rounding import rounded_to

EXPLAINED = 0.01  # part of the difference that may remain
CHANNELS = (1, 3, 4)
FARTHEST = 8  # pixels that a crop may be shifted by
SINGLE = 16  # an array of rank 3 is one image from this height and width on, else a sequence
LEVELS = 256
ALIKE = 0.5  # correlation above which two images show the same thing
LARGEST = 4_000_000  # elements that are looked at

STATISTICS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "none (values in [0, 1])": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "one half (Inception's)": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
}
"""Known mean and standard deviation of each channel, for values in [0, 1]."""

_GEOMETRY: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
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


def explain(ours: np.ndarray, reference: np.ndarray) -> str:
    """The likely cause of differing images, "" when nothing fits.

    Args:
        ours: Paddle's images, any layout and kind of number.
        reference: PyTorch's.
    """
    found = []
    a, b = (x.astype(np.float64) for x in (ours, reference))
    a, b = (x[None] if x.ndim == 3 else x for x in (a, b))
    if a.ndim != b.ndim or len(a) != len(b):
        return ""
    count = max(1, LARGEST // max(a[0].size, b[0].size, 1))
    a, layout = _channels_first(a[:count])
    b, own = _channels_first(b[:count])
    if layout != own:
        names = {"first": "channels first (CHW)", "last": "channels last (HWC)"}
        found.append(f"layout: {names[layout]} in Paddle, {names[own]} in PyTorch")
    if a.shape != b.shape:
        found.append(_sizes(a, b))
        return "; ".join(filter(None, found))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return ""
    if ours.dtype.kind == "u" and reference.dtype.kind == "f":
        found.append("Paddle's images are bytes")
    if np.array_equal(a, b):
        return "; ".join(found)
    found.append(_values(a, b))
    return "; ".join(filter(None, found))


def _channels_first(x: np.ndarray) -> tuple[np.ndarray, str]:
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if last and not (first and x.shape[1] <= x.shape[3]):
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "last"
    return x, "first"


def _sizes(a: np.ndarray, b: np.ndarray) -> str:
    if a.shape[1] != b.shape[1]:
        return f"{a.shape[1]} channels in Paddle, {b.shape[1]} in PyTorch"
    return (
        f"image size: {a.shape[2]} x {a.shape[3]} in Paddle, {b.shape[2]} x {b.shape[3]} in "
        "PyTorch (height x width): another resize or crop"
    )


def _values(a: np.ndarray, b: np.ndarray) -> str:
    """Images of one shape (B, C, H, W)."""
    for title, turn in _GEOMETRY.items():
        turned = turn(b)
        if turned.shape != a.shape or np.array_equal(turned, b) and title:
            continue
        affine = _fitted(a, turned, EXPLAINED * float(np.abs(a - b).max()))
        if affine is not None:
            said = _normalisation(a, b, *affine, reversed_channels="BGR" in title)
            return "; ".join(filter(None, (title, said)))
    return (
        _rounded(a, b)
        or _shifted(a, b)
        or _some_images(a, b)
        or _levels(a, b)
        or _everywhere_a_little(a, b)
    )


def _fitted(a: np.ndarray, b: np.ndarray, near: float) -> tuple[np.ndarray, np.ndarray] | None:
    """(C,) scale and offset with which a = scale * b + offset, None when they do not exist."""
    axes = (0, 2, 3)
    mean_a, mean_b = a.mean(axis=axes), b.mean(axis=axes)
    centred = b - mean_b[:, None, None]
    energy = (centred**2).sum(axis=axes)
    if not (energy > 0).all():
        return None
    scale = (centred * a).sum(axis=axes) / energy
    offset = mean_a - scale * mean_b
    made = scale[:, None, None] * b + offset[:, None, None]
    return (scale, offset) if np.abs(made - a).max() <= near and (scale > 0).all() else None


def _normalisation(
    a: np.ndarray,
    b: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    *,
    reversed_channels: bool,
) -> str:
    """What a = scale * b + offset (for each channel) says about the preprocessing."""
    size = float(np.abs(a).max())
    if np.allclose(scale, 1, atol=1e-4) and np.abs(offset).max() <= 1e-4 * size:
        return ""
    for factor, text in _BYTES:
        if np.allclose(scale, factor, rtol=1e-3) and np.abs(offset).max() > 1e-3 * size:
            return f"{text}, before mean and standard deviation (factor {scale.mean():.6g})"
    if reversed_channels and np.allclose(scale * scale[::-1], 1, rtol=1e-3):
        return "they are so before mean and standard deviation of the other channels are applied"
    if np.abs(offset).max() <= 1e-3 * size and np.ptp(scale) <= 1e-3 * scale.mean():
        return _factor(float(scale.mean()))
    if a.min() >= 0 and b.min() < 0:
        unit = 255.0 if a.max() > 2 else 1.0
        bytes_too = " and not divided by 255" if unit > 1 else ""
        return (
            f"mean and standard deviation are not applied in Paddle{bytes_too}: from its values "
            f"PyTorch's follow with {_statistics(offset / unit, scale / unit)}"
        )
    if b.min() >= 0 and a.min() < 0:
        unit = 255.0 if b.max() > 2 else 1.0
        return (
            "mean and standard deviation are applied in Paddle only: the fit gives "
            f"{_statistics(-offset / scale / unit, 1 / scale / unit)}"
        )
    return _other_statistics(scale, offset)


_BYTES = (
    (255.0, "not divided by 255 in Paddle"),
    (1 / 255.0, "divided by 255 once too often in Paddle"),
)


def _factor(factor: float) -> str:
    for value, text in (
        *_BYTES,
        (256.0 / 255.0, "divided by 255 in Paddle, by 256 in PyTorch"),
        (255.0 / 256.0, "divided by 256 in Paddle, by 255 in PyTorch"),
    ):
        if abs(factor / value - 1) < 1e-4:
            return f"{text} (factor {factor:.6g})"
    return f"Paddle's values are {factor:.6g} times as large"


def _statistics(mean: np.ndarray, std: np.ndarray) -> str:
    return f"mean {_list(mean)} and std {_list(std)}"


def _list(values: np.ndarray) -> str:
    return f"({', '.join(f'{v:.4g}' for v in values)})"


def _other_statistics(scale: np.ndarray, offset: np.ndarray) -> str:
    """Both sides normalise: with known statistics, or the ratio of the unknown ones."""
    for (own, (m, s)), (theirs, (n, t)) in itertools.permutations(STATISTICS.items(), 2):
        m, s, n, t = (np.asarray(v)[: len(scale)] for v in (m, s, n, t))
        if len(m) != len(scale):
            break
        if np.allclose(scale, t / s, rtol=2e-3) and np.allclose(offset, (n - m) / s, atol=2e-3):
            return (
                f"other mean and standard deviation: {own} in Paddle, {theirs} in PyTorch "
                f"(fitted scale {_list(scale)}, offset {_list(offset)})"
            )
    return (
        "other mean or standard deviation: for each channel Paddle's value is PyTorch's x "
        f"{_list(scale)} plus {_list(offset)}"
    )


def _rounded(a: np.ndarray, b: np.ndarray) -> str:
    name = rounded_to(a, b)
    return f"values are rounded to {name} in Paddle" if name else ""


def _shifted(a: np.ndarray, b: np.ndarray) -> str:
    """Crops that begin some pixels lower or farther right, each image by its own steps."""
    near = EXPLAINED * float(np.abs(a - b).max())
    found: list[tuple[int, int]] = []
    for own, theirs in zip(a[:, None], b[:, None], strict=True):
        step = _step(own, theirs, near, found)
        if step is None:
            return ""
        found.append(step)
    (down, right), several = max(found, key=lambda step: step != (0, 0)), len(set(found)) > 1
    if (down, right) == (0, 0):
        return ""
    rows = f"{abs(down)} pixels {'lower' if down >= 0 else 'higher'}"
    columns = f"{abs(right)} pixels farther {'right' if right >= 0 else 'left'}"
    image = f" in image {found.index((down, right))}, elsewhere by other steps" if several else ""
    return f"crop shifted: Paddle's begins {rows} and {columns}{image}"


def _step(
    a: np.ndarray, b: np.ndarray, near: float, known: list[tuple[int, int]]
) -> tuple[int, int] | None:
    """The smallest shift of one image (1, C, H, W), those of other images first."""
    far = min(FARTHEST, min(a.shape[2:]) // 2 - 1)
    steps = itertools.product(range(-far, far + 1), repeat=2)
    ordered = sorted(steps, key=lambda step: abs(step[0]) + abs(step[1]))
    for down, right in (*known[-1:], *ordered):
        own, theirs = _overlap(a, b, down, right)
        if np.abs(own - theirs).max() <= near:
            return down, right
    return None


def _overlap(a: np.ndarray, b: np.ndarray, down: int, right: int) -> tuple[np.ndarray, np.ndarray]:
    """The parts of both that show the same when a's crop lies (down, right) of b's."""
    height, width = a.shape[2:]
    (own, theirs), (left, lefts) = _parts(height, down), _parts(width, right)
    return a[:, :, own, left], b[:, :, theirs, lefts]


def _parts(length: int, step: int) -> tuple[slice, slice]:
    first, last = max(0, -step), max(0, step)
    return slice(first, length - last), slice(last, length - first)


def _some_images(a: np.ndarray, b: np.ndarray) -> str:
    """Only some images differ, or some are flipped: a random augmentation."""
    near = EXPLAINED * float(np.abs(a - b).max())
    same = np.abs(a - b).max(axis=(1, 2, 3)) <= near
    for title, turn in _GEOMETRY.items():
        turned = turn(b)
        if not title or turned.shape != a.shape:
            continue
        moved = np.abs(a - turned).max(axis=(1, 2, 3)) <= near
        if (same | moved).all():
            rows = ", ".join(map(str, np.flatnonzero(~same)[:4]))
            return f"some images only ({rows}): {title}: a random augmentation that is not shared"
    return ""


def _levels(a: np.ndarray, b: np.ndarray) -> str:
    """At most 256 values for each channel where the reference has more."""
    for channel in range(a.shape[1]):
        own, theirs = np.unique(a[:, channel]), np.unique(b[:, channel])
        if len(own) > LEVELS or len(theirs) <= 2 * len(own) or len(own) < 2:
            return ""
        if np.abs(a[:, channel] - b[:, channel]).max() > 1.01 * float(np.diff(own).min()):
            return ""
    return (
        "values are rounded to bytes (uint8) in Paddle: at most 256 levels for each channel, "
        "PyTorch has more"
    )


def _everywhere_a_little(a: np.ndarray, b: np.ndarray) -> str:
    """A smooth difference in most pixels."""
    difference = np.abs(a - b)
    spread = float(b.std())
    share = float((difference > 1e-6 * spread).mean())
    correlation = float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) if a.std() and spread else 0.0
    if share < 0.2 or correlation < ALIKE:
        return ""
    return (
        f"differs everywhere by a little (mean {difference.mean() / spread:.2g} of the spread in "
        f"{100 * share:.0f} % of the pixels, correlation {correlation:.3f}): another resize "
        "interpolation, antialias or crop"
    )
