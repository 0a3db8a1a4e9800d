"""Decoding: colour modes as Pillow's convert, and every kind of damage named."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_decoding import CorruptImage, decode_rgb

COLORS = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)


def encode(image: Image.Image, kind: str, **options) -> bytes:
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def decoded(tmp_path: Path, content: bytes) -> Image.Image:
    path = tmp_path / "image.bin"
    path.write_bytes(content)
    return decode_rgb(path)


def test_grey_is_repeated(tmp_path: Path) -> None:
    image = decoded(tmp_path, encode(Image.fromarray(COLORS[..., 0]), "PNG"))
    assert image.mode == "RGB"
    assert (np.asarray(image) == COLORS[..., :1]).all()


def test_alpha_is_dropped_without_blending(tmp_path: Path) -> None:
    alpha = np.concatenate([COLORS, COLORS[..., :1]], axis=2)
    assert (np.asarray(decoded(tmp_path, encode(Image.fromarray(alpha), "PNG"))) == COLORS).all()


def test_palettes_with_transparency_and_cmyk(tmp_path: Path) -> None:
    flat = Image.fromarray(np.repeat(np.repeat(COLORS[:2, :2], 4, 0), 4, 1))
    palette = flat.quantize(4)
    found = decoded(tmp_path, encode(palette, "PNG", transparency=bytes([0, 255, 9, 3])))
    assert (np.asarray(found) == np.asarray(palette.convert("RGB"))).all()
    cmyk = flat.convert("CMYK")
    found = decoded(tmp_path, encode(cmyk, "TIFF"))
    assert (np.asarray(found) == np.asarray(cmyk.convert("RGB"))).all()


def test_the_orientation_in_exif_is_ignored_as_in_the_original(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate by 90 degrees to view"
    image = Image.fromarray(COLORS)
    assert decoded(tmp_path, encode(image, "JPEG", exif=exif)).size == (7, 9)


JPEG = encode(Image.fromarray(np.repeat(np.repeat(COLORS, 9, 0), 9, 1)), "JPEG")
PNG = encode(Image.fromarray(COLORS), "PNG")
BROKEN = {
    "empty": b"",
    "text": b"<html>404 not found</html>",
    "jpeg cut in the middle": JPEG[: len(JPEG) // 2],
    "jpeg cut in the header": JPEG[:30],
    "png cut in the middle": PNG[: len(PNG) // 2],
    "png with a damaged checksum": PNG[:40] + bytes([PNG[40] ^ 255]) + PNG[41:],
    "png header only": PNG[:8],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_damage_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(CorruptImage, match="image.bin: .*repair or remove it"):
        decoded(tmp_path, BROKEN[kind])


def test_damage_inside_of_an_avif_is_named(tmp_path: Path) -> None:
    """Pillow raises RuntimeError there; a picture from the web may have this content as a .jpg."""
    content = bytearray(encode(Image.fromarray(np.repeat(np.repeat(COLORS, 9, 0), 9, 1)), "AVIF"))
    start = content.index(b"mdat") + 4
    content[start:] = bytes(len(content) - start)
    with pytest.raises(CorruptImage, match=r"image.bin: the image cannot be decoded \(Failed to"):
        decoded(tmp_path, bytes(content))


def test_a_program_in_postscript_is_not_run(tmp_path: Path, monkeypatch) -> None:
    """Pillow hands an EPS, whatever the file's extension, to Ghostscript where that is there."""
    run: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: run.append(given))
    with pytest.raises(CorruptImage, match="PostScript"):
        decoded(tmp_path, encode(Image.fromarray(COLORS), "EPS"))
    assert not run


def test_a_decompression_bomb_is_corrupt(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(CorruptImage, match="decompression bomb"):
        decoded(tmp_path, PNG)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)  # a warning of Pillow's only: decoded
    assert decoded(tmp_path, PNG).size == (7, 9)


def test_a_file_that_cannot_be_read_is_another_error(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.jpg", tmp_path):
        with pytest.raises(DataError, match="readable image file") as caught:
            decode_rgb(path)
        assert not isinstance(caught.value, CorruptImage)
