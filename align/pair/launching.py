"""Starts the processes of a data-parallel run and waits for them; a failure is one clear line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from align.record import batch_slices
from align.record.batch_slices import Shares
from align.verdict_process import end_descendants
from sot_paddle.checkpoint import write_tensors

TIMEOUT_S = 900
WORKER = Path(__file__).parents[1] / "commands" / "distributed_worker.py"
FAILED = "align: error: "
"""Begins the line of a process's log that says what the user did wrong."""
PEER = f"{WORKER.stem}: "
"""Begins the line in which a process says how another one ended (`sot_paddle.peers`)."""
LOST = ("gloo/transport", "reset by peer", "NCCL", "TCPStore")
"""In what a process says when another one died first."""
LONGEST = 300  # characters of a log that a message shows


def launch(request: Mapping[str, Any], weights: Mapping[str, np.ndarray], processes: int) -> Shares:
    """Train in so many processes.

    Args:
        request: "spec", "dtype", "steps", "seed", "fed" (from `shares.told`) for the worker.
        weights: of the Paddle layer, by name.
        processes: how many; on a GPU build each needs a GPU of its own.

    Returns:
        Shares.

    Raises:
        ValueError: a process died or took too long.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = json.dumps({**request, "spec": str(Path(request["spec"]).resolve())})
        (folder / "request.json").write_text(text, encoding="utf-8")
        write_tensors(folder / "weights.safetensors", weights)
        run([*launcher(processes, folder), str(WORKER), str(folder)], folder, processes)
        if not (folder / batch_slices.RECORD).is_file():
            raise ValueError(f"distributed: no process left a record; {_last_words(folder)}")
        return batch_slices.read(folder)


def launcher(processes: int, folder: Path) -> list[str]:
    """The command that starts a script in so many processes: gloo on the CPU, nccl on GPUs.

    Raises:
        ValueError: fewer GPUs than processes.
    """
    import paddle

    command = [sys.executable, "-m", "paddle.distributed.launch", "--log_dir", str(folder / "log")]
    command += ["--nproc_per_node", str(processes)]
    if not paddle.device.get_device().startswith("gpu"):
        return [*command, "--backend", "gloo"]
    found = paddle.device.cuda.device_count()
    if found < processes:
        raise ValueError(
            f"distributed: {processes} processes need as many GPUs, this machine has {found}; "
            "CUDA_VISIBLE_DEVICES= (empty) runs them on the CPU"
        )
    return [*command, "--devices", ",".join(str(i) for i in range(processes))]


def run(
    command: list[str], folder: Path, processes: int, settings: Mapping[str, str] | None = None
) -> None:
    """Run the launcher; when it is left early, none of its processes stays behind.

    Args:
        command: begins with that of `launcher`.
        folder: where it runs, and leaves what it prints.
        processes: for what is said when it fails.
        settings: variables of its environment beside ours.

    Raises:
        ValueError: a process died or took too long.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    environment |= settings or {}
    with open(folder / "launch.log", "wb") as log:
        started = subprocess.Popen(  # noqa: S603 (our own worker)
            command,
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = started.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ValueError(
                f"distributed: {processes} processes did not end within {TIMEOUT_S} s; "
                f"{_last_words(folder)}"
            ) from error
        finally:
            if started.poll() is None:
                end_descendants(started.pid)  # PADDLE: each has a session of its own
                started.kill()
                started.wait()
    if status:
        raise ValueError(
            f"distributed: the run in {processes} processes ended with status {status}; "
            f"{_last_words(folder)}"
        )


def _last_words(folder: Path) -> str:
    """The line in which a process says what is wrong, else the end of the last log that has one."""
    told: dict[str, str] = {}
    ends: dict[str, str] = {}
    seen: list[str] = []
    for path in sorted((folder / "log").glob("workerlog.*")):
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        number = path.suffix.removeprefix(".")
        ends[number] = lines[-1].strip()[:LONGEST] if lines else "nothing"
        for line in lines:
            if line.startswith(FAILED):
                told[number] = line.removeprefix(FAILED)[:LONGEST]
            if line.startswith(PEER):  # of another process, whose own words say more
                seen.append(line.removeprefix(PEER).partition(";")[0])
    causes = {n: text for n, text in told.items() if not any(word in text for word in LOST)}
    if causes:
        number, text = next(iter(causes.items()))
        return f"process {number}: {text}"
    killed = [text for text in seen if " was killed by " in text]
    if killed:
        return killed[0]
    silent = [number for number in ends if number not in told] or list(ends)
    if silent:
        number = silent[-1]
        return f"process {number} ended without a word; the end of its log: {ends[number]}"
    lines = (folder / "launch.log").read_text(encoding="utf-8", errors="replace").strip()
    return f"the launcher's last line: {lines.splitlines()[-1][:LONGEST] if lines else 'nothing'}"
