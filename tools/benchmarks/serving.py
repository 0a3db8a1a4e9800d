"""One side's process: answers requests on stdin, one JSON line each.

Started as ``python -m tools.benchmarks.serving SIDE CLOCK``. A request is ``[what, fields...]``:
``["stamp"]``, ``["step", WORKLOAD, MODE, REHEARSED]``, ``["products", WORKLOAD, MODE]`` (torch
only) or ``["product", SHAPES]``.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.benchmarks import timed_steps
from tools.benchmarks.workloads import Workload

SIDES = {
    "paddle": ("paddle", ""),
    "pytorch": ("torch", ""),
    "installed": ("paddle", ""),
    "compiled": ("torch", "compiled"),
    "bfloat16": ("torch", "bfloat16"),
    "bf16": ("paddle", "bf16"),
}
"""Side -> framework and its form. ``paddle`` is tuned by the project, ``pytorch`` eager, and
``installed`` is the port as a plain installation runs it."""

CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
"""What a turn is measured by; the processor's time of this process suits a busy machine."""
_LEAST = 0.03  # seconds that one product is repeated for


class Server:
    """What one side's process knows between requests.

    Args:
        side: key of `SIDES`.
        clock: key of `CLOCKS`.
    """

    def __init__(self, side: str, clock: str = "wall") -> None:
        self.framework, self.form = SIDES[side]
        self._clock = CLOCKS[clock]
        if self.framework == "paddle":
            import sot_paddle  # noqa: F401 (before Paddle, whose environment it sets)
        self._workload: dict[str, Any] = {}
        self._steps: timed_steps.Steps = {}
        self._warm: set[str] = set()

    def answer(self, request: list[Any]) -> Any:
        """The answer to a request, ready for JSON."""
        what, *rest = request
        return getattr(self, f"_{what}")(*rest)

    def _stamp(self) -> dict[str, Any]:
        if self.framework == "torch":
            import torch

            threads = torch.get_num_threads()
            return {"framework": f"torch {torch.__version__}", "threads": threads}
        import paddle

        from sot_paddle.runtime import environment_stamp

        loaded = [name for name in ("paddle", "torch") if name in sys.modules]
        stamp = {"framework": f"paddle {paddle.__version__}", "frameworks_loaded": loaded}
        return {**stamp, **environment_stamp()}

    def _step(self, workload: dict[str, Any], mode: str, rehearsed: bool = True) -> dict[str, Any]:
        """Seconds of a step, after one that is not counted where rehearsed, and the peak memory."""
        if workload != self._workload:
            self._steps, self._warm = {}, set()  # free the old model before the new one is built
            if platform.libc_ver()[0] == "glibc":
                ctypes.CDLL(None).malloc_trim(0)
            self._workload = workload
            self._steps = timed_steps.steps_of(Workload(**workload), self.framework, self.form)
        step = self._steps[mode]
        if mode not in self._warm:
            step()  # the first call allocates and chooses kernels
            self._warm.add(mode)
        peak_mib(reset=True)
        if rehearsed:
            step()
        return {"seconds": self._seconds(step), "peak_mib": peak_mib()}

    def _products(self, workload: dict[str, Any], mode: str) -> list[Any]:
        return timed_steps.products_of(Workload(**workload), mode)

    def _product(self, shapes: list[list[int]]) -> list[float]:
        """Seconds of bare products, of each the fastest of as many as fit in `_LEAST`."""
        found = []
        for shape in shapes:
            call = timed_steps.product_call(tuple(shape), self.framework)
            call()
            fastest = spent = self._seconds(call)
            while spent < _LEAST:
                seconds = self._seconds(call)
                fastest, spent = min(fastest, seconds), spent + seconds
            found.append(fastest)
        return found

    def _seconds(self, call: Callable[[], Any]) -> float:
        began = self._clock()
        call()
        return self._clock() - began


def peak_mib(*, reset: bool = False) -> float | None:
    """Most MiB that this process held since the last reset, None where Linux does not say."""
    own = Path("/proc/self")
    if not (own / "clear_refs").exists():
        return None
    if reset:
        (own / "clear_refs").write_text("5", encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+)", (own / "status").read_text("utf-8"))[1]) / 1024


def main(arguments: list[str]) -> int:
    """Serve one side until the input ends; returns the exit status."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints must not look like an answer
    server = Server(*arguments)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
