"""Step ``data`` of a GLUE task: the padded batches of an epoch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.covered.pause import unmeasured
from align.cases.sides.glue_fixtures import write_fixture
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from sot_paddle.data.batch_loader import BatchLoader
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.cache import tokenize_split
from sot_paddle.data.corpus import FOLDER
from sot_paddle.data.glue import available_splits, split_paths
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.token_features import PadCollator, TokenFeatures
from sot_paddle.train.feeding import MicroBatches

ROWS = 200
BATCH = 8


def glue(
    setting: Setting,
    *,
    task: str,
    split: str = "train",
    pad: str = "max_length",
    bucket: bool = False,
    max_length: int = 48,
    embedded: bool = False,
) -> BothSides:
    """One epoch of padded batches of a GLUE task, read from the official layout.

    Ours: the TSV reader, the tokenizers library, and the sampler and loader of the trainer.
    Reference: transformers' own GLUE processors, its slow tokenizer and torch's DataLoader. The
    order of the samples is explicit and given to both.

    Args:
        setting: the user's files.
        task: lower-case name.
        split: ``train``, ``dev`` or ``dev_mismatched``.
        pad: ``max_length`` (as published) or ``longest`` of the batch.
        bucket: batches of similar length.
        max_length: tokens of a row at most.
        embedded: read the project's own corpus, not the user's files or rows made for the case.
    """
    context, title = setting.context, get_task(task).title
    if embedded:
        folder, source = FOLDER, "the embedded corpus"
    elif context.glue_dir is None:
        folder = write_fixture(setting.folder() / title, task, context.texts)
        source = "embedded rows in the official layout"
    else:
        folder, source = context.glue_dir / title, "the user's files"
    features = tokenize_split(folder, task, split, context.tokenizer(max_length=max_length))
    rows = min(len(features), ROWS)
    lengths = features.lengths[:rows] if bucket else None
    order = EpochOrder(rows, BATCH, seed=3, epoch=1, lengths=lengths)
    batches = MicroBatches(lambda epoch: order.at_epoch(epoch).batches())
    batches.seek(order.epoch, 0)
    epoch = list(loaded(features, batches, PadCollator(pad, max_length)))
    ours = _numbered([{n: on_paddle.numpy(t) for n, t in batch.items()} for batch in epoch])
    there = all(path.is_file() for path in split_paths(folder, task, split))
    found = np.array([there, split in available_splits(folder, task)])
    ours |= {"rows": np.asarray(len(features)), "its files are found": found}
    examples = _reference_examples(folder, task, split)
    fixed = pad == "max_length"
    chosen = [batch.tolist() for batch in order.batches()]
    theirs = _reference_batches(setting, examples, chosen, max_length, fixed=fixed)
    ids, labels = (next(n for n in ours if n.endswith(end)) for end in ("input_ids", "labels"))
    mask = next(n for n in ours if n.endswith("attention_mask") and not ours[n].all())
    return BothSides(
        ours,
        {"rows": np.asarray(len(examples)), "its files are found": np.array([True, True])}
        | _numbered([{name: tensor.numpy() for name, tensor in batch.items()} for batch in theirs]),
        {
            "two rows swapped": ours | {ids: ours[ids][::-1]},
            "labels shifted by one row": ours | {labels: np.roll(ours[labels], 1)},
            "padding not masked": ours | {mask: np.ones_like(ours[mask])},
            "the last batch lost": dict(list(ours.items())[:-4]),
        },
        "the batches",
        note=f"{rows} rows of {source}, {len(order)} batches",
        stamps=stamps(
            on_paddle.stamp(epoch[-1]["input_ids"]), on_torch.stamp(theirs[-1]["input_ids"])
        ),
    )


def _numbered(batches: list[Arrays]) -> Arrays:
    return {
        f"batch {index}/{name}": batch[name]
        for index, batch in enumerate(batches)
        for name in sorted(batch)
    }


def _reference_examples(folder: Path, task: str, split: str) -> list[tuple[str, str | None, float]]:
    """(first text, second text, label index or score) by transformers' processors."""
    from transformers import glue_processors

    import sot_torch_ref  # noqa: F401 (makes transformers importable beside a CPU build of torch)

    name = "mnli-mm" if split == "dev_mismatched" else task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers announces their removal
        processor = glue_processors[name]()
        read = processor.get_train_examples if split == "train" else processor.get_dev_examples
        examples = read(str(folder))
        labels = processor.get_labels()
    value = float if labels == [None] else labels.index
    return [(example.text_a, example.text_b, value(example.label)) for example in examples]


@unmeasured()
def _reference_batches(
    setting: Setting,
    examples: list[tuple[str, str | None, float]],
    batches: list[list[int]],
    max_length: int,
    *,
    fixed: bool,
) -> list[dict[str, torch.Tensor]]:
    """One epoch through torch's DataLoader, tokenized by a tokenizer of transformers."""
    tokenizer = setting.context.reference_tokenizer()

    def collate(rows: list[tuple[str, str | None, float]]) -> dict[str, torch.Tensor]:
        encoded = tokenizer(
            [row[0] for row in rows],
            [row[1] for row in rows] if rows[0][1] is not None else None,
            padding="max_length" if fixed else "longest",
            truncation="longest_first",
            max_length=max_length,
            return_tensors="pt",
        )
        labels = [row[2] for row in rows]
        kind = torch.float32 if isinstance(labels[0], float) else torch.int64
        return {**encoded, "labels": torch.tensor(labels, dtype=kind)}

    return list(torch.utils.data.DataLoader(examples, batch_sampler=batches, collate_fn=collate))


def loaded(
    features: TokenFeatures, batches: MicroBatches, collate: PadCollator
) -> Iterator[dict[str, paddle.Tensor]]:
    """One epoch of a process's micro-batches through the loader that the trainer builds."""
    for batch in BatchLoader(functools.partial(collate, features), batches):
        yield {name: paddle.assign(value) for name, value in sorted(batch.items())}
