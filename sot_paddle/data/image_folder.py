"""Lists an ImageFolder, ``root/train/<class>/*`` and ``root/val/<class>/*``, and decodes its files.

Class numbers are the positions of the folder names in sorted order, as in torchvision. (timm 0.3.4
sorts names with numbers in them naturally, ``2`` before ``10``; for ImageNet's synsets the two
orders are the same.) Images may lie at any depth below their class. Names that begin with a dot
are left out, and so are files with another extension, which a line counts, and links to a folder
that they are in.

Decoding is the original's, which reads through timm (specs.md A.9): Pillow, ``convert("RGB")``,
EXIF ignored. Greyscale images are repeated to three channels, alpha is dropped without blending,
palettes are resolved, CMYK is converted without a colour profile, only the first frame of an
animation is read. Greys of more than 8 bits are refused.
"""

from __future__ import annotations

import itertools
import logging
import os
import struct
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import Image

from sot_paddle.config import some

EXTENSIONS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
OTHER_NAMES = {"val": ("validation",)}
"""The original's second name of the validation folder."""

_LOG = logging.getLogger(__name__)

# What Pillow's readers raise on damaged content; OSError includes "truncated" and "unidentified".
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)
DAMAGE += (zlib.error, Image.DecompressionBombError, RuntimeError)  # the last of AVIF
_ADVICE = "repair or remove it"
_WIDE_GREYS = ("I", "F")  # beginnings of the modes of greys with more than 8 bits


@dataclass(frozen=True)
class FolderSource:
    """Image files by class, then by path, decoded anew at each access."""

    root: Path
    classes: tuple[str, ...]  # names; a label is a position in it
    files: tuple[str, ...] = field(repr=False)  # n paths relative to ``root``
    labels: np.ndarray = field(repr=False, compare=False)  # (n,) int64

    def __len__(self) -> int:
        return len(self.files)

    def image(self, index: int) -> Image.Image:
        """Decode one image."""
        return decode_rgb(self.name(index))

    def name(self, index: int) -> str:
        """The image's path."""
        return str(self.root / self.files[index])


def read_train_val(root: str | Path) -> tuple[FolderSource, FolderSource]:
    """List both splits, see :func:`read_split`, and refuse a class that is in one of them only."""
    train, val = read_split(root, "train"), read_split(root, "val")
    if names := sorted(set(train.classes) ^ set(val.classes)):
        raise ValueError(
            f"{root}: expected the same classes in train ({len(train.classes)}) and val "
            f"({len(val.classes)}), got {len(names)} in one of them only: {some(names)}; labels "
            "are positions among the sorted names, so both splits need every class"
        )
    return train, val


def is_bare(root: Path) -> bool:
    """Whether a folder has class folders, two at least, in the place of those of splits."""
    names = {entry.name for entry in root.iterdir() if entry.is_dir()} if root.is_dir() else set()
    of_classes = [name for name in names if not name.startswith(".")]
    return len(of_classes) > 1 and not names & {"train", "val", *OTHER_NAMES["val"]}


def split_classes(
    source: FolderSource, fraction: float, seed: int
) -> tuple[FolderSource, FolderSource]:
    """Draw a share of each class, rounded, but at least one image and never all of them.

    Returns the rest and what was drawn, in the order of the source; a class of one is a ValueError.
    """
    draw, is_drawn = np.random.default_rng(seed), np.zeros(len(source), bool)
    for label, name in enumerate(source.classes):
        members = np.flatnonzero(source.labels == label)
        if len(members) < 2:
            raise ValueError(f"{source.root / name}: one image cannot be split: add another")
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        is_drawn[draw.permutation(members)[:count]] = True
    parts = []
    for chosen in (np.flatnonzero(~is_drawn), np.flatnonzero(is_drawn)):
        files = tuple(source.files[index] for index in chosen)
        parts.append(replace(source, files=files, labels=source.labels[chosen]))
    return parts[0], parts[1]


def read_split(root: str | Path, split: str) -> FolderSource:
    """List one split, ``"train"`` or ``"val"`` (then ``validation`` is accepted as well).

    Raises:
        ValueError: as for :func:`read_class_folders`, or there is no such split.
    """
    root = Path(root)
    names = (split, *OTHER_NAMES.get(split, ()))
    for name in names:
        if (root / name).is_dir():
            return read_class_folders(root / name)
    content = "no folder"
    if root.is_dir():
        content = some(sorted(entry.name for entry in root.iterdir())) or "an empty folder"
    raise ValueError(
        f"{root}: expected a folder with {' or '.join(names)} in it (train/<class>/*, "
        f"val/<class>/*), or with class folders alone (<class>/*, two at least), got: {content}"
    )


def read_class_folders(folder: str | Path) -> FolderSource:
    """List a folder of class folders, ``<class>/*`` below it; every image comes once.

    Raises:
        ValueError: no folder or class, a class without an image, or an image beside the classes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder of class folders, got nothing there")
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = tuple(entry.name for entry in entries if entry.is_dir())
    beside = [entry.name for entry in entries if not entry.is_dir()]
    stray = list(filter(is_image, beside))
    if stray:
        raise ValueError(
            f"{folder}: expected class folders only, got {len(stray)} image(s) beside them: "
            f"{some(stray)}; move each into the folder of its class"
        )
    if not classes:
        raise ValueError(
            f"{folder}: expected one folder per class, got none; put images in <class>/*"
        )
    listings = [files_below(folder, name) for name in classes]
    images = [list(filter(is_image, files)) for files in listings]
    empty = [name for name, files in zip(classes, images, strict=True) if not files]
    if empty:
        raise ValueError(
            f"{folder}: expected images ({' '.join(EXTENSIONS)}) in every class folder, got none "
            f"in {len(empty)} of {len(classes)}: {some(empty)}; remove these folders or "
            "fill them"
        )
    report_others(folder, [*beside, *itertools.chain(*listings)])
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), list(map(len, images)))
    return FolderSource(folder, classes, tuple(itertools.chain(*images)), labels)


def files_below(folder: Path, name: str = "") -> list[str]:
    """List the files at any depth below ``folder/name``, sorted, relative to ``folder``."""
    files = []
    for place, inner_folders, names in os.walk(folder / name, followlinks=True):
        inner_folders[:] = [inner for inner in inner_folders if _is_below(Path(place, inner))]
        visible = [entry for entry in names if not entry.startswith(".")]
        files += [os.path.relpath(os.path.join(place, entry), folder) for entry in visible]
    return sorted(files)


def _is_below(folder: Path) -> bool:
    """Whether to go on in a folder: it is not hidden, and no link to one that it is in."""
    is_above = folder.is_symlink() and any(folder.samefile(parent) for parent in folder.parents)
    return not (is_above or folder.name.startswith("."))


def report_others(folder: Path, files: Sequence[str]) -> None:
    """Say how many of the files of a folder are no images by their name, and name some."""
    if others := list(itertools.filterfalse(is_image, files)):
        text = "%s, left out: %d files that are no images: %s"
        _LOG.warning(text, folder, len(others), some(others))


def is_image(name: str) -> bool:
    """Whether a file is an image by its name."""
    return name.lower().endswith(EXTENSIONS)


def check_class_count(classes: Iterable[str], num_classes: int, where: str | Path) -> None:
    """Refuse a data set with another number of classes than a model has, by a ValueError."""
    count = len(tuple(classes))
    if count != num_classes:
        raise ValueError(
            f"{where}: expected {num_classes} classes, as the model has, got {count} class "
            "folders; leave num_classes out, or name the model's own data set"
        )


def decode_rgb(path: str | Path) -> Image.Image:
    """Read one image file completely, to a loaded Pillow image of mode RGB.

    Raises:
        ValueError: the file cannot be read, or its content is damaged, cut off, empty, no image,
            PostScript, so large that Pillow takes it for a decompression bomb (over twice
            ``Image.MAX_IMAGE_PIXELS``), or greys of more than 8 bits.
    """
    try:
        with warnings.catch_warnings():
            # large images below the bomb limit, palettes with transparency, damaged EXIF: decoded
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                if image.format == "EPS":
                    raise OSError("PostScript is a program, which is not run")
                if image.mode.startswith(_WIDE_GREYS):
                    raise OSError(
                        "greys of more than 8 bits, of which Pillow's conversion makes all above "
                        "255 white: save it with 8 bits"
                    )
                return image.convert("RGB")
    except DAMAGE as error:
        reason = "not an image that Pillow knows" if "cannot identify" in str(error) else error
        raise ValueError(f"{path}: the image cannot be decoded ({reason}); {_ADVICE}") from error
