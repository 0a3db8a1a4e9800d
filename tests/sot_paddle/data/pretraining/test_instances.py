"""Instances from files: those of the reference, whatever is killed, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.pretraining.instance_files import InstanceRows, prepare_instances
from sot_paddle.data.pretraining.instances import InstanceOptions
from sot_paddle.data.pretraining.text_lines import text_files
from sot_torch_ref.train.instances import make_instances
from tests.sot_paddle.data.pretraining.dying import dying

SPECIAL = {"first": 1, "separator": 2, "mask": 3}
OPTIONS = InstanceOptions(**SPECIAL, vocab_size=40, max_seq_length=24, max_predictions=4)


class Numbers:
    """A tokenizer whose text is the ids; dies when it was asked often enough."""

    def __init__(self, calls: int = 10**9) -> None:
        self.calls = calls

    def ids(self, texts):
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt
        return [[int(word) for word in text.split() if word != "-"] for text in texts]


def corpus(seed: int = 0, documents: int = 300) -> list[list[list[int]]]:
    rng = random.Random(seed)
    return [
        [[rng.randint(4, 39) for _ in range(rng.randint(1, 14))] for _ in range(rng.randint(1, 9))]
        for _ in range(documents)
    ]


def write(folder: Path, documents) -> list[Path]:
    """Two files, the cut in the middle of a document; empty documents and a line of no token."""
    text = "\n\n\n".join("\n".join(" ".join(map(str, s)) for s in d) for d in documents)
    lines = ("\n- \n" + text).split("\n")
    half = len(lines) // 2
    for name, part in (("a.txt", lines[:half]), ("b.txt", lines[half:])):
        (folder / name).write_text("\n".join(part) + "\n" * (name == "a.txt"), encoding="utf-8")
    return text_files([str(folder)])


def prepare(files, folder, tokenizer=None, **more) -> None:
    options = {"fingerprint": "f", "dupes": 3, "report": lambda line: None, **more}
    prepare_instances(files, tokenizer or Numbers(), folder, OPTIONS, **options)


def reference(documents, **more):
    names = {"cls": 1, "sep": 2, "mask": 3, "vocab_size": 40, "max_seq_length": 24}
    return make_instances(documents, **names, max_predictions=4, dupe_factor=3, **more)


def test_the_instances_are_those_of_the_reference_in_its_order(tmp_path) -> None:
    files = write(tmp_path, corpus())
    prepare(files, tmp_path / "out")
    rows, expected = InstanceRows(tmp_path / "out"), reference(corpus())
    assert len(rows) == len(expected) > 1000
    for position, instance in enumerate(expected):
        found = rows.row(position)
        assert found.keys() == instance.keys()
        for name, array in instance.items():
            assert np.array_equal(found[name], array), (position, name)
    other = reference(corpus(), seed=1)[0]
    assert any((other[name] != array).any() for name, array in rows.row(0).items())


def test_a_preparation_that_is_killed_again_and_again_ends_with_the_same_files(tmp_path) -> None:
    files = write(tmp_path, corpus())
    prepare(files, tmp_path / "whole")
    for questions in (1, 3, 5, 40, 333, 10**9):
        try:
            with dying(questions):
                prepare(files, tmp_path / "out")
        except KeyboardInterrupt:
            with pytest.raises(DataError, match="is not finished"):
                InstanceRows(tmp_path / "out")
    for name in ("instances.bin", "order.bin", "manifest.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "out" / "tokens.bin").exists()


def test_other_options_and_damaged_files_are_refused(tmp_path) -> None:
    files = write(tmp_path, corpus())
    with pytest.raises(DataError, match="missing"):
        text_files([str(tmp_path / "c.txt")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \*\.txt in this folder"):
        text_files([str(tmp_path / "empty")])
    prepare(files, tmp_path / "out")
    with pytest.raises(DataError, match="begun with another dupes"):
        prepare(files, tmp_path / "out", dupes=2)
    rows = tmp_path / "out" / "instances.bin"
    content = rows.read_bytes()
    for damaged in (content[:-4], content[:-1] + b"\x01"):
        rows.write_bytes(damaged)
        with pytest.raises(ValueError, match="not that of manifest.json"):
            InstanceRows(tmp_path / "out")
    rows.unlink()
    with pytest.raises(ValueError, match=r"instances\.bin"):
        InstanceRows(tmp_path / "out")
