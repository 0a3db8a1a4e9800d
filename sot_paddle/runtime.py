"""CPU tuning before Paddle's first product, quiet imports, and the environment stamp of a run.

Standard library, and psutil where Paddle was imported first: nothing heavy. Measured effects
are printed by ``make bench``; ``SOT_PADDLE_TUNE=0`` switches everything here off, and a variable
that is already set is never changed.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import platform
import sys
import warnings
import zlib  # noqa: F401 (PADDLE: 2.6 brings another one, which crashes what needs it later)
from collections.abc import Iterator
from importlib import metadata

from sot_paddle.cli import ending_at_once
from sot_paddle.ops.processor import processor

_SWITCH = "SOT_PADDLE_TUNE"

_applied: dict[str, str] = {}


def mkl_cpu_type(vendor: str, flags: frozenset[str]) -> str | None:
    """The MKL code path that is faster than its default and safe on this processor.

    The MKL of Paddle's wheel (2019) takes a slow path on AMD processors. On any other vendor
    its own choice is right, and nothing is forced.

    Returns:
        ``"7"`` (AVX-512), ``"5"`` (AVX2) or None.
    """
    if vendor != "AuthenticAMD":
        return None
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= flags:
        return "7"
    return "5" if {"avx2", "fma"} <= flags else None


def _threads() -> int:
    """Processors this process may use, shared fairly among local data-parallel processes."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    local = int(os.environ.get("PADDLE_LOCAL_SIZE") or os.environ.get("PADDLE_TRAINERS_NUM") or 1)
    return max(1, (usable or 1) // max(1, local))


def _set(name: str, value: str) -> None:
    if name in os.environ:
        _applied[name] = f"{os.environ[name]} (set before)"
        return
    os.environ[name] = value
    _applied[name] = value


def _threads_chosen() -> bool:
    """Whether the user chose a number of threads.

    PADDLE: importing it writes OMP_NUM_THREADS=1 when nobody has set it, so a 1 counts only when
    this process was started with the variable.
    """
    value = os.environ.get("OMP_NUM_THREADS")
    if value != "1":
        return value is not None
    import psutil  # here: most runs never ask

    return "OMP_NUM_THREADS" in psutil.Process().environ()  # as the process was started


def tune_cpu() -> dict[str, str]:
    """Apply the safe levers once; later calls change nothing.

    Returns:
        Lever name to what was done, for the environment stamp.
    """
    if _applied:
        return dict(_applied)
    if os.environ.get(_SWITCH) == "0":
        _applied[_SWITCH] = "0 (nothing tuned)"
        return dict(_applied)
    kind = mkl_cpu_type(*processor())
    if kind is not None:
        _set("MKL_DEBUG_CPU_TYPE", kind)
    if "paddle" in sys.modules:
        # Paddle has read its environment: threads can still be set, a change of the meaning of
        # views under a program that is already running would not be safe.
        _applied["FLAGS_use_stride_kernel"] = "left as it is (paddle was imported first)"
        if not _threads_chosen():
            sys.modules["paddle"].base.core.set_num_threads(_threads())
            _applied["OMP_NUM_THREADS"] = f"{_threads()} (through Paddle)"
    else:
        _set("OMP_NUM_THREADS", str(_threads()))
        _set("FLAGS_use_stride_kernel", "0")
    return dict(_applied)


def given_environment() -> dict[str, str]:
    """Return the environment without the levers of this process: a child applies its own."""
    levers = [name for name, text in _applied.items() if not text.endswith("(set before)")]
    return {name: value for name, value in os.environ.items() if name not in levers}


def ignore_import_warnings() -> None:
    """Leave out two warnings that Paddle's import prints and that no user can act on."""
    os.environ.setdefault("GLOG_minloglevel", "2")  # of the C++ part errors alone
    warnings.filterwarnings("ignore", message="No ccache found", category=UserWarning)
    warnings.filterwarnings("ignore", message="Setuptools is replacing distutils")


class _Muted(io.TextIOBase):
    """Stands for stderr during imports: silent then, afterwards as if it were stderr itself."""

    importing = True

    def write(self, text: str) -> int:
        return len(text) if self.importing else sys.__stderr__.write(text)

    def flush(self) -> None:
        sys.__stderr__.flush()


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Silence stderr and warnings inside of the block; loggers made there speak afterwards.

    No garbage is looked for there, nor ever after among what the imports made: there is none.
    """
    os.environ.setdefault("GLOG_minloglevel", "2")
    muted = _Muted()
    gc.disable()
    try:
        with ending_at_once(), warnings.catch_warnings(), contextlib.redirect_stderr(muted):
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.freeze()
        gc.enable()
    muted.importing = False


@functools.cache
def _version(package: str) -> str:
    """As installed; asked for once, since every batch of an alignment states it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def environment_stamp() -> dict[str, object]:
    """Describe what a run ran on: packages, device, threads and the levers applied.

    Returns:
        A JSON-ready mapping. Frameworks are described only when they are already imported.
    """
    packages = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "torch", "transformers", "numpy")
    stamp: dict[str, object] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": _threads(),
        "packages": {name: _version(name) for name in packages if _version(name)[0].isdigit()},
        "tuning": tune_cpu(),
    }
    if "paddle" in sys.modules:
        stamp["paddle_device"] = sys.modules["paddle"].device.get_device()
    if "sot_paddle.ops.build" in sys.modules:
        stamp["native_operators"] = sys.modules["sot_paddle.ops.build"].state()
    if "torch" in sys.modules:
        stamp["torch_threads"] = sys.modules["torch"].get_num_threads()
    return stamp
