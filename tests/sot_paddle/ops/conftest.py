"""What the tests of the native operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import paddle
import pytest

from sot_paddle.ops import build, dispatch

Function = Callable[..., paddle.Tensor]


@pytest.fixture
def called(monkeypatch) -> list[str]:
    """Names of the native operators that were called."""
    names, original = [], dispatch._C_ops._run_custom_op
    watched = lambda name, *rest: names.append(name) or original(name, *rest)  # noqa: E731
    monkeypatch.setattr(dispatch._C_ops, "_run_custom_op", watched)
    return names


@pytest.fixture
def plainly(monkeypatch) -> Callable[[Callable], Callable]:
    """The same function where no native operator was built."""

    def plain(function: Callable) -> Callable:
        def call(*args: object) -> object:
            with monkeypatch.context() as patch:
                patch.setattr(dispatch.build, "why_not", lambda: "no compiler")
                return function(*args)

        return call

    return plain


@pytest.fixture
def gradients() -> Callable[[Function, Sequence[np.ndarray]], list[np.ndarray]]:
    """Value, and gradients of the arguments for one fixed gradient of the value."""

    def found(function: Function, arrays: Sequence[np.ndarray], seed: int = 4) -> list[np.ndarray]:
        paddle.seed(seed)
        tensors = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
        y = function(*tensors)
        g = np.random.default_rng(seed).normal(size=y.shape)
        y.backward(paddle.to_tensor(g.astype(y.numpy().dtype)))
        return [y.numpy(), *(tensor.grad.numpy() for tensor in tensors)]

    return found


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of OpenMP threads; one again afterwards."""
    yield paddle.base.core.set_num_threads
    paddle.base.core.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked ``native`` where nothing could be built."""
    native = [item for item in items if item.get_closest_marker("native")]
    if native and (reason := build.why_not()):
        for item in native:
            item.add_marker(pytest.mark.skip(reason=f"not built: {reason}"))
