"""`batches=`: every training step on a batch of its own, of any size, on both sides alike."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial

import numpy as np
import paddle
import pytest
import torch
from paddle import nn

import align
from align.frameworks import on_paddle
from align.pair.side import Side
from align.record.request import Request, exchanged

SIZES = (4, 4, 2)
STEPS = 5


def drawn() -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    rng = np.random.default_rng(3)
    return [({"input": rng.normal(size=(n, 5))}, rng.integers(0, 3, n)) for n in SIZES]


def theirs(p: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Dropout(p), torch.nn.Linear(7, 3)
    )


def ours(p: float = 0.0) -> paddle.nn.Layer:
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1D(7), nn.Dropout(p), nn.Linear(7, 3))


def asked(**options):
    (inputs, labels), *_ = drawn()
    options = {"dtype": "float64", "loss": "cross_entropy", "optimizer": "sgd", **options}
    return inputs, {"labels": labels, "steps": STEPS, "batches": drawn, **options}


def trained(**options):
    inputs, options = asked(**options)
    p = 0.4 if "dropout" in options else 0.0
    result = align.compare(partial(theirs, p), partial(ours, p), inputs, **options)
    return result, {(r.case, r.step, r.dtype): r for r in result.report.results}


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": ("float64", "float32"), "optimizer": {"name": "adamw", "lr": 0.01}},
        {"train": True, "dropout": "compare"},
        {"loss": None, "labels": None, "batches": [(x, None) for x, _ in drawn()]},
    ],
)
def test_every_part_of_a_training_run_takes_the_batches(options) -> None:
    result, found = trained(**options)
    assert result.passed, str(result)
    controls = [c for key, r in found.items() if key[1] == "training" for c in r.controls]
    named = [c for c in controls if c.name == "batches[0] and batches[1] exchanged"]
    assert named
    assert all(c.caught for c in named)
    assert "3 batches for 5 steps: they are used again from the first" in result.notes


@pytest.mark.parametrize("kind", ["NAdam", "RAdam", "Adadelta"])
def test_optimizers_whose_kernels_hold_float32_numbers_train_alike(kind: str) -> None:
    """PyTorch's follow those numbers, as they do for Adam."""
    more = {"rho": 0.9} if kind == "Adadelta" else {}  # PyTorch's default
    makers = (
        lambda model: getattr(torch.optim, kind)(model.parameters(), lr=0.01, eps=1e-6),
        lambda model: getattr(paddle.optimizer, kind)(
            0.01, epsilon=1e-6, parameters=model.parameters(), **more
        ),
    )
    result, found = trained(dtype=("float64", "float32"), optimizer=makers)
    assert result.passed, str(result)
    names = {c.name for key, r in found.items() if key[1] == "training" for c in r.comparisons}
    assert ("mean_square/0.weight" if kind == "Adadelta" else "moment2/0.weight") in names


def test_step_k_takes_batch_k_and_begins_again() -> None:
    """Against a loop written here; also for an endless generator, of which no more is read."""
    drawn_again = enumerate([*drawn(), drawn()[0]])
    batches = [({"input": x["input"] + number}, labels) for number, (x, labels) in drawn_again]
    model = theirs().double()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses = []
    for step in range(STEPS):
        inputs, labels = batches[step % 4]
        loss = torch.nn.functional.cross_entropy(
            model(torch.from_numpy(inputs["input"])), torch.from_numpy(labels)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    inputs, options = asked(batches=batches, shake=False)
    result = align.compare(theirs(), ours(), inputs, **options)
    curves = result.report.results[-1].series["loss"]
    np.testing.assert_allclose(curves["pytorch"], losses, rtol=1e-12)
    np.testing.assert_allclose(curves["paddle"], losses, rtol=1e-9)
    request = Request(None, None, *asked()[:1], **asked(batches=itertools.cycle(drawn()))[1])
    assert [request.batch(k).labels.size for k in range(7)] == [4, 4, 2, 4, 4, 4, 4]


@pytest.mark.parametrize("other", [1, 2])
def test_batches_in_another_order_on_one_side_are_found(other, monkeypatch) -> None:
    plain = Side.open_training

    def wrong(side, plan, *options, **named):
        if not side.is_torch:
            _, batches = exchanged([plan.batches[0], *plan.batches[other:]])
            plan = dataclasses.replace(plan, batches=[*batches[:1], *plan.batches[1:]])
        return plain(side, plan, *options, **named)

    monkeypatch.setattr(Side, "open_training", wrong)
    result, _ = trained()
    assert result.exit_code == 1
    assert (result.root.step, result.root.place) == ("training", "loss")


@pytest.mark.parametrize("right", [True, False])
def test_a_step_takes_the_mean_of_the_batches_that_it_accumulates(right, monkeypatch) -> None:
    inputs, options = asked(steps=2, accumulate=2)
    plan = Request(theirs, ours, inputs, **options)
    assert len(plan.batches) == 3
    found = Side(on_paddle, plan).train(plan, "float64", "float64")
    assert (len(found.losses), len(found.learning_rates)) == (2, 2)
    backward = on_paddle.backward
    if not right:  # a sum in place of the mean
        monkeypatch.setattr(on_paddle, "backward", lambda loss: backward(loss * 2))
    result = align.compare(theirs, ours, inputs, **options)
    (training,) = (r for r in result.report.results if r.step == "training")
    assert training.passed == right


def test_the_order_within_a_step_or_of_batches_that_are_alike_is_no_fault() -> None:
    number, batches = exchanged(drawn(), 2)
    assert number == 2
    assert [batch[1].size for batch in batches] == [SIZES[2], SIZES[1], SIZES[0]]
    (batch, *_) = drawn()
    assert exchanged([batch, batch]) == (0, [])
    assert exchanged([]) == (0, [])
    number, batches = exchanged([batch, batch, drawn()[1]])
    assert number == 2
    assert batches[2] is batch


def test_an_exchange_that_goes_unseen_fails_the_comparison(monkeypatch) -> None:
    monkeypatch.setattr("align.stages.training.exchanged", lambda batches, step: (1, batches))
    result, found = trained()
    assert result.exit_code == 1
    assert [c.caught for c in found["pair", "training", "float64"].controls][-1] is False
