"""Image files to RGB pixels, as the original does: Pillow, ``convert("RGB")``, EXIF ignored.

Greyscale images are repeated to three channels, alpha is dropped without blending, palettes are
resolved, CMYK is converted without a colour profile, the EXIF orientation is not applied and only
the first frame of an animation is read. Source: specs.md A.9 (the original reads through timm).
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path

from PIL import Image

from sot_paddle.data.errors import DataError
from sot_paddle.reading import LARGEST_JSON, read_bytes

# What Pillow's readers raise on damaged content; OSError includes "truncated" and "unidentified".
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, struct.error)
DAMAGE += (zlib.error, Image.DecompressionBombError, RuntimeError)  # the last of AVIF
_ADVICE = "repair or remove it, or leave corrupt images out"


class CorruptImage(DataError):
    """An image file that exists but cannot be decoded completely."""


def decode_rgb(path: str | Path) -> Image.Image:
    """Read one image file completely.

    Args:
        path: the file.

    Returns:
        A loaded Pillow image of mode RGB.

    Raises:
        CorruptImage: the content is damaged, cut off, empty, not an image, PostScript, or so large
            that Pillow takes it for a decompression bomb (over twice ``Image.MAX_IMAGE_PIXELS``).
        DataError: the file is missing or cannot be read at all: never skipped.
    """
    path = Path(path)
    try:
        content = read_bytes(path, LARGEST_JSON)
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
                return image.convert("RGB")
    except DAMAGE as error:
        reason = "not an image that Pillow knows" if "cannot identify" in str(error) else error
        raise CorruptImage(f"{path}: the image cannot be decoded ({reason}); {_ADVICE}") from error
