"""`python -m align spec` and `dump` exit with 0 only when a verdict was reached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from align import cli
from tests.tools import tool_runs

ROOT = Path(__file__).resolve().parents[3]
PAIR = """
import os, time
import numpy as np

def torch_module():
    import torch
    return torch.nn.Linear(4, 3)

def paddle_layer():
    from paddle import nn
    class Model(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1
    return Model(4, 3)

DTYPE = "float64"

def inputs():
    {inputs}
    return np.random.default_rng(0).normal(size=(5, 4))

{end}
"""


def _spec(folder: Path, inputs: str = "pass", end: str = "") -> Path:
    path = folder / "pair.py"
    path.write_text(PAIR.format(inputs=inputs, end=end), encoding="utf-8")
    return path


def _run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "align", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def _refused(done: subprocess.CompletedProcess, said: str) -> None:
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in tool_runs.only_line(done.stderr)


def test_a_file_that_ends_the_process_is_no_verdict(tmp_path):
    said = "no verdict: the process that ran your files"
    _refused(_run("spec", _spec(tmp_path, inputs="os._exit(0)")), f"{said} ended with status 0")
    spec = _spec(tmp_path, end="os.kill(os.getpid(), 9)")
    done = _run("dump", "--side", "torch", "--spec", spec, "--out", tmp_path / "d")
    _refused(done, f"{said} was killed by SIGKILL")
    assert not (tmp_path / "d").exists()


def test_a_file_that_hangs_ends_in_time(tmp_path):
    done = _run("spec", _spec(tmp_path, inputs="time.sleep(600)"), "--timeout", 0.03)
    _refused(done, "no verdict within 0.03 minutes; --timeout MINUTES allows more")


def test_a_refusal_is_the_commands_own():
    _refused(_run("spec", "nowhere.py"), "spec nowhere.py: no such file")


def test_a_verdict_passes_through_unchanged(tmp_path):
    """Also where the process ends behind it with a status that says otherwise."""
    spec = _spec(tmp_path, end="import atexit; atexit.register(os._exit, 0)")
    done = _run("spec", spec, "--json", tmp_path / "a.json")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("FAIL")
    assert (tmp_path / "a.json").is_file()


def test_what_runs_no_file_of_the_users_is_not_guarded():
    for words in (["spec", "x.py"], ["dump", "--side", "torch", "--spec", "x.py", "--out", "d"]):
        assert cli.parse(words).timeout == 30
    for arguments in ([], ["--quick"], ["compare", "a", "b"]):
        assert cli.parse(arguments).timeout is None


GUARDED = """
import sys
import time
sys.path.insert(0, {root!r})
from align import __main__ as front
front._GRACE_S = 0.5
def command():
    print("begun", flush=True)
    {body}
    return 0
status = front.guarded(command, 1.0)
print("heavy", [n for n in ("paddle", "torch", "numpy") if n in sys.modules], file=sys.stderr)
sys.exit(status)
"""


def _started(body: str) -> subprocess.Popen:
    code = GUARDED.format(root=str(ROOT), body=body)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a job in the background ignores Ctrl-C, and its children would
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "begun\n"
    return process


def test_ctrl_c_is_the_commands_to_answer():
    body = """
    import time
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 2"""
    process = _started(body)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert err.count("interrupted") == 1
    assert "no verdict" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize("answer", ["SIG_DFL", "SIG_IGN"])
def test_nothing_runs_on_when_the_command_is_terminated(answer):
    process = _started(
        f"import signal, time; signal.signal(15, signal.{answer})\n"
        "    print('waits', flush=True); time.sleep(60)"
    )
    assert process.stdout.readline() == "waits\n"
    process.terminate()
    process.communicate(timeout=20)  # ends when the other process has closed its streams
    assert process.returncode == 143


LEFT_BEHIND = """
    import os, time
    if os.fork() == 0:
        os.close(1), os.close(2)
        time.sleep(30)
        os._exit(0)
    os._exit(0)"""
FORKED = """
    import os
    if os.fork() != 0:
        os.wait()
        os._exit(0)"""
"""It returns through the command, as the one that has to judge never does."""


@pytest.mark.parametrize("body", [LEFT_BEHIND, FORKED])
def test_a_process_of_the_users_code_is_not_waited_for_and_gives_no_verdict(body):
    process = _started(body)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "no verdict" in err
    assert "heavy []" in err
