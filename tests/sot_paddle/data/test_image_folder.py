"""Listing an ImageFolder and decoding its files: order, labels, colour modes, what is refused."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from sot_paddle.data.image_folder import (
    EXTENSIONS,
    decode_rgb,
    is_bare,
    read_class_folders,
    read_split,
    read_train_val,
    split_classes,
)

import sot_torch_ref  # noqa: F401  isort: skip (declares the operators that torchvision lacks)
from torchvision.datasets.folder import IMG_EXTENSIONS, ImageFolder  # isort: skip


def fill(root: Path, *names: str) -> Path:
    """Files that only look like images: listing does not open them."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return root


def test_links_in_a_circle_list_every_image_once(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "a/in/2.png", "b/3.png")
    for link, target in (("a/self", "."), ("a/in/up", "../.."), ("a/b", "../b"), ("b/a", "../a")):
        (tmp_path / link).symlink_to(target)
    files = read_class_folders(tmp_path).files
    assert files == ("a/1.png", "a/b/3.png", "a/in/2.png", "b/3.png", "b/a/1.png", "b/a/in/2.png")


def test_bare_class_folders_are_split_within_each_class_by_the_seed(tmp_path: Path) -> None:
    counts = {"ant": 10, "bee": 3, "cow": 2}
    names = [f"{name}/{index}.png" for name, count in counts.items() for index in range(count)]
    assert not is_bare(fill(tmp_path / "one", "ant/1.png"))
    assert not is_bare(fill(tmp_path / "both", "ant/1.png", "bee/1.png", "val/ant/1.png"))
    assert is_bare(fill(tmp_path / "bare", *names))
    source = read_class_folders(tmp_path / "bare")
    train, val = split_classes(source, 0.2, seed=1)
    assert np.bincount(val.labels).tolist() == [2, 1, 1]
    assert sorted(train.files + val.files) == sorted(source.files)
    assert train.classes == val.classes == source.classes
    for part in (train, val):
        assert [name.split("/")[0] for name in part.files] == [
            part.classes[label] for label in part.labels
        ]
    assert split_classes(source, 0.2, seed=1)[1].files == val.files
    assert split_classes(source, 0.2, seed=2)[1].files != val.files
    assert np.bincount(split_classes(source, 0.99, seed=1)[0].labels).tolist() == [1, 1, 1]
    alone = read_class_folders(fill(tmp_path / "alone", "ant/1.png", "bee/1.png", "bee/2.png"))
    with pytest.raises(ValueError, match="alone/ant: one image cannot be split: add another"):
        split_classes(alone, 0.5, seed=1)


def test_order_labels_and_nested_files_are_those_of_torchvision(tmp_path: Path) -> None:
    names = ("10/b.jpg", "10/a.PNG", "2/deep/er/z.jpeg", "2/deep.webp", "Zoo/1.bmp", "ant/q.tiff")
    fill(tmp_path / "train", *names)
    ours = read_split(tmp_path, "train")
    theirs = ImageFolder(tmp_path / "train")
    assert ours.classes == tuple(theirs.classes) == ("10", "2", "Zoo", "ant")
    assert set(EXTENSIONS) == set(IMG_EXTENSIONS)
    assert sorted((ours.name(i), int(ours.labels[i])) for i in range(len(ours))) == sorted(
        theirs.samples
    )
    assert ours.labels.dtype == np.int64
    assert ours.labels.tolist() == sorted(ours.labels.tolist())


def test_what_is_not_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, "a/1.jpg", "a/2.GIF", "a/in/3.jfif", "b/1.png", "notes.txt", "a/.DS_Store")
    read_class_folders(tmp_path)
    files = "3 files that are no images: notes.txt, a/2.GIF, a/in/3.jfif"
    assert caplog.messages == [f"{tmp_path}, left out: {files}"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("val/a/1.jpg",), "expected a folder with train in it .* got: val"),
        (("train/a/1.jpg", "train/b/2.jpg", "val/a/1.jpg"), "1 in one of them only: b"),
        (("train/a/1.jpg", "val/a/1.jpg", "val/c/2.jpg"), "1 in one of them only: c"),
        (("train/a/1.jpg", "train/2.jpg", "val/a/1.jpg"), r"1 image\(s\) beside them: 2.jpg"),
    ],
)
def test_refusals(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    root = fill(tmp_path / "set", *files)
    with pytest.raises(ValueError, match=message):
        read_train_val(root)


COLORS = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)


def encode(image: Image.Image, kind: str, **options) -> bytes:
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def decoded(tmp_path: Path, content: bytes) -> Image.Image:
    path = tmp_path / "image.bin"
    path.write_bytes(content)
    return decode_rgb(path)


FLAT = Image.fromarray(np.repeat(np.repeat(COLORS[:2, :2], 4, 0), 4, 1))
OF_8_BITS = {
    "grey with alpha": (FLAT.convert("LA"), "PNG", {}),
    "colours with one clear colour": (FLAT, "PNG", {"transparency": (0, 0, 0)}),
    "palette with alpha": (FLAT.quantize(4), "PNG", {"transparency": bytes([0, 255, 9, 3])}),
    "palette with a clear entry": (FLAT.quantize(4), "GIF", {"transparency": 0}),
    "CMYK": (FLAT.convert("CMYK"), "TIFF", {}),
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


@pytest.mark.parametrize("dtype", ["uint16", "int32", "float32"])
def test_greys_of_more_than_8_bits_are_refused(tmp_path: Path, dtype: str) -> None:
    """Pillow's conversion would make most of this ramp white."""
    ramp = Image.fromarray(np.linspace(0, 65535, 48).astype(dtype).reshape(4, 12))
    with pytest.raises(ValueError, match="image.bin: .*greys of more than 8 bits.* save it with 8"):
        decoded(tmp_path, encode(ramp, "TIFF"))


def test_the_orientation_in_exif_is_ignored_as_in_the_original(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for options in ({}, {"exif": exif}, {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12"}):
        assert decoded(tmp_path, encode(Image.fromarray(COLORS), "JPEG", **options)).size == (7, 9)


JPEG = encode(Image.fromarray(np.repeat(np.repeat(COLORS, 9, 0), 9, 1)), "JPEG")
PNG = encode(Image.fromarray(COLORS), "PNG")
BROKEN = {
    "empty": b"",
    "jpeg cut in the middle": JPEG[: len(JPEG) // 2],
    "png cut in the middle": PNG[: len(PNG) // 2],
    "png with a damaged checksum": PNG[:40] + bytes([PNG[40] ^ 255]) + PNG[41:],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_damage_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match="image.bin: .*repair or remove it"):
        decoded(tmp_path, BROKEN[kind])


def test_a_program_in_postscript_is_not_run(tmp_path: Path, monkeypatch) -> None:
    """Pillow hands an EPS, whatever the file's extension, to Ghostscript where that is there."""
    run: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: run.append(given))
    with pytest.raises(ValueError, match="PostScript"):
        decoded(tmp_path, encode(Image.fromarray(COLORS), "EPS"))
    assert not run


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with pytest.raises(ValueError, match="decompression bomb"):
        decoded(tmp_path, PNG)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)  # a warning of Pillow's only: decoded
    assert decoded(tmp_path, PNG).size == (7, 9)
