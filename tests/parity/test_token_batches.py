"""Compare which rows share a batch, and random numbers after a checkpoint; no framework computes.

Where rows are padded to the longest of their batch, rows of about the same length share one. The
reference makes these batches from what the page of the order says, with torch, from the same
permutation. Which random numbers then shuffle the batches is not compared.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from unittest import mock

import numpy as np
import paddle
import pytest
import torch

from sot_paddle import distributed
from sot_paddle.data.batches import TokenFeatures
from sot_paddle.data.splits import TokenSplit
from sot_paddle.train import exact_state
from tests.parity.sides import assert_same

ROWS, LONGEST, SEED, EPOCH = 487, 12, 7, 2
CHUNK = 50  # batches of a chunk, as the page of the order says


@pytest.mark.parametrize("pad", ["longest", "max_length"])
def test_rows_that_share_a_batch(pad: str) -> None:
    """Of an epoch of training in two processes, and of evaluation in one."""
    lengths = np.random.default_rng(3).integers(4, LONGEST, ROWS)
    features = TokenFeatures.from_rows([[1] * length for length in lengths], lengths)
    split = TokenSplit(features, 3, pad=pad, max_length=2 * LONGEST)
    with mock.patch.object(distributed, "world_size", return_value=2):
        training = split.order(2, SEED)(EPOCH)
    shuffled = np.random.Generator(np.random.PCG64([SEED, EPOCH, 0])).permutation(ROWS)
    chunks = np.split(shuffled, range(CHUNK * 4, ROWS, CHUNK * 4))
    assert_same_batches(training, batches_of(chunks, lengths, 4, pad))
    assert_same_batches(split.batches, batches_of([np.arange(ROWS)], lengths, 3, pad))


def batches_of(
    chunks: Sequence[np.ndarray], lengths: np.ndarray, size: int, pad: str
) -> list[np.ndarray]:
    """Cut chunks of rows into batches; for dynamic padding each is sorted, longest first."""
    if pad == "longest":
        chunks = [longest_first(rows, lengths) for rows in chunks]
    return np.split(np.concatenate(chunks), range(size, ROWS, size))


def longest_first(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Sort rows by their length; equal ones keep their order."""
    order = torch.sort(torch.from_numpy(lengths[rows]), descending=True, stable=True)
    return rows[order.indices.numpy()]


def assert_same_batches(
    paddle_batches: Sequence[np.ndarray], torch_batches: Sequence[np.ndarray]
) -> None:
    """Assert equal whole batches, whatever their order, and an equal incomplete one at the end."""
    (*paddle_whole, paddle_last), (*torch_whole, torch_last) = paddle_batches, torch_batches
    assert sorted(map(tuple, paddle_whole)) == sorted(map(tuple, torch_whole))
    assert list(paddle_last) == list(torch_last)


@pytest.fixture
def generators() -> Iterator[None]:
    """Put the generators back."""
    states = random.getstate(), np.random.get_state(), paddle.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    paddle.set_rng_state(states[2])


@pytest.mark.usefixtures("generators")
def test_random_numbers_after_a_checkpoint() -> None:
    """An odd number of normal draws before: Python and NumPy then hold a second one back."""
    before, after = 3, 4
    seed_generators(5)
    draw(before)
    saved = json.loads(json.dumps(exact_state.random_states()))
    seed_generators(6)
    draw(before - 1)
    exact_state.restore_random_states(saved)
    continued = draw(after)
    seed_generators(5)
    uninterrupted = draw(before + after)
    expected = {name: numbers[before:] for name, numbers in uninterrupted.items()}
    assert_same(continued, expected, bound=0.0)


def seed_generators(seed: int) -> None:
    """Seed Python's, NumPy's and Paddle's generator."""
    random.seed(seed)
    np.random.seed(seed)
    paddle.seed(seed)


def draw(count: int) -> dict[str, list[float]]:
    """Draw as many numbers of each generator."""
    return {
        "python": [random.gauss(0.0, 1.0) for _ in range(count)],
        "numpy": [np.random.normal() for _ in range(count)],
        "paddle": [paddle.rand([1]).item() for _ in range(count)],
    }
