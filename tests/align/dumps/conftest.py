"""A tiny pair in a spec file, and the dumps of both its sides, made once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():  # 2026-11-21, paddle 3.3.1: warnings at import
    warnings.simplefilter("ignore")
    import paddle  # noqa: F401

from align.commands import dumps
from align.commands.spec import read_spec
from align.record.dump_files import Dump

SPEC = '''
"""Every function imports its framework inside."""
import numpy as np

NAME, LOSS, OPTIMIZER, STEPS = "tiny", "cross_entropy", "adamw", 2
EPSILON = 1e-5
SHIFT = 0.0
TRAIN = False
SHAKE = True
WEIGHTS = {
    "qkv.weight": ["q.weight", "k.weight", "v.weight"],
    "qkv.bias": ["q.bias", "k.bias", "v.bias"],
    "bn": "norm2",
}


def torch_module():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(6)
            self.qkv = nn.Linear(6, 18)
            self.act = nn.Tanh()
            self.bn = nn.BatchNorm1d(6)
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            q, k, v = self.qkv(self.norm(x)).chunk(3, -1)  # (B, N, 6)
            x = x + torch.softmax(q @ k.transpose(1, 2), -1) @ self.act(v)
            return self.head(self.bn(x.mean(1)))

    return Net()


def paddle_layer():
    import paddle
    from paddle import nn

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(6, epsilon=EPSILON)
            self.q, self.k, self.v = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
            self.act = nn.Tanh()
            self.norm2 = nn.BatchNorm1D(6)
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            y = self.norm(x)
            q, k, v = self.q(y), self.k(y), self.v(y)
            scores = paddle.nn.functional.softmax(q @ k.transpose([0, 2, 1]), -1)
            x = x * (1 + SHIFT) + scores @ self.act(v)
            return self.head(self.norm2(x.mean(1)))

    return Net()


def inputs():
    return np.random.default_rng(0).normal(size=(3, 5, 6))


def labels():
    return np.array([0, 3, 1])


def batches():
    rng = np.random.default_rng(1)
    drawn = [(rng.normal(size=(n, 5, 6)), rng.integers(0, 4, n)) for n in (3, 2)]
    return drawn
'''


def write_spec(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """The spec with some of its text replaced."""
    text = SPEC
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the specs and dumps of these tests lie."""
    return tmp_path_factory.mktemp("apart")


@pytest.fixture(scope="session")
def make(folder: Path) -> Callable[..., Dump]:
    """A function (side, name, *changes of the spec, options of the request) -> dump."""

    def run(side: str, name: str, *changes: tuple[str, str], **options: Any) -> Dump:
        spec = write_spec(folder, f"{name}_spec", *changes)
        return dumps.dump(side, read_spec(spec), spec, folder / name, **options)

    return run


@pytest.fixture(scope="session")
def torch_dump(make: Callable[..., Dump]) -> Dump:
    """PyTorch's side."""
    return make("torch", "from_torch")


@pytest.fixture(scope="session")
def paddle_dump(make: Callable[..., Dump], torch_dump: Dump) -> Dump:
    """Paddle's side on PyTorch's weights."""
    return make("paddle", "from_paddle", other=torch_dump)
