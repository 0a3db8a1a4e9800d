"""ImageNet-A: the table against timm's, folders checked by name; columns: tests/parity."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.imagenet_a import (
    INDICES,
    SYNSETS,
    require_imagenet_order,
    require_synsets,
)


def lines(name: str) -> list[str]:
    root = Path(importlib.util.find_spec("timm").submodule_search_locations[0])
    return (root / "data" / "_info" / name).read_text().split()


def test_the_table_is_the_public_one() -> None:
    assert list(SYNSETS) == lines("imagenet_a_synsets.txt")
    assert [str(index) for index in INDICES] == lines("imagenet_a_indices.txt")


def test_a_model_s_known_classes_are_checked() -> None:
    synsets = lines("imagenet_synsets.txt")
    require_imagenet_order(synsets)
    synsets[11], synsets[12] = synsets[12], synsets[11]
    with pytest.raises(DataError, match="with n01531178 as class 11, got n01532829"):
        require_imagenet_order(synsets)
    with pytest.raises(DataError, match="W: ImageNet-A needs .* 1000 classes, got 999"):
        require_imagenet_order(synsets[1:], "W")


def test_folders_are_checked_by_name() -> None:
    require_synsets(SYNSETS)
    with pytest.raises(DataError, match="got 199 folders, 1 missing .n01498041"):
        require_synsets(SYNSETS[1:])
    with pytest.raises(DataError, match="1 missing .*, 1 that are not among them .n01440764"):
        require_synsets(("n01440764", *SYNSETS[1:]))
    with pytest.raises(DataError, match="in another order"):
        require_synsets(SYNSETS[::-1])
    with pytest.raises(DataError, match="200 that are not among them .*and 192 more"):
        require_synsets([f"class{k}" for k in range(200)])
