"""Decoding: colour modes as Pillow's convert, and every kind of damage named."""

from __future__ import annotations

import io
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageOps

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


FLAT = Image.fromarray(np.repeat(np.repeat(COLORS[:2, :2], 4, 0), 4, 1))
OF_8_BITS = {
    "black and white": (FLAT.convert("1"), "PNG", {}),
    "grey with alpha": (FLAT.convert("LA"), "PNG", {}),
    "grey with one clear level": (FLAT.convert("L"), "PNG", {"transparency": 3}),
    "colours with one clear colour": (FLAT, "PNG", {"transparency": (0, 0, 0)}),
    "colours with alpha": (FLAT.convert("RGBA"), "TIFF", {}),
    "palette with alpha": (FLAT.quantize(4), "PNG", {"transparency": bytes([0, 255, 9, 3])}),
    "palette with a clear entry": (FLAT.quantize(4), "GIF", {"transparency": 0}),
    "CMYK": (FLAT.convert("CMYK"), "TIFF", {}),
    "YCbCr": (FLAT.convert("YCbCr"), "TIFF", {}),
}


@pytest.mark.parametrize("kind", OF_8_BITS)
def test_what_has_8_bits_is_pillow_s_own_conversion(tmp_path: Path, kind: str) -> None:
    image, form, options = OF_8_BITS[kind]
    content = encode(image, form, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert (np.asarray(decoded(tmp_path, content)) == expected).all()
    assert len(np.unique(expected)) > 1


RAMP = np.linspace(0, 65535, 48).astype(np.uint16).reshape(4, 12)


def tiff(
    values: np.ndarray, bits: int, *, order: str = "<", white: bool = False, sample: int = 1
) -> bytes:
    """A TIFF of one strip; ``white``: 0 is white, ``sample``: 1 unsigned, 2 signed, 3 float."""
    if bits == 12:
        pairs = values.reshape(-1, 2)
        packed = [bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255]) for a, b in pairs.tolist()]
        pixels = b"".join(packed)
    else:
        pixels = values.astype(f"{order}{' uif'[sample]}{bits // 8}").tobytes()
    height, width = values.shape
    tags = {256: width, 257: height, 258: bits, 259: 1, 262: int(not white), 273: 8, 277: 1}
    tags |= {278: height, 279: len(pixels), 339: sample}
    entries = [struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in tags.items()]
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8 + len(pixels))
    return start + pixels + struct.pack(f"{order}H", len(tags)) + b"".join(entries) + bytes(4)


OF_16_BITS = {
    "PNG": encode(Image.fromarray(RAMP), "PNG"),
    "TIFF": tiff(RAMP, 16),
    "TIFF, high byte first": tiff(RAMP, 16, order=">"),
    "TIFF, compressed": encode(Image.fromarray(RAMP), "TIFF", compression="tiff_lzw"),
    "TIFF from white": tiff(65535 - RAMP, 16, white=True),
    "TIFF of 12 bits": tiff(RAMP >> 4, 12),
    "PGM": encode(Image.fromarray(RAMP), "PPM"),
}


@pytest.mark.parametrize("kind", OF_16_BITS)
def test_greys_of_16_bits_keep_their_high_byte(tmp_path: Path, kind: str) -> None:
    """Pillow's conversion makes 98 % of this ramp white."""
    found = np.asarray(decoded(tmp_path, OF_16_BITS[kind]))
    assert (found == (RAMP >> 8)[..., None]).all()


def test_colours_and_greys_of_16_bits_agree(tmp_path: Path) -> None:
    """Pillow keeps the high byte of colours: a grey picture is the same in either form."""
    header = b"P6 12 4 65535\n"
    colours = decoded(tmp_path, header + np.repeat(RAMP.astype(">u2"), 3).tobytes())
    greys = decoded(tmp_path, OF_16_BITS["PGM"])
    assert np.abs(np.asarray(colours).astype(int) - np.asarray(greys)).max() <= 1  # it rounds these


def test_floats_from_0_to_1_and_bytes_in_32_bits_are_converted_by_value(tmp_path: Path) -> None:
    expected = (RAMP >> 8)[..., None]
    for content in (
        tiff(expected[..., 0] / 255, 32, sample=3),
        tiff(1 - expected[..., 0] / 255, 32, sample=3, white=True),
        tiff(expected[..., 0], 32, sample=2),
        tiff(expected[..., 0], 16, sample=2),
    ):
        assert (np.asarray(decoded(tmp_path, content)) == expected).all()


def test_floats_are_rounded(tmp_path: Path) -> None:
    content = tiff(np.array([[0, 0.499, 0.999, 1]]), 32, sample=3)
    assert np.asarray(decoded(tmp_path, content))[0, :, 0].tolist() == [0, 127, 255, 255]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (tiff(RAMP / 257, 32, sample=3), "from 0 to 1 in an image of mode F, found 0 to 255"),
        (tiff(RAMP / 65535 - 0.5, 32, sample=3), "mode F, found -0.5 to 0.5"),
        (tiff(np.full((2, 2), np.nan), 32, sample=3), "mode F, found nan to nan"),
        (tiff(RAMP, 32, sample=2), "from 0 to 255 in an image of mode I, found 0 to 65535"),
        (tiff((RAMP >> 8) - 1.0, 16, sample=2), "mode I, found -1 to 254"),
    ],
)
def test_values_whose_white_nobody_knows_are_refused(tmp_path: Path, content, told) -> None:
    with pytest.raises(CorruptImage, match=f"image.bin: .*{told}: save it with 8 or 16 bits"):
        decoded(tmp_path, content)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_in_exif_is_applied_where_it_is_asked_for(
    tmp_path: Path, orientation: int, form: str
) -> None:
    """It is ignored else, as in the original."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photograph"
    path.write_bytes(encode(Image.fromarray(COLORS), form, exif=exif))
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        stored = np.asarray(image.convert("RGB"))
    assert (np.asarray(decode_rgb(path)) == stored).all()
    found = np.asarray(decode_rgb(path, exif_orientation=True))
    assert found.shape == upright.shape
    assert (found == upright).all()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_a_damaged_orientation_turns_nothing(tmp_path: Path, form: str) -> None:
    path = tmp_path / "photograph"
    for exif in (b"no exif at all", b"MM\0*\0\0\0\x08\0\x01\x01\x12", b"MM\0*\xff\xff\xff\xff"):
        path.write_bytes(encode(Image.fromarray(COLORS), form, exif=b"Exif\0\0" + exif))
        assert decode_rgb(path, exif_orientation=True).size == (7, 9)


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
