"""What a comparison leaves out stands in its notes."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest
import torch

import align
from align.commands.steps import Outcome
from align.record.results import Comparison, ControlResult, StepResult, Tolerance
from align.record.run_report import Report
from tests.align.small_pairs import linears, model_of

INPUTS = np.random.default_rng(2).normal(size=(5, 4))


def rare(f):
    def forward(model, x):
        sign = 1 if f is torch else -1
        made = model.used(x) if len(x) == 5 else sign * model.rare(x)
        more = {"count": 7, "values": 2.0}
        if f is torch:
            more = {"count": 5, "values": made.detach().numpy()}
        return {"scores": made, "boxes": sign * made[:0], **more}

    return model_of(f, forward, **linears(f, "used rare", 4, 3))


def test_what_no_comparison_looks_at_is_noted() -> None:
    found = align.compare(rare(torch), rare(paddle), INPUTS)
    assert found.passed, str(found)
    for note in (
        "PyTorch returns beside tensors, not compared: count (int), values (ndarray)",
        "Paddle returns beside tensors, not compared: count (int), values (float)",
        "(model)[boxes]: empty on both sides, not compared",
        "no gradient reaches these on either side, not compared: rare.bias, rare.weight",
    ):
        assert note in found.notes


def steep(f):
    """Values that float32 knows, and gradients that it does not."""

    def forward(model, x):
        made = model.first(x)
        return model.last(made + f.sin(3e6 * made) * 1e-6)

    return model_of(f, forward, first=f.nn.Linear(4, 4), last=f.nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("dtype", "judge"),
    [("float32", "compare in float64 too"), (("float64", "float32"), "float64 can")],
)
def test_gradients_that_float32_leaves_out_are_noted(dtype: Any, judge: str) -> None:
    pair = steep(torch), steep(paddle)
    found = align.compare(*pair, INPUTS, dtype=dtype, optimizer="sgd", steps=2)
    told = "PyTorch's own runs scatter too far to judge"
    (note,) = (n for n in found.notes if n.startswith(f"backward in float32: {told} 4: "))
    assert "first.weight" in note
    assert note.endswith(judge)
    assert found.passed
    assert any(n.startswith("training in float32: ") for n in found.notes)


def test_training_without_dropout_is_noted() -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.1))
    ours = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.Dropout(0.5))
    told = "dropout is off in training mode"
    for options in ({}, {"train": True}, {"train": True, "dropout": "compare"}):
        found = align.compare(theirs, ours, INPUTS, dtype="float64", **options)
        assert found.passed == (options.get("dropout") is None)
        assert any(told in note for note in found.notes) == (options == {"train": True})


def masked(f, masks: bool):
    def forward(model, x, mask):
        return model.layer(x) * mask[:, None] if masks else model.layer(x)

    return model_of(f, forward, layer=f.nn.Linear(4, 3))


def test_a_mask_that_masks_nothing_is_noted() -> None:
    told = "input mask is 1 everywhere: what another value does is not compared"
    pair = masked(torch, True), masked(paddle, False)
    found = align.compare(*pair, {"x": INPUTS, "mask": np.ones(5, np.int64)})
    assert found.passed
    assert told in found.notes
    found = align.compare(*pair, {"x": INPUTS, "mask": np.array([1, 1, 1, 0, 0])})
    assert not found.passed
    assert told not in found.notes


def two_heads(f):
    """Two outputs of one layer each."""

    def forward(model, x):
        return {"first": model.one(x), "second": model.two(x)}

    return model_of(f, forward, one=f.nn.Linear(4, 3), two=f.nn.Linear(4, 2))


@pytest.mark.parametrize("reads_both", [False, True])
def test_an_output_that_the_loss_does_not_read_is_noted(reads_both: bool) -> None:
    def loss(out: Any, _: Any = None) -> Any:
        return (out["first"] ** 2).sum() + (out["second"].sum() if reads_both else 0)

    pair = two_heads(torch), two_heads(paddle)
    result = align.compare(*pair, INPUTS, loss=(loss, loss), dtype="float64")
    assert result.passed, str(result)
    says = "output second gets no gradient from the loss; its backward pass is not compared"
    assert (says in result.notes) is not reads_both


def test_gradients_that_count_as_zero_are_noted() -> None:
    def deep(f, forward):
        parts = [part for _ in range(20) for part in (f.nn.Linear(4, 4), f.nn.Sigmoid())]
        return model_of(f, forward, parts=f.nn.Sequential(*parts))

    def cut(model, x):
        """The first layer is never trained."""
        for i, layer in enumerate(model.parts):
            x = layer(x)
            x = 0 * x + x.detach() if i == 1 else x
        return x

    theirs, ours = deep(torch, lambda model, x: model.parts(x)), deep(paddle, cut)
    found = align.compare(theirs, ours, INPUTS, dtype="float64")
    assert found.passed
    (note,) = (n for n in found.notes if n.startswith("gradients so small beside the largest"))
    assert "parts.0.weight" in note


@pytest.mark.parametrize(
    ("exact", "others", "passes"),
    [
        ("passes", True, True),
        ("absent", True, True),
        ("fails", True, False),
        ("passes", False, False),
    ],
)
def test_a_control_that_float32_hides_is_a_note_beside_one_that_shows(
    exact, others, passes
) -> None:
    def step(dtype: str, *controls: ControlResult, reason: str = "") -> StepResult:
        rule = Tolerance("absolute", 1.0, "a test")
        worst = 2.0 if reason else 0.0
        comparison = Comparison("x", not reason, worst, 1.0, 1.0, worst, rule, reason=reason)
        return StepResult("pair", "forward", dtype, [comparison], [*controls], framework_free=True)

    outcome = Outcome(Report({}))
    shown, missed = ControlResult("shown", True, ""), ControlResult("missed", False, "")
    if exact != "absent":
        reason = "is wrong" if exact == "fails" else ""
        outcome.take(lambda: (step("float64", shown, reason=reason), []))
    outcome.take(lambda: (step("float32", missed, *[shown] * others), []))
    assert outcome.report.results[-1].passed == passes
    assert any("missed is less than rounding" in note for note in outcome.notes) == passes
