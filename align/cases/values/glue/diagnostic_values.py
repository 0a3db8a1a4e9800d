"""Step ``data`` of AX, GLUE's diagnostic set: its rows as read and cut, and the file of answers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from align.cases.both_sides import BothSides, Setting
from align.cases.sides.glue_fixtures import write_fixture
from align.record.arrays import Arrays
from sot_paddle.data.cache import tokenize_split
from sot_paddle.data.predictions import write_predictions
from sot_paddle.data.token_features import TokenFeatures

_TASK, _SPLIT, _FILE = "mnli", "test_diagnostic", "AX.tsv"


def diagnostic(setting: Setting, *, max_length: int) -> BothSides:
    """Token ids, lengths and row numbers of the set, and the bytes of a file of given answers.

    Reference: transformers' own reader of a file with these columns (RTE's), its slow tokenizer,
    and its words for the classes of MNLI.

    Args:
        setting: the user's sentences.
        max_length: tokens of a row at most; some rows are cut.
    """
    context = setting.context
    folder = write_fixture(setting.folder() / "MNLI", "ax", context.texts)
    features = tokenize_split(folder, _TASK, _SPLIT, context.tokenizer(max_length=max_length))
    classes = np.random.default_rng(3).integers(0, 3, len(features))
    ours = _rows(features) | _file(setting.folder() / "ours", features.indices, classes)
    examples, labels = _by_transformers(folder)
    rows = [
        context.reference_tokenizer()(
            example.text_a, example.text_b, truncation="longest_first", max_length=max_length
        )
        for example in examples
    ]
    numbers = [example.guid.rpartition("-")[2] for example in examples]
    lines = [f"{number}\t{labels[answer]}" for number, answer in zip(numbers, classes, strict=True)]
    reference = {
        "lengths": np.array([len(row["input_ids"]) for row in rows], "int64"),
        "ids": np.concatenate([row["input_ids"] for row in rows]).astype("int64"),
        "second sentence from": np.array([row["token_type_ids"].index(1) for row in rows]),
        "row numbers": np.array([int(number) for number in numbers]),
        "file": _bytes(("\n".join(["index\tprediction", *lines]) + "\n").encode()),
    }
    return BothSides(
        ours,
        reference,
        {
            "row numbers from 0": ours | {"row numbers": np.arange(len(features))},
            "rows in another order": ours | _rows(_backwards(features)),
            "classes in another order": ours
            | _file(setting.folder() / "other", features.indices, (classes + 1) % 3),
        },
        "the rows and the file",
        framework_free=True,
        note=f"{len(features)} rows; reference: transformers' RTE reader and MNLI labels",
    )


def _by_transformers(folder: Path) -> tuple[list[Any], list[str]]:
    from transformers import glue_processors

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers announces their removal
        reader = glue_processors["rte"]()
        lines = reader._read_tsv(str(folder / "diagnostic.tsv"))
        return reader._create_examples(lines, "test"), glue_processors[_TASK]().get_labels()


def _rows(features: TokenFeatures) -> Arrays:
    return {
        "lengths": features.lengths,
        "ids": features.input_ids.astype("int64"),
        "second sentence from": features.boundaries.astype("int64"),
        "row numbers": features.indices,
    }


def _backwards(features: TokenFeatures) -> TokenFeatures:
    rows = np.split(features.input_ids, features.offsets[1:-1])[::-1]
    made = TokenFeatures.from_rows(rows, features.boundaries[::-1].tolist())
    return made.with_targets(features.indices.tolist(), None, int)


def _file(folder: Path, numbers: np.ndarray, classes: np.ndarray) -> Arrays:
    """The bytes of the file that is written."""
    path = write_predictions(folder, _TASK, numbers, classes, _SPLIT)
    assert path.name == _FILE
    return {"file": _bytes(path.read_bytes())}


def _bytes(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8).astype("int64")
