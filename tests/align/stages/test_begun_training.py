"""A comparison that begins in the middle of a run: the factories put a converted state."""

import dataclasses
from functools import partial

import numpy as np
import paddle
import pytest
import torch

import align
from sot_paddle.convert.state import paddle_optimizer
from sot_paddle.convert.state.record import convert
from tests.sot_paddle.convert import both_runs

RNG = np.random.default_rng(0)
INPUTS, LABELS = RNG.normal(size=(7, 6)), RNG.integers(0, 6, 7)
DECAY = 2.0**-7


PLAN = both_runs.linear_plan({"weight": (6, 6), "bias": (6,)}, reverse=False)


def factor(step: int) -> float:
    return min(1.0, (step + 1) / 4) * (1 - step / 40)


def theirs(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=DECAY)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def ours(model):
    schedule = paddle.optimizer.lr.LambdaDecay(0.01, factor)
    held = model.parameters()
    return paddle.optimizer.AdamW(schedule, parameters=held, weight_decay=DECAY), schedule


@pytest.fixture(scope="module")
def begun():
    """A PyTorch run after five steps: its model, its state, and the state in Paddle's names."""
    model = torch.nn.Linear(6, 6).double()
    optimizer, schedule = theirs(model)
    for _ in range(5):
        optimizer.zero_grad()
        scores = model(torch.tensor(INPUTS))
        torch.nn.functional.cross_entropy(scores, torch.tensor(LABELS)).backward()
        optimizer.step()
        schedule.step()
    state = both_runs.taken(optimizer, model, schedule)
    return model, state, convert(state, PLAN)


def continued(model, state, own):
    def put_theirs(built):
        optimizer, schedule = theirs(built)
        both_runs.put(state, optimizer, built, schedule)
        return optimizer, schedule

    def put_ours(layer):
        optimizer, schedule = ours(layer)
        paddle_optimizer.put(own, optimizer, layer)
        return optimizer, schedule

    options = {"loss": "cross_entropy", "labels": LABELS, "steps": 6, "dtype": "float64"}
    makers = put_theirs, put_ours
    build = partial(paddle.nn.Linear, 6, 6)
    return align.compare(model, build, INPUTS, optimizer=makers, **options)


def test_a_run_is_compared_from_a_converted_state_on(begun) -> None:
    found = continued(*begun)
    assert found.passed, str(found)


def test_a_moment_that_was_not_transposed_shows(begun) -> None:
    model, state, own = begun
    moments = {kind: dict(held) for kind, held in own.moments.items()}
    moments["moment1"]["weight"] = moments["moment1"]["weight"].T.copy()
    found = continued(model, state, dataclasses.replace(own, moments=moments))
    assert not found.passed
    assert found.root.step == "optimizer"
