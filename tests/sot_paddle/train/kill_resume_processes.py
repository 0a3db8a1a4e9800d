"""Kill one of two processes of a tiny GLUE run, and continue it. Run it directly."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE)]

import killing  # noqa: E402
import tiny_run  # noqa: E402

TOOL = HERE.parents[2] / "tools" / "train_glue.py"
COMPARED = ("last/model.safetensors", "last/optimizer.safetensors", "last/state.json", "RTE.tsv")
LONGEST = 30.0
"""Seconds after which the run has to have ended when one of its processes is gone."""


def launch(flags: list[str], folder: Path) -> subprocess.Popen:
    """Start a run in two processes; what they say goes into ``folder``."""
    processes = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo"]
    return subprocess.Popen(
        [sys.executable, *processes, "--log_dir", str(folder), str(TOOL), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")},
        cwd=folder.parent,
    )


def children(process: int) -> set[int]:
    """Process ids of a process's children (Linux)."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return {int(word) for word in text.split()}


def run(seed: int) -> int:
    """Kill the second process after a random step; 0 when the run then ends as if left alone."""
    step = random.Random(seed).randint(2, 6)
    with tempfile.TemporaryDirectory(prefix="kill_processes_") as folder:
        root = Path(folder)
        data = tiny_run.write_glue(root / "glue", train=26)
        model = tiny_run.write_model(root / "model")
        more = ("--max_steps", "12", "--save_steps", "2", "--per_gpu_train_batch_size", "2")
        whole, out = root / "whole", root / "out"
        scenario = killing.Scenario(lambda _: 0, COMPARED)
        if launch(tiny_run.command(data, model, whole, *more), root / "logs").wait() != 0:
            print((root / "logs" / "workerlog.0").read_text(encoding="utf-8"))
            return 1
        flags = tiny_run.command(data, model, out, *more)
        begun = launch(flags, root / "logs-killed")
        while not (out / f"checkpoint-{2 * (step // 2)}" / "manifest.json").is_file():
            time.sleep(0.02)
            assert begun.poll() is None, "it ended before it was killed"
        first = int((out / "run.lock").read_text(encoding="utf-8").split()[1])
        (second,) = children(begun.pid) - {first}
        os.kill(second, signal.SIGKILL)
        killed = time.monotonic()
        status = begun.wait()
        seconds = time.monotonic() - killed
        print(f"killed process 1 after step {step}: status {status} after {seconds:.1f} s")
        if status == 0 or seconds > LONGEST:
            print((root / "logs-killed" / "workerlog.0").read_text(encoding="utf-8"))
            return 1
        if launch(flags, root / "logs-again").wait() != 0:
            print((root / "logs-again" / "workerlog.0").read_text(encoding="utf-8"))
            return 1
        if scenario.digests(out) != scenario.digests(whole):
            print("the continued run differs from the one that was left alone")
            return 1
    print("two processes, one killed: both ended, and continued bit-identically")
    return 0


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
