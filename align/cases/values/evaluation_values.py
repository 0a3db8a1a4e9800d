"""Step ``metric`` of text evaluation: the function that the tools call, against one example a time.

Ours gets its model in training mode and with dropout, as the trainer hands it over, and batches of
unequal size in another order than the examples'. The reference runs each example alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.kinds.case_kinds import ModelCase
from align.cases.model_pair import ModelPair
from align.cases.tensor_functions import called
from align.frameworks import on_paddle, on_torch
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from align.record.results import Tolerance
from sot_paddle.data.glue_tasks import get_task
from sot_torch_ref.padding import pad_batch
from sot_torch_ref.train.losses import task_loss
from sot_torch_ref.train.metrics import glue_metrics

_PROCESSES, _CORRUPT = 2, (5, 6)
"""Processes that share an evaluation, and an example of each that cannot be read there."""
_LENGTHS, _BATCH_SIZE = (5, 9, 3, 7, 7, 4, 8), 3
"""Tokens of each example, and examples of a forward pass, the last of which has fewer."""
_FEW = 5
"""Examples of a second development split."""
_LOSSES_OF_SPLITS = ("splits/loss", "splits/dev_mismatched_loss")


def text(setting: Setting, *, task: str) -> BothSides:
    """Logits in the examples' order, decisions, loss and metrics.

    Args:
        setting: the models.
        task: whose metrics are scored; its number of classes is the case's ``num_classes``.
    """
    from sot_paddle.tasks import glue  # loads scikit-learn: for this step alone
    from sot_paddle.train import evaluation  # loads scikit-learn: for this step alone

    pair, case = setting.pair, setting.case
    examples = _examples(case, _LENGTHS)
    labels = np.array([example["labels"] for example in examples])
    batches = _batches(_LENGTHS, _BATCH_SIZE)

    def evaluated() -> Arrays:
        model, recorded = pair.model.train(), []
        noted = model.register_forward_post_hook(
            lambda layer, given, logits: recorded.append(not logits.stop_gradient)
        )
        predicted = evaluation.predict(model, _Split(examples, batches))
        noted.remove()
        logits, kept = predicted.outputs, {"training mode kept": np.asarray(int(model.training))}
        kept["gradients recorded"] = np.asarray(sum(recorded))
        scored = glue.GlueTask(get_task(task), _BATCH_SIZE)
        whole = kept | _named(logits, glue.decide(logits), scored.score("dev", predicted))
        whole |= _of_two_splits(model, scored, examples, batches)
        shared = _in_processes(model, _Split(examples, batches, corrupt=_CORRUPT))
        return whole | shared | _of_single(glue.score(task, single, labels))

    def expected(logits: np.ndarray) -> Arrays:
        whole = _named(logits, *_scores(task, logits, labels))
        left = np.delete(np.arange(len(examples)), _CORRUPT)
        shared = _of_processes(left, logits[left], labels[left], _CORRUPT)
        kept = {"training mode kept": np.asarray(1), "gradients recorded": np.asarray(0)}
        parts = _named_splits(
            _scores(task, logits, labels)[1], _scores(task, logits[:_FEW], labels[:_FEW])[1]
        )
        return {**kept, **whole, **parts, **shared} | of_single

    rows = _alone(pair, examples)
    reference, stamp = torch.cat(rows).numpy(), on_torch.stamp(rows[0])
    single = reference.astype(np.float32)
    of_single = _of_single(_scores(task, single, labels)[1])
    ours = evaluated()

    def dropped() -> Arrays:
        paddle.seed(case.batch.seed)
        with mock.patch.object(evaluation, "evaluation_mode", contextlib.nullcontext):
            return evaluated()

    order = np.concatenate([np.asarray(batch) for batch in batches])
    return BothSides(
        ours,
        expected(reference),
        {
            "dropout in evaluation": dropped,
            "the order of the batches": ValueFault(reference=expected(reference[order])),
            "the examples in reverse": ValueFault(reference=expected(reference[::-1].copy())),
            "the least likely class": ValueFault(reference=expected(-reference)),
        },
        rule=lambda name: _rule(name, setting.dtype),
        note=f"{len(examples)} examples in batches of {[len(batch) for batch in batches]}",
        stamps=stamps(on_paddle.stamp(pair.model.parameters()[0]), stamp),
    )


def spans(setting: Setting) -> BothSides:
    """Start and end scores of every token of rows, which all have the same length; two a time."""
    from sot_paddle.train import evaluation  # loads scikit-learn: for this step alone

    pair, rng = setting.pair, np.random.default_rng(setting.case.batch.seed)
    length, rows = 9, 5
    vocabulary = setting.case.options["vocab_size"]
    labels = [sorted(rng.integers(0, length, 2)) for _ in range(rows)]
    examples = [{"ids": rng.integers(1, vocabulary, length), "labels": row} for row in labels]
    batches = [list(range(rows))[at : at + 2] for at in range(0, rows, 2)]
    found = evaluation.predict(pair.model.train(), _Split(examples, batches))
    alone = _alone(pair, examples)
    starts, ends = (torch.cat(side).numpy() for side in zip(*alone, strict=True))
    ours = {
        "starts": found.outputs[:, 0],
        "ends": found.outputs[:, 1],
        "labels": np.asarray(found.labels),
    }
    return BothSides(
        ours,
        {"starts": starts, "ends": ends, "labels": np.asarray(labels)},
        {
            "starts and ends exchanged": ours | {"starts": ours["ends"], "ends": ours["starts"]},
            "the rows in reverse": ours | {"starts": ours["starts"][::-1]},
        },
        rule=lambda name: _rule("labels" if name == "labels" else "logits", setting.dtype),
        note=f"{rows} rows of {length} tokens",
        stamps=stamps(on_paddle.stamp(pair.model.parameters()[0]), on_torch.stamp(alone[0][0])),
    )


def _examples(case: ModelCase, lengths: Sequence[int]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(case.batch.seed)
    vocabulary = case.options["vocab_size"]
    return [
        {"ids": rng.integers(1, vocabulary, length), "labels": _label(rng, case.num_classes)}
        for length in lengths
    ]


def _label(rng: np.random.Generator, num_classes: int) -> int | float:
    """A class, or for regression a score of STS-B's range."""
    return int(rng.integers(num_classes)) if num_classes > 1 else round(rng.uniform(0, 5), 2)


def _batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Longest first, as bucketed evaluation has them; the last one is smaller."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return [order[at : at + size] for at in range(0, len(order), size)]


@dataclass(frozen=True)
class _Split:
    """Examples in given batches, as the trainer's evaluation asks for them."""

    examples: Sequence[dict[str, Any]]
    batches: Sequence[Sequence[int]]
    corrupt: tuple[int, ...] = ()

    def load(self, batches: Sequence[Sequence[int]]) -> _Loader:
        return _Loader(self, batches)


class _Loader:
    """The batches of a process, without the examples of them that cannot be read."""

    def __init__(self, split: _Split, batches: Sequence[Sequence[int]]) -> None:
        self._split = split
        self._batches = batches
        self.corrupt = {i for batch in batches for i in batch if i in split.corrupt}

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        for batch in self._batches:
            good = [self._split.examples[index] for index in batch if index not in self.corrupt]
            yield {name: paddle.to_tensor(array) for name, array in _collate(good).items()}


def _of_two_splits(
    model: paddle.nn.Layer, task: Any, examples: Sequence[Any], batches: Sequence[Any]
) -> Arrays:
    """The scores that a run reports of two development splits, the second one smaller."""
    from sot_paddle.train import outcome

    few = _Split(examples[:_FEW], [range(_FEW)])
    splits = {"dev": _Split(examples, batches), "dev_mismatched": few}
    of_run = SimpleNamespace(dev=splits, test={}, score=task.score, maximise=task.maximise)
    given = {"autocast": contextlib.nullcontext, "ema": None, "outputs": None}
    run = SimpleNamespace(model=model, task=of_run, metric=task.metric, **given)
    found = outcome.current_scores(run, "1")
    return {f"splits/{name}": np.asarray(value) for name, value in found.items()}


def _named_splits(first: Mapping[str, float], second: Mapping[str, float]) -> Arrays:
    named = {**first, **{f"dev_mismatched_{name}": value for name, value in second.items()}}
    return {f"splits/{name}": np.asarray(value) for name, value in named.items()}


def _in_processes(model: paddle.nn.Layer, split: _Split) -> Arrays:
    """What the first of several processes says after the others have sent theirs."""
    from sot_paddle import distributed
    from sot_paddle.train import evaluation

    sent: list[Any] = []
    found = None
    for rank in reversed(range(_PROCESSES)):
        with (
            mock.patch.object(distributed, "rank", return_value=rank),
            mock.patch.object(distributed, "world_size", return_value=_PROCESSES),
            mock.patch.object(distributed, "gather", lambda own: sent.insert(0, own) or sent),
        ):
            found = evaluation.predict(model, split)
    return _of_processes(found.indices, found.outputs, found.labels, found.corrupt)


def _of_processes(*found: Any) -> Arrays:
    names = ("indices", "outputs", "labels", "left out")
    return {f"processes/{n}": np.asarray(one) for n, one in zip(names, found, strict=True)}


def _collate(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    made = pad_batch([row["ids"] for row in rows], [0] * len(rows), 0)
    padded = {name: made[name].numpy() for name in ("input_ids", "attention_mask")}
    return {**padded, "labels": np.array([row["labels"] for row in rows])}


def _alone(pair: ModelPair, examples: list[dict[str, Any]]) -> list[Any]:
    """What the reference says of each example by itself."""
    model = pair.fresh_reference().eval()
    rows = [called(on_torch, model, _collate([example]), pair.dtype) for example in examples]
    model.train(pair.case.train)
    return rows


def _scores(
    task: str, logits: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, dict[str, float]]:
    """Decisions and scores of logits, in float64 whatever the logits are."""
    tensor = torch.from_numpy(logits)
    decided = tensor.argmax(dim=1).numpy() if logits.shape[1] > 1 else logits[:, 0]
    scores = {"loss": task_loss(tensor.double(), torch.from_numpy(labels)).item()}
    return decided, scores | glue_metrics(task, decided, labels)


def _of_single(scores: dict[str, float]) -> Arrays:
    """Scores of the reference's logits in float32, by names of their own."""
    return {f"float32 logits/{name}": np.array(value) for name, value in scores.items()}


def _named(logits: np.ndarray, decided: np.ndarray, scores: dict[str, float]) -> Arrays:
    found = {"logits": np.asarray(logits), "decisions": np.asarray(decided)}
    return found | {name: np.array(value) for name, value in scores.items()}


def _rule(name: str, dtype: str) -> Tolerance:
    if name in ("logits", "loss", "processes/outputs", *_LOSSES_OF_SPLITS):
        return TOLERANCES["forward", dtype]
    return TOLERANCES["metric", None]
