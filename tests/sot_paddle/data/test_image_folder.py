"""Listing an ImageFolder: order, labels, and every layout that must be refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.image_folder import (
    EXTENSIONS,
    check_class_count,
    read_class_folders,
    read_split,
    read_train_val,
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
    (tmp_path / "b" / "itself").symlink_to("itself")
    files = read_class_folders(tmp_path).files
    assert files == ("a/1.png", "a/b/3.png", "a/in/2.png", "b/3.png", "b/a/1.png", "b/a/in/2.png")


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


def test_hidden_and_foreign_files_are_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/._1.jpg", "a/notes.txt", ".cache/2.jpg", "a/.x/3.jpg", "LICENSE")
    samples = read_class_folders(tmp_path)
    assert samples.classes == ("a",)
    assert samples.files == ("a/1.jpg",)


def listed(root: Path) -> list[str]:
    """What is said of a folder of class folders."""
    said: list[str] = []
    read_class_folders(root, said.append)
    return said


def test_what_is_not_read_is_told_with_its_extensions(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/2.GIF", "a/in/3.jfif", "b/1.png", "b/n02119789_1", "b/4.gif")
    files = "4 files that are no images by their name: .gif (2), .jfif (1), without one (1)"
    assert listed(tmp_path) == [f"{tmp_path}, left out: {files}"]
    fill(tmp_path, "list.csv", "a/5.2021-05-03", "a/6.of several words")
    files = "7 files .*: without one \\(3\\), .gif \\(2\\), .csv \\(1\\), .jfif \\(1\\)"
    assert re.fullmatch(f".*, left out: {files}", *listed(tmp_path))
    fill(tmp_path, *(f"a/0.x{number}" for number in range(30)))
    assert "37 files" in listed(tmp_path)[0]
    assert "and 26 more" in listed(tmp_path)[0]


def test_of_what_a_desktop_leaves_nothing_is_told(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.jpg", "a/.DS_Store", "a/Thumbs.db", "desktop.ini", "a/._1.jpg", ".x/2.gif")
    assert listed(tmp_path) == []


def test_both_splits_are_told_of_and_nobody_asks_is_a_warning(tmp_path: Path, caplog) -> None:
    fill(tmp_path, "train/a/1.jpg", "train/a/2.gif", "val/a/1.jpg", "val/a/2")
    read_train_val(tmp_path)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(",")[0] for line in lines] == [f"{tmp_path}/train", f"{tmp_path}/val"]
    assert [line.rpartition(": ")[2] for line in lines] == [".gif (1)", "without one (1)"]


def test_symbolic_links_to_classes_are_followed(tmp_path: Path) -> None:
    fill(tmp_path / "elsewhere", "1.jpg")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "cat").symlink_to(tmp_path / "elsewhere")
    assert read_class_folders(tmp_path / "set").files == ("cat/1.jpg",)


def test_a_link_to_nothing_is_refused_when_it_is_listed(tmp_path: Path) -> None:
    """A missing file is never skipped, and it ended a training in the middle of its first epoch."""
    fill(tmp_path, "cat/1.jpg", "cat/in/2.jpg")
    (tmp_path / "cat" / "in" / "3.jpg").symlink_to(tmp_path / "gone.jpg")
    with pytest.raises(DataError, match=r"cat/in/3\.jpg is a link to nothing"):
        read_class_folders(tmp_path)


def test_the_original_s_other_name_of_the_validation_folder(tmp_path: Path) -> None:
    fill(tmp_path, "train/a/1.jpg", "validation/a/2.jpg")
    _, val = read_train_val(tmp_path)
    assert val.root.name == "validation"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("val/a/1.jpg",), "expected a folder with train in it .* got: val"),
        (("a/1.jpg", "b/1.jpg"), "name the folder above train"),
        (("train/a/1.jpg",), "expected a folder with val or validation"),
        (("train/a/1.jpg", "train/b/2.jpg", "val/a/1.jpg"), "1 not in val: b"),
        (("train/a/1.jpg", "val/a/1.jpg", "val/c/2.jpg"), "1 not in train: c"),
        (("train/a/1.jpg", "train/b/x.txt", "val/a/1.jpg"), "none in 1 of 2: b"),
        (("train/a/1.jpg", "train/2.jpg", "val/a/1.jpg"), r"1 image\(s\) beside them: 2.jpg"),
        (("train/readme.txt", "val/a/1.jpg"), "expected one folder per class, got none"),
    ],
)
def test_refusals(tmp_path: Path, files: tuple[str, ...], message: str) -> None:
    fill(tmp_path, *files)
    with pytest.raises(DataError, match=message):
        read_train_val(tmp_path)


def test_a_root_that_is_not_there_or_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing there"):
        read_split(tmp_path / "absent", "train")
    with pytest.raises(DataError, match="a file"):
        read_split(fill(tmp_path, "file") / "file", "train")
    with pytest.raises(DataError, match="expected a folder of class folders"):
        read_class_folders(tmp_path / "absent")


def test_many_differences_are_counted_and_only_some_named(tmp_path: Path) -> None:
    fill(tmp_path, "val/a/1.jpg", "train/a/1.jpg", *(f"train/c{k}/1.jpg" for k in range(9)))
    with pytest.raises(DataError, match="9 not in val: c0, c1, .*, c7 and 1 more"):
        read_train_val(tmp_path)


def test_class_count() -> None:
    check_class_count("abc", 3, "set")
    with pytest.raises(DataError, match=r"set: expected 5 classes.* got 3 .*; leave num_classes"):
        check_class_count("abc", 5, "set")
