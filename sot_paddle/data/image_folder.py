"""Lists an ImageFolder, ``root/train/<class>/*`` and ``root/val/<class>/*``, and decodes its files.

Class numbers are the positions of the folder names in sorted order, as in torchvision. (timm 0.3.4
sorts names with numbers in them naturally, ``2`` before ``10``; for ImageNet's synsets the two
orders are the same.) Images may lie at any depth below their class. Names that begin with a dot
are left out, and so are files with another extension, which a line counts, and links to a folder
that they are in.

Decoding is the original's, which reads through timm (specs.md A.9): Pillow, ``convert("RGB")``,
EXIF ignored. Greyscale images are repeated to three channels, alpha is dropped without blending,
palettes are resolved, CMYK is converted without a colour profile, only the first frame of an
animation is read.
"""

from __future__ import annotations

import io
import itertools
import logging
import os
import struct
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from sot_paddle.config import some
from sot_paddle.data.errors import DataError

EXTENSIONS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
OTHER_NAMES = {"val": ("validation",)}
"""The original's second name of the validation folder."""

Report = Callable[[str], None]
"""Is told what a folder holds and is not read."""

_LOG = logging.getLogger(__name__)
_DROPPINGS = ("desktop.ini", "thumbs.db")  # files that a desktop leaves, in lower case

# What Pillow's readers raise on damaged content; OSError includes "truncated" and "unidentified".
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)
DAMAGE += (zlib.error, Image.DecompressionBombError, RuntimeError)  # the last of AVIF
_ADVICE = "repair or remove it, or leave corrupt images out"
_WHITES = {"I": 255, "F": 1}  # of modes whose values say nothing about it; larger ones are refused
_SIXTEEN_BITS = ("PNG", "PPM")  # formats whose images of mode ``I`` have 16 bits
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF's orientation -> what makes the image upright; 1 is upright."""


@dataclass(frozen=True)
class FolderSource:
    """Image files by class, then by path, decoded anew at each access."""

    root: Path
    classes: tuple[str, ...]  # names; a label is a position in it
    files: tuple[str, ...] = field(repr=False)  # n paths relative to ``root``
    labels: np.ndarray = field(repr=False, compare=False)  # (n,) int64
    exif_orientation: bool = False  # whether to turn an image as its EXIF says

    def __len__(self) -> int:
        return len(self.files)

    def image(self, index: int) -> Image.Image:
        """Decode one image."""
        return decode_rgb(self.name(index), exif_orientation=self.exif_orientation)

    def name(self, index: int) -> str:
        """The image's path."""
        return str(self.root / self.files[index])


def read_train_val(
    root: str | Path, report: Report = _LOG.warning
) -> tuple[FolderSource, FolderSource]:
    """List both splits, see :func:`read_split`, and refuse a class that is in one of them only."""
    train, val = read_split(root, "train", report), read_split(root, "val", report)
    not_in_val = sorted(set(train.classes) - set(val.classes))
    not_in_train = sorted(set(val.classes) - set(train.classes))
    for split, names in (("val", not_in_val), ("train", not_in_train)):
        if names:
            raise DataError(
                f"{root}: expected the same classes in train ({len(train.classes)}) and val "
                f"({len(val.classes)}), got {len(names)} not in {split}: {some(names)}; labels "
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

    Returns the rest and what was drawn, in the order of the source; a class of one is a DataError.
    """
    draw, is_drawn = np.random.default_rng(seed), np.zeros(len(source), bool)
    for label, name in enumerate(source.classes):
        members = np.flatnonzero(source.labels == label)
        if len(members) < 2:
            raise DataError(f"{source.root / name}: one image cannot be split: add another")
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        is_drawn[draw.permutation(members)[:count]] = True
    parts = []
    for chosen in (np.flatnonzero(~is_drawn), np.flatnonzero(is_drawn)):
        files = tuple(source.files[index] for index in chosen)
        parts.append(replace(source, files=files, labels=source.labels[chosen]))
    return parts[0], parts[1]


def read_split(root: str | Path, split: str, report: Report = _LOG.warning) -> FolderSource:
    """List one split, ``"train"`` or ``"val"`` (then ``validation`` is accepted as well).

    Raises:
        DataError: as for :func:`read_class_folders`, or there is no such split.
    """
    root = Path(root)
    names = (split, *OTHER_NAMES.get(split, ()))
    for name in names:
        if (root / name).is_dir():
            return read_class_folders(root / name, report)
    content = "no folder"
    if root.is_dir():
        content = some(sorted(entry.name for entry in root.iterdir())) or "an empty folder"
    raise DataError(
        f"{root}: expected a folder with {' or '.join(names)} in it (train/<class>/*, "
        f"val/<class>/*), or with class folders alone (<class>/*, two at least), got: {content}"
    )


def read_class_folders(folder: str | Path, report: Report = _LOG.warning) -> FolderSource:
    """List a folder of class folders, ``<class>/*`` below it; every image comes once.

    Raises:
        DataError: no folder or class, a class without an image, or an image beside the classes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of class folders, got nothing there")
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = tuple(entry.name for entry in entries if entry.is_dir())
    beside = [entry.name for entry in entries if not entry.is_dir()]
    stray = [name for name in beside if _is_image(name)]
    if stray:
        raise DataError(
            f"{folder}: expected class folders only, got {len(stray)} image(s) beside them: "
            f"{some(stray)}; move each into the folder of its class"
        )
    if not classes:
        raise DataError(
            f"{folder}: expected one folder per class, got none; put images in <class>/*"
        )
    listings = [files_below(folder, name) for name in classes]
    empty = [name for name, files in zip(classes, listings, strict=True) if not files.images]
    if empty:
        raise DataError(
            f"{folder}: expected images ({' '.join(EXTENSIONS)}) in every class folder, got none "
            f"in {len(empty)} of {len(classes)}: {some(empty)}; remove these folders or "
            "fill them"
        )
    others = itertools.chain(beside, *(files.others for files in listings))
    report_others(folder, list(others), report)
    images = [files.images for files in listings]
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), list(map(len, images)))
    return FolderSource(folder, classes, tuple(itertools.chain(*images)), labels)


@dataclass(frozen=True)
class FoundFiles:
    """The files at any depth below a folder."""

    images: tuple[str, ...]  # sorted paths
    others: Sequence[str]  # names of those that are no images by their name


def files_below(folder: Path, name: str = "") -> FoundFiles:
    """The files at any depth below ``folder/name``, by paths relative to ``folder``."""
    images, foreign, places = [], [], [name]
    while places:
        place = places.pop()
        with os.scandir(folder / place) as entries:
            for entry in entries:
                path = os.path.join(place, entry.name)
                if os.path.isdir(entry):
                    places += [] if entry.name.startswith(".") or _leads_up(entry) else [path]
                elif not _is_image(entry.name):
                    foreign.append(entry.name)
                elif entry.is_symlink() and not os.path.exists(entry):
                    raise DataError(f"{folder / path} is a link to nothing: remove it")
                else:
                    images.append(path)
    odd = [path for path in images if path.encode("utf-8", "replace").decode() != path]
    if odd:
        raise DataError(f"{folder}: rename {os.fsencode(odd[0])!r}, expected a name in UTF-8")
    return FoundFiles(tuple(sorted(images)), foreign)


def report_others(folder: Path, names: Sequence[str], report: Report) -> None:
    """Say how many files of a folder are no images by their name, with their extensions.

    Hidden files and what a desktop leaves do not count.
    """
    counted = [name for name in names if name[0] != "." and name.lower() not in _DROPPINGS]
    counts = Counter(os.path.splitext(name)[1].lower() for name in counted)
    kinds = sorted(counts.items(), key=lambda kind: (-kind[1], kind[0] or "~"))
    shown = some(f"{extension or 'without one'} ({count})" for extension, count in kinds)
    if counted:
        report(
            f"{folder}, left out: {len(counted)} files that are no images by their name: {shown}"
        )


def _leads_up(entry: os.DirEntry) -> bool:
    """Whether it is a link to a folder that the walk is in: there is no end below it."""
    path = Path(entry)
    return entry.is_symlink() and any(path.samefile(parent) for parent in path.parents)


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS)


def check_class_count(classes: Iterable[str], num_classes: int, where: str | Path) -> None:
    """Refuse a data set with another number of classes than a model has, by a DataError."""
    count = len(tuple(classes))
    if count != num_classes:
        raise DataError(
            f"{where}: expected {num_classes} classes, as the model has, got {count} class "
            "folders; leave num_classes out, or name the model's own data set"
        )


class CorruptImage(DataError):
    """An image file that exists but cannot be decoded completely."""


def decode_rgb(path: str | Path, *, exif_orientation: bool = False) -> Image.Image:
    """Read one image file completely, to a loaded Pillow image of mode RGB.

    Args:
        exif_orientation: whether to turn the image as its EXIF says. (A TIFF is turned always, by
            Pillow.)

    Raises:
        CorruptImage: the content is damaged, cut off, empty, not an image, PostScript, so large
            that Pillow takes it for a decompression bomb (over twice ``Image.MAX_IMAGE_PIXELS``),
            or has values beyond what the mode's white is known to be.
        DataError: the file is missing or cannot be read at all: never skipped.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror}; expected a readable image file: the folder changed after "
            "it was listed, or its permissions are wrong"
        ) from error
    try:
        with warnings.catch_warnings():
            # large images below the bomb limit, palettes with transparency, damaged EXIF: decoded
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as image:
                if image.format == "EPS":
                    raise OSError("PostScript is a program, which is not run")
                rgb = _eight_bits(image).convert("RGB")
                return _upright(image, rgb) if exif_orientation else rgb
    except DAMAGE as error:
        reason = "not an image that Pillow knows" if "cannot identify" in str(error) else error
        raise CorruptImage(f"{path}: the image cannot be decoded ({reason}); {_ADVICE}") from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """The image itself, or greys of 8 bits where it has greys of more.

    Pillow's own conversion would cut these off at 255. 16-bit greys keep their high byte, as Pillow
    itself reads 16-bit colours; floats are from 0 to 1; integers of 32 bits, which have no white of
    their own, are from 0 to 255; a ValueError refuses others.
    """
    of_sixteen_bits = image.mode.startswith("I;16") or (
        image.mode == "I" and image.format in _SIXTEEN_BITS
    )
    if not of_sixteen_bits and image.mode not in _WHITES:
        return image
    values, tags = np.asarray(image), getattr(image, "tag_v2", {})  # (H, W)
    if of_sixteen_bits:
        (depth,) = tags.get(ExifTags.Base.BitsPerSample, (16,))  # Pillow leaves 12 bits as they are
        greys = values >> (depth - 8)
    else:
        white = _WHITES[image.mode]
        if not (values.min() >= 0 and values.max() <= white):  # true of NaN
            raise ValueError(
                f"expected values from 0 to {white} in an image of mode {image.mode}, found "
                f"{values.min():g} to {values.max():g}: save it with 8 or 16 bits"
            )
        greys = np.rint(values * (255 / white))
    greys = greys.astype(np.uint8)
    if tags.get(ExifTags.Base.PhotometricInterpretation) == 0:  # white; Pillow minds it in 8 bits
        greys = 255 - greys
    return Image.fromarray(greys)


def _upright(image: Image.Image, pixels: Image.Image) -> Image.Image:
    """The pixels turned as the image's EXIF says; as they are where it is damaged."""
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
    except DAMAGE:
        turn = None
    return pixels if turn is None else pixels.transpose(turn)
