"""What the tests of the native operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import paddle
import pytest

from sot_paddle.ops import build, dispatch


@pytest.fixture
def called(monkeypatch) -> list[str]:
    """Names of the native operators that were called."""
    names, original = [], dispatch._C_ops._run_custom_op
    watched = lambda name, *rest: names.append(name) or original(name, *rest)  # noqa: E731
    monkeypatch.setattr(dispatch._C_ops, "_run_custom_op", watched)
    return names


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
