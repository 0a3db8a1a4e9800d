"""Fixtures of the core's tests: precision, seed, gradients by finite differences, tiny models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import paddle
import pytest

from sot_paddle import registry
from sot_paddle.data.subword import SubwordTokenizer

STEP = 1e-6
TINY_BERT = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "vocab_size": 30,
    "max_position_embeddings": 16,
    "q_dim": 7,
    "k_dim": 5,
    "head_num_heads": 2,
    "wr_dim": 4,
    "qkv_dim": 3,
    "head_dropout": 0.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


@pytest.fixture(autouse=True)
def _seed_and_default_dtype() -> Iterator[None]:
    """The same seed for every test, and Paddle's default dtype as it was: a command sets it."""
    paddle.seed(20210420)
    before = paddle.get_default_dtype()
    yield
    paddle.set_default_dtype(before)


def tokens_of(tokenizer: SubwordTokenizer, ids: Iterable[int]) -> list[str]:
    """The word pieces of token ids."""
    return [tokenizer.backend.id_to_token(int(token)) for token in ids]


@pytest.fixture
def float64() -> None:
    """Build and compute in float64."""
    paddle.set_default_dtype("float64")


@pytest.fixture
def ran(capfd) -> Callable[..., tuple[int, list[str], str]]:
    """Run a command's function in this process: status, lines on stdout, what stderr said."""

    def start(run_command: Callable[[list[str]], int], *arguments: object):
        capfd.readouterr()
        try:
            status = run_command([*map(str, arguments)])
        except SystemExit as refused:  # argparse's own
            status = refused.code
        seen = capfd.readouterr()
        return status, seen.out.splitlines(), seen.err

    return start


@pytest.fixture
def amp_switches(monkeypatch) -> list[dict]:
    """Arguments of every ``paddle.amp.auto_cast`` entered (on a CPU AMP itself has no effect)."""
    entered = []

    @contextlib.contextmanager
    def recorder(**options) -> Iterator[None]:
        entered.append(options)
        yield

    monkeypatch.setattr(paddle.amp, "auto_cast", recorder)
    return entered


@pytest.fixture
def tiny_options() -> Mapping[str, object]:
    """Overrides of a two-layer BERT: C 12, 3 heads, 30 token ids, 16 positions."""
    return dict(TINY_BERT)


@pytest.fixture
def tiny_bert() -> Callable[..., paddle.nn.Layer]:
    """Build a two-layer BERT of width 12 with three classes; keywords override."""

    def build(name: str = "bert_base_mgcrp", num_classes: int = 3, **options):
        return registry.create_model(name, num_classes, **{**TINY_BERT, **options})

    return build


@pytest.fixture
def check_gradient() -> Callable[..., None]:
    """Compare Paddle's gradients with central differences, element by element, in float64."""

    def check(function: Callable, *arrays: np.ndarray, tolerance: float = 1e-7) -> None:
        tensors = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
        output = function(*tensors)
        assert output.dtype == paddle.float64
        # weights of unequal size, so that no two gradients cancel or coincide
        weights = paddle.to_tensor(np.random.default_rng(9).normal(size=output.shape))
        (output * weights).sum().backward()
        for place, (array, tensor) in enumerate(zip(arrays, tensors, strict=True)):
            numeric = np.zeros_like(array)
            for index in np.ndindex(*array.shape):
                values = []
                for sign in (1.0, -1.0):
                    moved = [a.copy() for a in arrays]
                    moved[place][index] += sign * STEP
                    with paddle.no_grad():
                        result = function(*(paddle.to_tensor(a) for a in moved))
                    values.append(float((result * weights).sum()))
                numeric[index] = (values[0] - values[1]) / (2 * STEP)
            assert np.abs(numeric).max() > 1e-3, "a gradient of zero would prove nothing"
            scale = max(1.0, np.abs(numeric).max())
            np.testing.assert_allclose(
                tensor.grad.numpy() / scale, numeric / scale, rtol=0, atol=tolerance
            )

    return check
