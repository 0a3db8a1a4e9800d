"""Image files to RGB pixels, as the original does: Pillow, ``convert("RGB")``, EXIF ignored.

Greyscale images are repeated to three channels, alpha is dropped without blending, palettes are
resolved, CMYK is converted without a colour profile, the EXIF orientation is applied only where it
is asked for and only the first frame of an animation is read. Source: specs.md A.9 (the original
reads through timm).

Where Pillow's conversion would cut greys off at 255 they are converted by value or refused: 16-bit
greys keep their high byte, as Pillow itself reads 16-bit colours; floats are from 0 to 1; integers
of 32 bits, which have no white of their own, are from 0 to 255.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from sot_paddle.data.errors import DataError
from sot_paddle.reading import read_bytes

# What Pillow's readers raise on damaged content; OSError includes "truncated" and "unidentified".
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)
DAMAGE += (zlib.error, Image.DecompressionBombError, RuntimeError)  # the last of AVIF
_ADVICE = "repair or remove it, or leave corrupt images out"
_WHITES = {"I": 255, "F": 1}
"""White of a mode whose values say nothing about it; a larger one is refused."""
_SIXTEEN_BITS = ("PNG", "PPM")
"""Formats whose images of mode ``I`` have 16 bits."""
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


class CorruptImage(DataError):
    """An image file that exists but cannot be decoded completely."""


def decode_rgb(path: str | Path, *, exif_orientation: bool = False) -> Image.Image:
    """Read one image file completely.

    Args:
        path: the file.
        exif_orientation: whether to turn the image as its EXIF says. (A TIFF is turned always, by
            Pillow.)

    Returns:
        A loaded Pillow image of mode RGB.

    Raises:
        CorruptImage: the content is damaged, cut off, empty, not an image, PostScript, so large
            that Pillow takes it for a decompression bomb (over twice ``Image.MAX_IMAGE_PIXELS``),
            or has values beyond what the mode's white is known to be.
        DataError: the file is missing or cannot be read at all: never skipped.
    """
    path = Path(path)
    try:
        content = read_bytes(path)
    except ValueError as error:
        raise DataError(
            f"{error}; expected a readable image file: the folder changed after it was listed, or "
            "its permissions are wrong"
        ) from error
    if not content:
        raise CorruptImage(f"{path}: expected an image, got an empty file; {_ADVICE}")
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

    Raises:
        ValueError: values whose white is not known.
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
