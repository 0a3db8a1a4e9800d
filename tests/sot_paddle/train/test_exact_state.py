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
