"""Compare GLUE's data with transformers' own processors, its slow tokenizer and torch's loader."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sot_paddle.data.batches import epoch_batches
from sot_paddle.data.corpus import FOLDER, REAL_SENTENCES
from sot_paddle.data.glue import read_split, tokenize_examples, write_predictions
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.splits import TokenSplit
from sot_paddle.data.tokenizers import word_piece_tokenizer
from sot_paddle.train.feeding import MicroBatches
from tests.parity.glue_files import write_fixture
from tests.parity.sides import assert_same
from tests.parity.vocabularies import bert_tokenizer

ROWS, BATCH_SIZE = 200, 8
Example = tuple[str, str | None, float]
"""First text, second text, index of the label or score."""
GLUE = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
TASKS = [
    # task, split, padding, batches of similar length, tokens of a row, embedded corpus
    *((task, "train", "max_length", False, 48, False) for task in GLUE),
    ("mnli", "dev_mismatched", "max_length", False, 48, False),
    ("rte", "train", "longest", False, 48, False),
    ("cola", "dev", "longest", True, 48, False),
    ("cola", "dev", "max_length", False, 48, True),
    ("qqp", "train", "longest", True, 16, False),
]


@pytest.mark.parametrize(("task", "split", "pad", "bucket", "max_length", "embedded"), TASKS)
def test_batches_of_a_task(
    task: str,
    split: str,
    pad: str,
    bucket: bool,
    max_length: int,
    embedded: bool,
    real_checkpoint: Path,
    tmp_path: Path,
) -> None:
    """An epoch, read from the official layout; both sides are given the order of the rows."""
    folder = FOLDER if embedded else write_fixture(tmp_path, task, REAL_SENTENCES)
    tokenizer = word_piece_tokenizer(real_checkpoint, max_length=max_length)
    features = tokenize_examples(read_split(folder, task, split), get_task(task), tokenizer)
    examples = torch_examples(folder, task, split)
    assert len(features) == len(examples)
    rows = min(len(features), ROWS)
    lengths = features.lengths[:rows] if bucket else None
    order = functools.partial(epoch_batches, rows, BATCH_SIZE, seed=3, lengths=lengths)
    batches = MicroBatches(lambda epoch: order(epoch=epoch))
    batches.seek(1, 0)
    loader = TokenSplit(features, BATCH_SIZE, pad=pad, max_length=max_length).load(batches)
    paddle_batches = [{n: t.numpy() for n, t in batch.items()} for batch in loader]

    def collate(examples: list[Example]) -> dict[str, torch.Tensor]:
        encoded = bert_tokenizer(real_checkpoint)(
            [example[0] for example in examples],
            [example[1] for example in examples] if examples[0][1] is not None else None,
            padding=pad,
            truncation="longest_first",
            max_length=max_length,
            return_tensors="pt",
        )
        labels = [example[2] for example in examples]
        dtype = torch.float32 if isinstance(labels[0], float) else torch.int64
        return {**encoded, "labels": torch.tensor(labels, dtype=dtype)}

    chosen = [batch.tolist() for batch in order(epoch=1)]
    torch_loader = torch.utils.data.DataLoader(examples, batch_sampler=chosen, collate_fn=collate)
    for paddle_batch, torch_batch in zip(paddle_batches, torch_loader, strict=True):
        assert_same(paddle_batch, {name: t.numpy() for name, t in torch_batch.items()}, bound=0.0)


def torch_examples(folder: Path, task: str, split: str) -> list[Example]:
    """Read a split by transformers' processors."""
    processor = transformers_processor("mnli-mm" if split == "dev_mismatched" else task)
    read = processor.get_train_examples if split == "train" else processor.get_dev_examples
    labels = processor.get_labels()
    value = float if labels == [None] else labels.index
    return [(example.text_a, example.text_b, value(example.label)) for example in read(str(folder))]


def transformers_processor(name: str) -> Any:
    """Return transformers' processor of a task."""
    import sot_torch_ref  # noqa: F401  isort: skip (transformers beside a CPU torch)
    from transformers import glue_processors

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers announces their removal
        return glue_processors[name]()


def test_diagnostic_set(real_checkpoint: Path, tmp_path: Path) -> None:
    """AX, of which some rows are cut: rows as read, and the bytes of a file of answers.

    Its columns are RTE's, whose reader of transformers reads it, and its classes MNLI's.
    """
    max_length = 24
    folder = write_fixture(tmp_path / "MNLI", "ax", REAL_SENTENCES)
    tokenizer = word_piece_tokenizer(real_checkpoint, max_length=max_length)
    rows = read_split(folder, "mnli", "test_diagnostic")
    features = tokenize_examples(rows, get_task("mnli"), tokenizer)
    reader = transformers_processor("rte")
    lines = reader._read_tsv(str(folder / "diagnostic.tsv"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        examples = reader._create_examples(lines, "test")
    cut = {"truncation": "longest_first", "max_length": max_length}
    reference = bert_tokenizer(real_checkpoint)
    rows = [reference(example.text_a, example.text_b, **cut) for example in examples]
    numbers = [int(example.guid.rpartition("-")[2]) for example in examples]
    assert_same(
        {
            "lengths": features.lengths,
            "ids": features.input_ids.astype("int64"),
            "second sentence from": features.boundaries.astype("int64"),
            "row numbers": features.indices,
        },
        {
            "lengths": [len(row["input_ids"]) for row in rows],
            "ids": np.concatenate([row["input_ids"] for row in rows]),
            "second sentence from": [row["token_type_ids"].index(1) for row in rows],
            "row numbers": numbers,
        },
    )
    classes = np.random.default_rng(3).integers(0, 3, len(features))
    path = write_predictions(
        tmp_path / "answers", "mnli", features.indices, classes, "test_diagnostic"
    )
    labels = transformers_processor("mnli").get_labels()
    answers = [f"{n}\t{labels[answer]}" for n, answer in zip(numbers, classes, strict=True)]
    assert path.name == "AX.tsv"
    assert path.read_bytes() == ("\n".join(["index\tprediction", *answers]) + "\n").encode()
