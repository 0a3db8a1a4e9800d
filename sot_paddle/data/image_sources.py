"""Where decoded images come from: a folder, an array, or memory.

A source is anything with ``classes``, ``labels``, a length, ``image(index)`` and ``name(index)``.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_decoding import CorruptImage, decode_rgb

PROBED = 64
"""Images that are decoded to estimate the memory of a whole data set, and at a time."""


class ImageSource(Protocol):
    """Labelled images in a fixed order.

    Attributes:
        classes: class names; a label is a position in it.
        labels: (n,) int64.
    """

    classes: tuple[str, ...]
    labels: np.ndarray

    def __len__(self) -> int: ...

    def image(self, index: int) -> Image.Image:
        """One RGB image; CorruptImage when it cannot be decoded."""
        ...

    def name(self, index: int) -> str:
        """How to name the image to the user."""
        ...


@dataclass(frozen=True)
class FolderSource:
    """Image files by class, then by path, decoded anew at each access.

    Attributes:
        root: the split's folder.
        classes: class names; a label is a position in it.
        files: n paths relative to ``root``.
        labels: (n,) int64.
        exif_orientation: whether to turn an image as its EXIF says.
    """

    root: Path
    classes: tuple[str, ...]
    files: tuple[str, ...] = field(repr=False)
    labels: np.ndarray = field(repr=False, compare=False)
    exif_orientation: bool = False

    def __len__(self) -> int:
        return len(self.files)

    def image(self, index: int) -> Image.Image:
        """Decode one image."""
        path = self.root / self.files[index]
        return decode_rgb(path, exif_orientation=self.exif_orientation)

    def name(self, index: int) -> str:
        """The image's path."""
        return str(self.root / self.files[index])


class ArraySource:
    """Images in memory.

    Args:
        images: n uint8 arrays (H, W, 3), of one size or several.
        labels: (n,) whole numbers.
        classes: class names.
        names: what to call the images, None for their numbers.
    """

    def __init__(
        self,
        images: Sequence[np.ndarray] | np.ndarray,
        labels: Sequence[int] | np.ndarray,
        classes: Sequence[str],
        names: Sequence[str] | None = None,
    ) -> None:
        self.images, self.classes = images, tuple(classes)
        self.labels = np.asarray(labels, dtype=np.int64)
        self._names = names

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Image.Image:
        """One image."""
        return Image.fromarray(self.images[index])

    def name(self, index: int) -> str:
        """The image's name."""
        return f"image {index}" if self._names is None else self._names[index]


class CachedSource:
    """Another source, decoded once and kept in memory; see :func:`cache_in_memory`.

    Pickling hands over the memory, not a copy of it: worker processes share one set of pixels.
    """

    def __init__(
        self, source: ImageSource, handle: int, places: np.ndarray, sizes: np.ndarray
    ) -> None:
        self.source = source
        self.classes, self.labels = source.classes, source.labels
        self._places, self._sizes = places, sizes  # (n,) first bytes, (n, 2) height and width
        self._path = f"/proc/{os.getpid()}/fd/{handle}"
        self._memory = np.memmap(self._path, mode="r") if os.fstat(handle).st_size else None
        self._close = weakref.finalize(self, os.close, handle)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("source", "classes", "labels", "_places", "_sizes", "_path")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memory = np.memmap(self._path, mode="r") if self._sizes.any() else None

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int) -> Image.Image:
        """One image; a corrupt one is tried again, which names it."""
        height, width = (int(side) for side in self._sizes[index])
        if not height:
            return self.source.image(index)
        first = int(self._places[index])
        pixels = self._memory[first : first + 3 * height * width].reshape(height, width, 3)
        return Image.fromarray(np.asarray(pixels))

    def name(self, index: int) -> str:
        """The source's name of the image."""
        return self.source.name(index)


def first_corrupt(source: ImageSource, indices: Sequence[int]) -> str | None:
    """Decode images and forget them.

    Args:
        source: of the images.
        indices: which.

    Returns:
        What is wrong with the first of them that cannot be had, None when all can.
    """

    def reason(index: int) -> str | None:
        try:
            source.image(index)
        except DataError as error:
            return str(error)
        return None

    with _threads() as pool:
        return next(filter(None, pool.map(reason, indices)), None)


@contextlib.contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that decode. Each silences Pillow's warnings, whose filters are the process's: they
    are put back when all have ended."""
    with warnings.catch_warnings(), ThreadPoolExecutor(os.cpu_count()) as pool:
        warnings.simplefilter("ignore")
        yield pool


def cache_in_memory(source: ImageSource, *, sharers: int = 1) -> CachedSource:
    """Decode every image now; the pixels live in one anonymous memory file until the end.

    Args:
        source: what to keep.
        sharers: processes that do the same on this machine; each may use its part of half of the
            free memory.

    Raises:
        DataError: the images would need, or need, more than that.
    """
    limit = _free_memory() // (2 * sharers)
    probed = np.linspace(0, len(source) - 1, min(PROBED, len(source)), dtype=int)
    first = [_pixels(source, int(place)) for place in probed]
    sizes = [pixels.nbytes for pixels in first if pixels is not None]
    needed = int(np.mean(sizes) * len(source)) if sizes else 0
    _require_memory(source, needed, limit)
    handle = os.memfd_create("images")
    try:
        places, shapes = _fill(source, handle, limit)
    except (DataError, OSError):
        os.close(handle)
        raise
    return CachedSource(source, handle, places, shapes)


def _fill(source: ImageSource, handle: int, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Decode everything into a memory file: first bytes (n,), height and width (n, 2)."""
    places = np.zeros(len(source), dtype=np.int64)
    sizes = np.zeros((len(source), 2), dtype=np.int64)
    end = 0
    with _threads() as pool, open(handle, "wb", closefd=False) as memory:
        for start in range(0, len(source), PROBED):  # a few at a time: memory for one set only
            some = range(start, min(start + PROBED, len(source)))
            for index, pixels in zip(
                some, pool.map(lambda place: _pixels(source, place), some), strict=True
            ):
                if pixels is not None:
                    places[index], sizes[index] = end, pixels.shape[:2]
                    end += memory.write(np.ascontiguousarray(pixels).data)
            _require_memory(source, end, limit)
    return places, sizes


def _require_memory(source: ImageSource, needed: int, limit: int) -> None:
    if needed > limit:
        raise DataError(
            f"keeping {len(source)} decoded images in memory needs about {needed / 1e9:.1f} GB, "
            f"expected at most {limit / 1e9:.1f} GB; leave the cache off"
        )


def _pixels(source: ImageSource, index: int) -> np.ndarray | None:
    """The decoded image, None for a corrupt one."""
    try:
        return np.asarray(source.image(index))
    except CorruptImage:
        return None


def _free_memory() -> int:
    """Bytes that this machine, or this process's memory group, can still give."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    group = Path("/sys/fs/cgroup")
    limit, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
    return min(free, max(0, int(limit) - int(used))) if limit.isdigit() and used else free


def _read(path: str | Path) -> str:
    """A small system file's text, empty when this system has none."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
