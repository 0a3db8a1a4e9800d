import json
import random

import numpy as np
import paddle
import pytest
from paddle import nn

from sot_paddle.train import exact_state
from sot_paddle.train.optimizer import HFAdamW


def _model():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def _steps(model, optimizer, count, start=0):
    for step in range(start, start + count):
        x = paddle.to_tensor(np.random.RandomState(step).randn(4, 3).astype("float32"))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()


@pytest.mark.parametrize("kind", [HFAdamW, paddle.optimizer.AdamW])
def test_a_second_model_in_the_process_continues_exactly(kind):
    first = _model()
    whole = kind(1e-2, parameters=first.parameters())
    _steps(first, whole, 3)
    arrays = exact_state.optimizer_arrays(whole, first)
    counters = exact_state.optimizer_counters(whole, first)
    weights = {name: p.numpy().copy() for name, p in first.named_parameters()}
    assert "0.weight/moment1" in arrays

    second = _model()  # its automatic names differ
    assert second[0].weight.name != first[0].weight.name
    for name, parameter in second.named_parameters():
        parameter.set_value(weights[name])
    resumed = kind(1e-2, parameters=second.parameters())
    exact_state.restore_optimizer(resumed, second, arrays, json.loads(json.dumps(counters)))
    _steps(first, whole, 4, start=3)
    _steps(second, resumed, 4, start=3)
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert (mine.numpy() == other.numpy()).all()


def test_paddles_own_state_dict_would_not_continue():
    """The trap that structured names avoid: nothing is restored, and nothing is said."""
    first = _model()
    optimizer = paddle.optimizer.AdamW(1e-2, parameters=first.parameters())
    _steps(first, optimizer, 1)
    second = _model()
    other = paddle.optimizer.AdamW(1e-2, parameters=second.parameters())
    other.set_state_dict(optimizer.state_dict())
    with pytest.raises(AssertionError, match="Optimizer set error"):
        _steps(second, other, 1)


def test_foreign_state_is_refused():
    model = _model()
    optimizer = HFAdamW(1e-2, parameters=model.parameters())
    with pytest.raises(ValueError, match="no parameter '7.weight'"):
        exact_state.restore_optimizer(optimizer, model, {"7.weight/moment1": np.zeros(3)}, {})
    with pytest.raises(ValueError, match="'0.weight/moment1' does not fit"):
        exact_state.restore_optimizer(optimizer, model, {"0.weight/moment1": np.zeros(3)}, {})
    with pytest.raises(ValueError, match="'0.weight/moment9' does not fit"):
        exact_state.restore_optimizer(optimizer, model, {"0.weight/moment9": np.zeros(3)}, {})


def _draw():
    return random.random(), np.random.rand(), paddle.rand([3]).numpy().tolist()


def test_random_states_survive_json():
    random.gauss(0, 1)  # leaves a cached second value
    np.random.randn()
    saved = json.loads(json.dumps(exact_state.random_states()))
    first = (_draw(), random.gauss(0, 1), np.random.randn())
    assert (_draw(), random.gauss(0, 1), np.random.randn()) != first
    exact_state.restore_random_states(saved)
    assert (_draw(), random.gauss(0, 1), np.random.randn()) == first


def test_random_states_of_another_machine_are_refused():
    saved = exact_state.random_states()
    saved["paddle"] = saved["paddle"] * 3
    with pytest.raises(ValueError, match="random states of 3 devices"):
        exact_state.restore_random_states(saved)
