"""Step ``data`` for GLUE: files to padded batches, this project against transformers' readers.

Ours: the TSV reader, the tokenizers library, and the sampler and loader of the trainer. Reference:
transformers' own GLUE processors, its slow tokenizer and torch's DataLoader. The order of the
samples is explicit and given to both.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import GlueDataCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.glue_fixtures import write_fixture
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
from sot_paddle.data.batching import EpochOrder
from sot_paddle.data.cache import tokenize_split
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.data.paddle_dataset import PadCollator
from sot_paddle.train.feeding import MicroBatches

ROWS = 200
BATCH = 8


def run(case: GlueDataCase, dtype: None, context: Context) -> StepResult:
    """Compare every batch of one epoch."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = _folder(case, context, Path(scratch))
        tokenizer = context.tokenizer(max_length=case.max_length)
        features = tokenize_split(folder, case.task, case.split, tokenizer)
        rows = min(len(features), ROWS)
        order = EpochOrder(
            rows, BATCH, seed=3, epoch=1, lengths=features.lengths[:rows] if case.bucket else None
        )
        batches = MicroBatches(lambda epoch: order.at_epoch(epoch).batches())
        batches.seek(order.epoch, 0)
        collate = PadCollator(case.pad, case.max_length)
        ours, ours_stamp = paddle_side.load_batches(features, batches, collate)
        reference, reference_stamp = torch_side.load_glue_batches(
            _reference_examples(folder, case),
            context.reference_tokenizer(),
            [batch.tolist() for batch in order.batches()],
            case.max_length if case.pad == "max_length" else None,
            case.max_length,
        )

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES["data", None])

    controls = [judge(name, compare(fault), "the batches") for name, fault in _faults(ours)]
    source = "the user's files" if context.glue_dir else "embedded rows in the official layout"
    return StepResult(
        case.name,
        "data",
        None,
        compare(ours),
        controls,
        note=f"{rows} rows of {source}, {len(order)} batches",
        stamps={"ours": ours_stamp, "reference": reference_stamp},
    )


def _folder(case: GlueDataCase, context: Context, scratch: Path) -> Path:
    """The task's folder: the user's, else a fixture."""
    title = get_task(case.task).title
    if context.glue_dir is None:
        return write_fixture(scratch / title, case.task, context.texts)
    return context.glue_dir / title


def _reference_examples(folder: Path, case: GlueDataCase) -> list[tuple[str, str | None, float]]:
    """(first text, second text, label index or score) by transformers' processors."""
    from transformers import glue_processors

    import sot_torch_ref  # noqa: F401 (makes transformers importable beside a CPU build of torch)

    name = "mnli-mm" if case.split == "dev_mismatched" else case.task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers announces their removal
        processor = glue_processors[name]()
        read = processor.get_train_examples if case.split == "train" else processor.get_dev_examples
        examples = read(str(folder))
        labels = processor.get_labels()
    value = float if labels == [None] else labels.index
    return [(example.text_a, example.text_b, value(example.label)) for example in examples]


def _faults(ours: Arrays) -> list[tuple[str, Arrays]]:
    """Rows in another order, labels shifted, padding counted as words, a batch lost."""
    ids = next(name for name in ours if name.endswith("input_ids"))
    labels = next(name for name in ours if name.endswith("labels"))
    mask = next(n for n in ours if n.endswith("attention_mask") and not ours[n].all())
    return [
        ("two rows swapped", {**ours, ids: ours[ids][::-1]}),
        ("labels shifted by one row", {**ours, labels: np.roll(ours[labels], 1)}),
        ("padding not masked", {**ours, mask: np.ones_like(ours[mask])}),
        ("the last batch lost", dict(list(ours.items())[:-4])),
    ]
