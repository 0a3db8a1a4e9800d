"""Start a program in two processes on the CPU, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def launch(folder: Path, program: Path, *arguments: str) -> str:
    """Run a program in two processes, to a good end; what the first of them said.

    Args:
        folder: to start in; the logs go into it.
        program: the file.
        arguments: of the program.
    """
    start = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    done = subprocess.run(
        [sys.executable, *start, "--log_dir", str(folder / "logs"), str(program), *arguments],
        capture_output=True,
        text=True,
        # numbers do not depend on the machine
        env=environment | {"OMP_NUM_THREADS": "1"},
        timeout=300,
        cwd=folder,
        check=False,
    )
    said = (folder / "logs" / "workerlog.0").read_text("utf-8")
    assert done.returncode == 0, said[-3000:] + done.stderr[-2000:]
    return said
