"""Step ``loss`` of the image trainer: integer labels with label smoothing."""

from __future__ import annotations

import numpy as np
import paddle
import torch

from align.cases.context import Context
from align.cases.kinds.image_case_kinds import SmoothedLossCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult
from sot_paddle.train.losses import image_loss


def run(case: SmoothedLossCase, dtype: str, context: Context) -> StepResult:
    """Compare the loss and the gradient of the logits."""
    rng = np.random.default_rng(13)
    shape = (case.samples, case.num_classes)
    parts = [(3.0 * rng.normal(size=shape)).astype(dtype) for _ in range(1 + case.pair)]
    labels = rng.integers(0, case.num_classes, case.samples)
    ours, our_stamp = _ours(parts, labels, case.smoothing)
    reference, stamp = _reference(parts, labels, case.smoothing)
    wide = [part.astype("float64") for part in parts]
    oracle = _reference(wide, labels, case.smoothing)[0] if dtype != "float64" else None

    def compare(arrays: Arrays) -> list[Comparison]:
        return compare_mappings(arrays, reference, TOLERANCES["loss", dtype], oracle=oracle)

    spread = case.smoothing * case.num_classes / (case.num_classes - 1)  # over the other classes
    faults = {
        "no smoothing": _ours(parts, labels, 0.0)[0],
        "spread over the other classes": _ours(parts, labels, spread)[0],
        "the label of the next sample": _ours(parts, np.roll(labels, 1), case.smoothing)[0],
    }
    controls = [judge(name, compare(arrays), "our loss") for name, arrays in faults.items()]
    stamps = {"ours": our_stamp, "reference": stamp}
    return StepResult(case.name, "loss", dtype, compare(ours), controls, stamps=stamps)


def _ours(parts: list[np.ndarray], labels: np.ndarray, smoothing: float) -> tuple[Arrays, dict]:
    with paddle_side.default_dtype(str(parts[0].dtype)):
        tensors = [paddle.to_tensor(part, stop_gradient=False) for part in parts]
        logits = tensors[0] if len(tensors) == 1 else tuple(tensors)
        loss = image_loss(logits, paddle.to_tensor(labels), smoothing)
        loss.backward()
    gradients = {f"logits.{i}": np.array(t.grad.numpy()) for i, t in enumerate(tensors)}
    return {"loss": np.array(loss.detach().numpy()), **gradients}, paddle_side.stamp(loss)


def _reference(
    parts: list[np.ndarray], labels: np.ndarray, smoothing: float
) -> tuple[Arrays, dict]:
    """PyTorch's own label smoothing, which the suite's soft targets do not share."""
    tensors = [torch.from_numpy(part).requires_grad_(True) for part in parts]
    given = torch.from_numpy(labels)
    losses = [
        torch.nn.functional.cross_entropy(part, given, label_smoothing=smoothing)
        for part in tensors
    ]
    loss = torch.stack(losses).sum()
    loss.backward()
    gradients = {f"logits.{i}": t.grad.numpy() for i, t in enumerate(tensors)}
    return {"loss": loss.detach().numpy(), **gradients}, torch_side.stamp(loss)
