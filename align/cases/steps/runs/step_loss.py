"""Step ``loss``: loss functions on random logits, with their gradients."""

from __future__ import annotations

import contextlib

import numpy as np

from align.cases.context import Context
from align.cases.kinds.case_kinds import LossCase
from align.cases.planted_controls import judge
from align.cases.sides import paddle_side, torch_side
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.bounds import TOLERANCES
from align.judge.comparator import compare_mappings
from align.judge.noise_band import NoiseBand
from align.record.arrays import Arrays
from align.record.results import Comparison, StepResult

IGNORED = -100


def run(case: LossCase, dtype: str, context: Context) -> StepResult:
    """Compare a loss and the gradient of the logits."""
    rng = np.random.default_rng(11)
    parts = [
        (3.0 * rng.normal(size=(case.samples, case.num_classes))).astype(dtype)
        for _ in range(1 + case.pair)
    ]
    labels: np.ndarray = rng.integers(0, max(2, case.num_classes), case.samples)
    if case.num_classes == 1:
        labels = rng.uniform(0, 5, case.samples).astype(dtype)
    if case.soft:
        labels = rng.dirichlet(np.ones(case.num_classes), case.samples).astype(dtype)
    else:
        labels[: case.ignored] = IGNORED
    loss, gradients, ours_stamp = paddle_side.loss_value(parts, labels)
    expected_loss, expected, reference_stamp = torch_side.loss_value(parts, labels)
    ours, reference = {"loss": loss, **gradients}, {"loss": expected_loss, **expected}
    context.log_classic("loss_align", f"{case.name}/{dtype}", reference, ours)
    oracle, noise = None, None
    if dtype != "float64":
        wide = labels.astype("float64") if labels.dtype.kind == "f" else labels
        exact = torch_side.loss_value([part.astype("float64") for part in parts], wide)
        oracle = {"loss": exact[0], **exact[1]}
        noise = NoiseBand(
            lambda: {"loss": oracle},
            lambda seed: contextlib.nullcontext({"loss": _moved(parts, labels, seed)}),
        ).of("loss")

    def compare(arrays: Arrays) -> list[Comparison]:
        rule = TOLERANCES["loss", dtype]
        return compare_mappings(arrays, reference, rule, oracle=oracle, noise=noise)

    controls = [
        judge(name, compare(fault), "the Paddle side's loss")
        for name, fault in _faults(case, ours).items()
    ]
    return StepResult(
        case.name,
        "loss",
        dtype,
        compare(ours),
        controls,
        stamps={"ours": ours_stamp, "reference": reference_stamp},
    )


def _moved(parts: list[np.ndarray], labels: np.ndarray, seed: int) -> Arrays:
    """Loss and gradients of the reference with everything moved by a unit in the last place."""
    moves = MovedRoundings(seed)
    given = moves.arrays({**{str(index): part for index, part in enumerate(parts)}, "y": labels})
    targets = given.pop("y")
    with moves:
        loss, gradients, _ = torch_side.loss_value(list(given.values()), targets)
    return {"loss": loss, **gradients}


def _faults(case: LossCase, ours: Arrays) -> dict[str, Arrays]:
    """The usual wrong divisors, made from the right loss."""

    def scaled(factor: float) -> Arrays:
        return {name: (value * factor).astype(value.dtype) for name, value in ours.items()}

    valid = case.samples - case.ignored
    faults: dict[str, Arrays] = {"the sum instead of the mean": scaled(valid)}
    if case.ignored:
        faults["divided by N with ignored labels"] = scaled(valid / case.samples)
    if case.soft:
        faults["divided by B times K"] = scaled(1.0 / case.num_classes)
    if case.pair:
        faults["the mean of the two losses"] = scaled(0.5)
    faults["gradient of another sign"] = {
        name: value if name == "loss" else -value for name, value in ours.items()
    }
    return faults
