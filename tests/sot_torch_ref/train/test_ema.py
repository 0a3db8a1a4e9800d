"""EMA of the whole state dict: timm's own after ten steps."""

import copy

import pytest
import torch
from torch import nn

from sot_torch_ref.train.ema import DECAY, ModelEma

pytestmark = pytest.mark.usefixtures("float64")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def train(model: nn.Module, averages: list, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 5)).sin().sum().backward()
        optimizer.step()
        for average in averages:
            average.update(model)


@pytest.mark.parametrize("decay", [DECAY, 0.9])
def test_ten_steps_equal_timm(decay: float) -> None:
    from timm.utils import ModelEma as TimmEma

    model = network()
    ours, theirs = ModelEma(model, decay), TimmEma(model, decay)
    start = copy.deepcopy(model.state_dict())
    train(model, [ours, theirs], 10)
    expected = theirs.ema.state_dict()
    assert list(ours.state) == list(expected) == list(model.state_dict())
    for name, value in ours.state.items():
        if value.is_floating_point():
            assert torch.equal(value, expected[name]), name
            assert not torch.equal(value, start[name])
    assert ours.state["1.num_batches_tracked"].item() == 10
    assert expected["1.num_batches_tracked"].item() != 10  # timm averages and truncates it
