"""Step ``metric`` of text evaluation: the function that the tools call, against one example a time.

Ours gets its model in training mode and with dropout, as the trainer hands it over, and batches of
unequal size in another order than the examples'. The reference runs each example alone.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch

from align.cases.case_pair import CasePair
from align.cases.context import Context
from align.cases.kinds.image_case_kinds import EvaluationCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult, Tolerance
from sot_torch_ref.train.losses import task_loss
from sot_torch_ref.train.metrics import glue_metrics


def run(case: EvaluationCase, dtype: str, context: Context) -> StepResult:
    """Compare logits in the examples' order, decisions, loss and metrics."""
    from sot_paddle.train import evaluation  # loads scikit-learn: for this step alone

    pair = context.pair(case, dtype)
    examples = _examples(case)
    labels = np.array([example["labels"] for example in examples])
    batches = _batches(case)

    def evaluated() -> Arrays:
        logits = evaluation.predict_logits(pair.ours.train(), examples, batches, _collate)
        kept = {"training mode kept": np.asarray(int(pair.ours.training))}
        scores = evaluation.score(case.task, logits, labels)
        whole = kept | _named(logits, evaluation.decide(logits), scores)
        return whole | _of_single(evaluation.score(case.task, single, labels))

    def compare(arrays: Arrays, expected: np.ndarray) -> list[Comparison]:
        theirs = {"training mode kept": np.asarray(1), **_scored(case, expected, labels)}
        theirs |= _of_single(_scores(case, single, labels)[1])
        return compare_mappings(arrays, theirs, lambda name: _rule(name, dtype))

    reference, stamp = _reference(pair, examples)
    single = reference.astype(np.float32)
    ours = evaluated()
    paddle.seed(case.batch.seed)
    with mock.patch.object(evaluation, "evaluation_mode", contextlib.nullcontext):
        dropped = evaluated()
    order = np.concatenate([np.asarray(batch) for batch in batches])
    controls = [
        judge("dropout in evaluation", compare(dropped, reference)),
        judge("the order of the batches", compare(ours, reference[order])),
        judge("the examples in reverse", compare(ours, reference[::-1].copy())),
        judge("the least likely class", compare(ours, -reference)),
    ]
    return StepResult(
        case.name,
        "metric",
        dtype,
        compare(ours, reference),
        controls,
        note=f"{len(examples)} examples in batches of {[len(batch) for batch in batches]}",
        stamps={"ours": paddle_side.stamp(pair.ours.parameters()[0]), "reference": stamp},
    )


def _examples(case: EvaluationCase) -> list[dict[str, Any]]:
    rng = np.random.default_rng(case.batch.seed)
    vocabulary = case.options["vocab_size"]
    return [
        {"ids": rng.integers(1, vocabulary, length), "labels": _label(rng, case.num_classes)}
        for length in case.lengths
    ]


def _label(rng: np.random.Generator, num_classes: int) -> int | float:
    """A class, or for regression a score of STS-B's range."""
    return int(rng.integers(num_classes)) if num_classes > 1 else round(rng.uniform(0, 5), 2)


def _batches(case: EvaluationCase) -> list[list[int]]:
    """Longest first, as bucketed evaluation has them; the last one is smaller."""
    order = sorted(range(len(case.lengths)), key=lambda index: -case.lengths[index])
    return [order[at : at + case.batch_size] for at in range(0, len(order), case.batch_size)]


def _collate(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    longest = max(len(row["ids"]) for row in rows)
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, (line, valid) in zip(rows, zip(ids, mask, strict=True), strict=True):
        line[: len(row["ids"])] = row["ids"]
        valid[: len(row["ids"])] = 1
    labels = np.array([row["labels"] for row in rows])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _reference(pair: CasePair, examples: list[dict[str, Any]]) -> tuple[np.ndarray, dict]:
    model = pair.fresh_reference().eval()
    rows = []
    with torch.no_grad(), torch_side.default_dtype(pair.dtype):
        for example in examples:
            inputs = _collate([example])
            inputs.pop("labels")
            rows.append(model(**{name: torch.from_numpy(v) for name, v in inputs.items()}))
    model.train(pair.case.train)
    return torch.cat(rows).numpy(), torch_side.stamp(rows[0])


def _scored(case: EvaluationCase, logits: np.ndarray, labels: np.ndarray) -> Arrays:
    return _named(logits, *_scores(case, logits, labels))


def _scores(
    case: EvaluationCase, logits: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, dict[str, float]]:
    """Decisions and scores of logits, in float64 whatever the logits are."""
    tensor = torch.from_numpy(logits)
    decided = tensor.argmax(dim=1).numpy() if case.num_classes > 1 else logits[:, 0]
    scores = {"loss": task_loss(tensor.double(), torch.from_numpy(labels)).item()}
    return decided, scores | glue_metrics(case.task, decided, labels)


def _of_single(scores: dict[str, float]) -> Arrays:
    """Scores of the reference's logits in float32, by names of their own."""
    return {f"float32 logits/{name}": np.array(value) for name, value in scores.items()}


def _named(logits: np.ndarray, decided: np.ndarray, scores: dict[str, float]) -> Arrays:
    found = {"logits": np.asarray(logits), "decisions": np.asarray(decided)}
    return found | {name: np.array(value) for name, value in scores.items()}


def _rule(name: str, dtype: str) -> Tolerance:
    if name in ("logits", "loss"):
        return TOLERANCES["forward", dtype]
    return TOLERANCES["metric", None]
