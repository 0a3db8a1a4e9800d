"""Lists an ImageFolder: ``root/train/<class>/*`` and ``root/val/<class>/*``.

Class numbers are the positions of the folder names in sorted order, as in torchvision. (timm 0.3.4
sorts names with numbers in them naturally, ``2`` before ``10``; for ImageNet's synsets the two
orders are the same.) Images may lie at any depth below their class. Names that begin with a dot
are left out, and so are files with another extension, which a line counts, and links to a folder
that they are in.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sot_paddle.config import some
from sot_paddle.data.errors import DataError
from sot_paddle.data.image_sources import FolderSource
from sot_paddle.reading import shown

EXTENSIONS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
OTHER_NAMES = {"val": ("validation",)}
"""The original's second name of the validation folder."""

Report = Callable[[str], None]
"""Is told what a folder holds and is not read."""

_LOG = logging.getLogger(__name__)
_DROPPINGS = ("desktop.ini", "thumbs.db")
"""Files that a desktop leaves, in lower case; nobody takes them for images."""
_LONGEST_EXTENSION = 10


@dataclass(frozen=True)
class FoundFiles:
    """The files at any depth below a folder.

    Attributes:
        images: paths of the images, sorted.
        others: extension in lower case, "" for none -> files that are no images by their name.
    """

    images: tuple[str, ...]
    others: Mapping[str, int]


def read_split(root: str | Path, split: str, report: Report = _LOG.warning) -> FolderSource:
    """List one split.

    Args:
        root: the data set's folder.
        split: ``"train"`` or ``"val"`` (then ``validation`` is accepted as well).
        report: is told what is left out.

    Raises:
        DataError: as for :func:`read_class_folders`, or there is no such split.
    """
    root = Path(root)
    names = (split, *OTHER_NAMES.get(split, ()))
    for name in names:
        if (root / name).is_dir():
            return read_class_folders(root / name, report)
    if not root.is_dir():
        found = "a file" if root.exists() else "nothing there"
    else:
        found = some(sorted(entry.name for entry in root.iterdir())) or "an empty folder"
    raise DataError(
        f"{root}: expected a folder with {' or '.join(names)} in it (train/<class>/*, "
        f"val/<class>/*), got: {found}; name the folder above {split}"
    )


def read_class_folders(folder: str | Path, report: Report = _LOG.warning) -> FolderSource:
    """List a folder of class folders.

    Args:
        folder: ``<class>/*`` below it.
        report: is told what is left out.

    Returns:
        Every image once.

    Raises:
        DataError: the folder is missing or has no class, a class has no image, or an image lies
            beside the class folders.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of class folders, got nothing there")
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    stray = [entry.name for entry in entries if not entry.is_dir() and _is_image(entry.name)]
    classes = tuple(entry.name for entry in entries if entry.is_dir())
    if stray:
        raise DataError(
            f"{folder}: expected class folders only, got {len(stray)} image(s) beside them: "
            f"{some(sorted(stray))}; move each into the folder of its class"
        )
    if not classes:
        raise DataError(
            f"{folder}: expected one folder per class, got none; put images in <class>/*"
        )
    files = [files_below(folder, name) for name in classes]
    empty = [name for name, found in zip(classes, files, strict=True) if not found.images]
    if empty:
        raise DataError(
            f"{folder}: expected images ({' '.join(EXTENSIONS)}) in every class folder, got none "
            f"in {len(empty)} of {len(classes)}: {some(empty)}; remove these folders or "
            "fill them"
        )
    others = _counted(entry.name for entry in entries if not entry.is_dir())
    report_others(folder, sum((Counter(found.others) for found in files), others), report)
    images = [found.images for found in files]
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), list(map(len, images)))
    return FolderSource(folder, classes, tuple(itertools.chain(*images)), labels)


def report_others(folder: Path, others: Mapping[str, int], report: Report) -> None:
    """Say how many files of a folder are no images by their name, with their extensions."""
    if not others:
        return
    kinds = sorted(others.items(), key=lambda kind: (-kind[1], kind[0] or "~"))
    shown = some(f"{extension or 'without one'} ({count})" for extension, count in kinds)
    count = sum(others.values())
    report(f"{folder}, left out: {count} files that are no images by their name: {shown}")


def files_below(folder: Path, name: str = "") -> FoundFiles:
    """The files at any depth below ``folder/name``, by paths relative to ``folder``."""
    found, foreign, places = [], [], [name]
    while places:
        place = places.pop()
        with os.scandir(folder / place) as entries:
            for entry in entries:
                path = os.path.join(place, entry.name)
                if os.path.isdir(entry):
                    places += [] if entry.name.startswith(".") or _leads_up(entry) else [path]
                elif not _is_image(entry.name):
                    foreign.append(entry.name)
                else:
                    found.append(path)
                    if entry.is_symlink() and not os.path.exists(entry):
                        raise DataError(f"{shown(folder / path)} is a link to nothing: remove it")
    odd = next((path for path in sorted(found) if not _is_text(path)), None)
    if odd is not None:
        raise DataError(
            f"{shown(folder / odd)}: expected a name in UTF-8, got other bytes; rename it"
        )
    return FoundFiles(tuple(sorted(found)), _counted(foreign))


def _counted(names: Iterable[str]) -> Counter[str]:
    """Extensions of names with how many have them; hidden files and droppings do not count."""
    shown = [name for name in names if name[0] != "." and name.lower() not in _DROPPINGS]
    return Counter(_extension(name) for name in shown if not _is_image(name))


def _extension(name: str) -> str:
    """A name's extension in lower case, "" where what follows its last dot is none."""
    extension = os.path.splitext(name)[1].lower()
    usual = len(extension) <= _LONGEST_EXTENSION and extension[1:].isalnum()
    return extension if usual else ""


def _leads_up(entry: os.DirEntry) -> bool:
    """Whether it is a link to a folder that the walk is in: there is no end below it."""
    path = Path(entry)
    return entry.is_symlink() and any(path.samefile(one) for one in path.parents)


def _is_text(name: str) -> bool:
    return name.isascii() or os.fsencode(name).decode("utf-8", "replace") == name


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS)


def read_train_val(
    root: str | Path, report: Report = _LOG.warning
) -> tuple[FolderSource, FolderSource]:
    """List both splits of a data set and make sure that they have the same classes.

    Args:
        root: the data set's folder.
        report: is told what is left out.

    Raises:
        DataError: as for :func:`read_split`, or a class is in one split only.
    """
    train, val = read_split(root, "train", report), read_split(root, "val", report)
    missing = {
        "val": set(train.classes) - set(val.classes),
        "train": set(val.classes) - set(train.classes),
    }
    differences = [
        f"{len(names)} not in {split}: {some(sorted(names))}"
        for split, names in missing.items()
        if names
    ]
    if differences:
        raise DataError(
            f"{Path(root)}: expected the same classes in train ({len(train.classes)}) and val "
            f"({len(val.classes)}), got {'; '.join(differences)}; labels are positions among the "
            "sorted names, so both splits need every class"
        )
    return train, val


def check_class_count(classes: Iterable[str], num_classes: int, where: str | Path) -> None:
    """Make sure that a model's output fits a data set.

    Raises:
        DataError: the numbers differ.
    """
    count = len(tuple(classes))
    if count != num_classes:
        raise DataError(
            f"{where}: expected {num_classes} classes, as the model has, got {count} class "
            "folders; leave num_classes out, or name the model's own data set"
        )
