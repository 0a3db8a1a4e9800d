"""Fixtures of the data tests: tiny vocabularies, tiny task folders, the real data where there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizers import word_piece_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def vocab_file(tmp_path: Path) -> Path:
    """17 tokens; the special ones come first."""
    words = ["a", "b", "c", "cat", "Cat", "##s", "é", "e", "##e", ".", "x", "y"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(SPECIAL + words) + "\n", encoding="utf-8")
    return path


def letters(folder: Path, **options: Any) -> SubwordTokenizer:
    """A tokenizer of single letters and marks."""
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *"abcdefghij?."]) + "\n", encoding="utf-8")
    return word_piece_tokenizer(path, **options)


@pytest.fixture
def task_folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes files into a task's folder: ``task_folder("RTE", train="...")``."""

    def write(title: str, **files: str | bytes) -> Path:
        folder = tmp_path / title
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            stem = name.removesuffix("_txt")
            path = folder / f"{stem}{'.txt' if name.endswith('_txt') else '.tsv'}"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    return write
