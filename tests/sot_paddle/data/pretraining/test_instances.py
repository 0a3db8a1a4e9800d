"""Instances from files: those of the reference, also after a kill."""

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


def test_a_preparation_that_was_killed_ends_with_the_same_files(tmp_path) -> None:
    files = write(tmp_path, corpus())
    prepare(files, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        prepare(files, tmp_path / "out", Numbers(calls=3))
    with pytest.raises(DataError, match="is not finished"):
        InstanceRows(tmp_path / "out")
    prepare(files, tmp_path / "out")
    for folder in ("out", "whole"):
        names = {path.name for path in (tmp_path / folder).iterdir()}
        assert names == {"instances.bin", "order.bin", "manifest.json", "command.json"}
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_damaged_rows_are_refused(tmp_path) -> None:
    files = write(tmp_path, corpus(documents=3))
    prepare(files, tmp_path / "out")
    rows = tmp_path / "out" / "instances.bin"
    content = rows.read_bytes()
    for damaged in (content[:-4], content[:-1] + b"\x01"):
        rows.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"instances\.bin.*not that of manifest.json"):
            InstanceRows(tmp_path / "out")
    (tmp_path / "empty.txt").write_text("-\n\n", "utf-8")
    with pytest.raises(DataError, match="no document with a sentence"):
        prepare([tmp_path / "empty.txt"], tmp_path / "empty")
