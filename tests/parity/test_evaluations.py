"""Compare text evaluation, as the tools call it, with the reference on one example at a time.

Ours gets its model in training mode and with dropout, as the trainer hands it over, and batches of
unequal size in another order than the examples'.
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
import pytest
import torch

from sot_paddle import distributed
from sot_paddle.data.glue_tasks import get_task
from sot_paddle.tasks import glue
from sot_paddle.train import evaluation, outcome
from sot_torch_ref.padding import pad_batch
from sot_torch_ref.train.losses import task_loss
from sot_torch_ref.train.metrics import glue_metrics
from tests.parity.models import encoder_options, models_of_equal_weights
from tests.parity.sides import assert_same, paddle_precision

RATIOS = 1e-12  # absolute: ratios of counts, sums of few terms
LENGTHS, BATCH_SIZE = (5, 9, 3, 7, 7, 4, 8), 3
FEW = 5  # examples of a second development split
PROCESSES = 2
NAME, VOCABULARY = "bert_base_mgcrp", 100
MODEL = {
    **encoder_options(20, 1, 28, VOCABULARY, 16),
    "q_dim": 7,
    "k_dim": 5,
    "mask_padding": True,
    "head_dropout": 0.5,
    "hidden_dropout_prob": 0.5,
    "attention_probs_dropout_prob": 0.5,
}


@dataclass(frozen=True)
class Split:
    """Examples in batches, as the trainer's evaluation asks for them."""

    examples: Sequence[Mapping[str, Any]]
    batches: Sequence[Sequence[int]]

    def load(self, batches: Sequence[Sequence[int]]) -> Loader:
        """Return the loader of a process's batches."""
        return Loader(self, batches)


class Loader:
    """The batches of a process."""

    def __init__(self, split: Split, batches: Sequence[Sequence[int]]) -> None:
        self.split = split
        self.batches = batches

    def __iter__(self) -> Iterator[dict[str, paddle.Tensor]]:
        for batch in self.batches:
            rows = [self.split.examples[index] for index in batch]
            yield {name: paddle.to_tensor(array) for name, array in collate(rows).items()}


@pytest.mark.parametrize(("task", "classes"), [("mrpc", 2), ("mnli", 3), ("sts-b", 1)])
def test_evaluation_of_a_task(task: str, classes: int) -> None:
    """Logits in the examples' order, decisions, loss and metrics; of two processes as well."""
    rng = np.random.default_rng(7)
    examples = [
        {"ids": rng.integers(1, VOCABULARY, length), "labels": random_label(rng, classes)}
        for length in LENGTHS
    ]
    labels = np.array([example["labels"] for example in examples])
    order = sorted(range(len(LENGTHS)), key=lambda index: -LENGTHS[index])  # longest first
    batches = [order[at : at + BATCH_SIZE] for at in range(0, len(order), BATCH_SIZE)]
    model, torch_model = models_of_equal_weights(NAME, MODEL, "float64", classes=classes)
    torch_logits = torch.cat(one_at_a_time(torch_model, examples)).numpy()
    scored = glue.GlueTask(get_task(task), BATCH_SIZE)

    with paddle_precision("float64"):
        predicted, tracked = predict(model.train(), Split(examples, batches))
        assert model.training
        assert not tracked
        assert_same({"logits": predicted.outputs}, {"logits": torch_logits})
        decisions = torch_decisions(torch_logits)
        assert_same({"decisions": glue.decide(predicted.outputs)}, {"decisions": decisions})
        whole = torch_scores(task, torch_logits, labels)
        assert scored.score("dev", predicted) == approx(whole)

        few = torch_scores(task, torch_logits[:FEW], labels[:FEW])
        mismatched = {f"dev_mismatched_{name}": value for name, value in few.items()}
        splits = {
            "dev": Split(examples, batches),
            "dev_mismatched": Split(examples[:FEW], [range(FEW)]),
        }
        assert current_scores(model, scored, splits) == approx({**whole, **mismatched})

        shared = predict_in_processes(model, Split(examples, batches))
    assert list(shared.indices) == list(range(len(examples)))
    assert_same(
        {"logits": shared.outputs, "labels": shared.labels},
        {"logits": torch_logits, "labels": labels},
    )
    single = torch_logits.astype(np.float32)
    assert glue.score(get_task(task).metrics, single, labels) == approx(
        torch_scores(task, single, labels)
    )


def test_evaluation_of_spans() -> None:
    """Start and end scores of every token of rows, which all have the same length; two a time."""
    rng, length, rows = np.random.default_rng(7), 9, 5
    labels = [sorted(rng.integers(0, length, 2)) for _ in range(rows)]
    examples = [{"ids": rng.integers(1, VOCABULARY, length), "labels": row} for row in labels]
    batches = [list(range(rows))[at : at + 2] for at in range(0, rows, 2)]
    options = {**MODEL, "pooling": "spans"}
    model, torch_model = models_of_equal_weights(NAME, options, "float64", classes=2)
    with paddle_precision("float64"):
        predicted, _ = predict(model.train(), Split(examples, batches))
    starts, ends = zip(*one_at_a_time(torch_model, examples), strict=True)
    assert_same(
        {
            "starts": predicted.outputs[:, 0],
            "ends": predicted.outputs[:, 1],
            "labels": predicted.labels,
        },
        {
            "starts": torch.cat(starts).numpy(),
            "ends": torch.cat(ends).numpy(),
            "labels": np.asarray(labels),
        },
    )


def approx(scores: Mapping[str, float]) -> Any:
    """Compare every score absolutely."""
    return pytest.approx(scores, rel=0, abs=RATIOS)


def random_label(rng: np.random.Generator, classes: int) -> int | float:
    """Draw a class, or for regression a score of STS-B's range."""
    return int(rng.integers(classes)) if classes > 1 else round(rng.uniform(0, 5), 2)


def collate(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Pad rows by the reference's function."""
    padded = pad_batch([row["ids"] for row in rows], [0] * len(rows), 0)
    arrays = {name: padded[name].numpy() for name in ("input_ids", "attention_mask")}
    return {**arrays, "labels": np.array([row["labels"] for row in rows])}


def predict(model: paddle.nn.Layer, split: Split) -> tuple[Any, bool]:
    """Evaluate, and say whether gradients were recorded."""
    recorded = []
    hook = model.register_forward_post_hook(
        lambda layer, inputs, output: recorded.append(
            not (output[0] if isinstance(output, tuple) else output).stop_gradient
        )
    )
    predicted = evaluation.predict(model, split)
    hook.remove()
    return predicted, any(recorded)


def current_scores(model: paddle.nn.Layer, task: Any, splits: Mapping[str, Split]) -> dict:
    """Return the scores that a run reports of two development splits, the second one smaller."""
    of_run = SimpleNamespace(dev=splits, test={}, score=task.score, maximise=task.maximise)
    options = {"metric": task.metric, "ema": None, "autocast": contextlib.nullcontext}
    return outcome.score(SimpleNamespace(model=model, task=of_run, **options))


def predict_in_processes(model: paddle.nn.Layer, split: Split) -> Any:
    """Return what the first of several processes says after the others have sent theirs."""
    sent: list[Any] = []
    predicted = None
    for rank in reversed(range(PROCESSES)):
        with (
            mock.patch.object(distributed, "rank", return_value=rank),
            mock.patch.object(distributed, "world_size", return_value=PROCESSES),
            mock.patch.object(distributed, "gather", lambda share: sent.insert(0, share) or sent),
        ):
            predicted = evaluation.predict(model, split)
    return predicted


def one_at_a_time(model: torch.nn.Module, examples: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return what the reference says of each example by itself, in evaluation mode."""
    outputs = []
    with torch.no_grad():
        for example in examples:
            arrays = collate([example])
            del arrays["labels"]
            output = model.eval()(**{n: torch.tensor(array) for n, array in arrays.items()})
            outputs.append(output)
    return outputs


def torch_decisions(logits: np.ndarray) -> np.ndarray:
    """Choose the most likely class, or for regression the score."""
    return torch.from_numpy(logits).argmax(dim=1).numpy() if logits.shape[1] > 1 else logits[:, 0]


def torch_scores(task: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return loss and metrics of logits, in float64 whatever the logits are."""
    loss = task_loss(torch.from_numpy(logits).double(), torch.from_numpy(labels)).item()
    return {"loss": loss, **glue_metrics(task, torch_decisions(logits), labels)}
