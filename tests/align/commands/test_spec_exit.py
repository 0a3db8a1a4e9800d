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

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PAIR = """
import os, sys
import numpy as np

def torch_module():
    import torch
    class Model(torch.nn.Linear):
        def forward(self, x):
            {torch}
            return super().forward(x)
    return Model(4, 3)

def paddle_layer():
    from paddle import nn
    class Model(nn.Linear):
        def forward(self, x):
            {paddle}
            return super().forward(x)
    return Model(4, 3)

DTYPE = "float64"

def inputs():
    {inputs}
    return np.random.default_rng(0).normal(size=(5, 4))

{end}
"""


def _spec(folder: Path, **lines: str) -> Path:
    path = folder / "pair.py"
    blank = dict.fromkeys(("torch", "paddle", "inputs"), "pass") | {"end": ""}
    path.write_text(PAIR.format(**(blank | lines)), encoding="utf-8")
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
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("align: error: ")]
    assert len(lines) == 1, done.stderr
    assert said in lines[0]
    assert "PASS" not in done.stdout


@pytest.mark.parametrize("place", ["end", "inputs"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sys.exit(0)", "SystemExit: sys.exit(0) before a verdict"),
        ("sys.exit()", "SystemExit: sys.exit(None) before a verdict"),
        ("os._exit(0)", "no verdict: the process that ran your files ended with status 0"),
        ("os._exit(1)", "no verdict: the process that ran your files ended with status 1"),
        ("os.kill(os.getpid(), 9)", "no verdict: the process that ran your files was killed by"),
        ("os.execv('/bin/true', ['true'])", "no verdict: the process that ran your files ended"),
    ],
)
def test_a_file_that_ends_the_process_is_no_verdict(tmp_path, line, said, place):
    spec = _spec(tmp_path, **{place: line})
    _refused(_run("spec", spec), said)
    if place == "end":
        _refused(_run("dump", "--side", "torch", "--spec", spec, "--out", tmp_path / "d"), said)
        assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(("side", "line"), [("torch", "sys.exit(0)"), ("paddle", "os._exit(0)")])
def test_a_model_that_ends_the_process_is_no_verdict(tmp_path, side, line):
    _refused(_run("spec", _spec(tmp_path, **{side: line})), "verdict")


def test_verdicts_pass_through_unchanged(tmp_path):
    """Both verdicts, and an end of the process after them that says otherwise."""
    hook = "import atexit; atexit.register(os._exit, 0)"
    done = _run("spec", _spec(tmp_path), "--json", tmp_path / "a.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS")
    assert (tmp_path / "a.json").is_file()
    wrong = _spec(tmp_path, paddle="return super().forward(x) + 1", end=hook)
    done = _run("spec", wrong, "--json", tmp_path / "b.json")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "b.json").is_file()


def test_exit_is_one_line_in_this_process_too(tmp_path, capsys):
    assert cli.main(["spec", str(_spec(tmp_path, end="sys.exit(0)"))]) == 2
    assert "pair.py, line 27: SystemExit: sys.exit(0) before a verdict" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("spec", "x.py", "--help"), 0),
        (("dump", "-h"), 0),
        (("spec", "x.py", "--jbos", "1"), 2),
        (("spec", "nowhere.py"), 2),
        (("spec", "nowhere.py", "--quick"), 2),
    ],
)
def test_help_and_refusals_say_what_they_said(arguments, status):
    done = _run(*arguments)
    assert done.returncode == status
    assert "no verdict" not in done.stderr
    assert bool(done.stderr) == bool(status)


@pytest.mark.parametrize("words", [["spec", "x.py"], ["--spec", "x.py"], ["--spec=x.py"]])
def test_both_spellings_of_the_command_are_guarded(words):
    for arguments in (["--inject", *words] if words[0] != "spec" else [*words, "--inject"], words):
        options = cli.parse(arguments)
        assert (options.subcommand, options.spec, options.timeout) == ("spec", "x.py", 30)


def test_what_runs_no_file_of_the_users_is_not_guarded(capsys):
    assert cli.parse(["dump", "--side", "torch", "--spec", "x.py", "--out", "d"]).timeout == 30
    for arguments in ([], ["--quick"], ["compare", "a", "b"]):
        assert cli.parse(arguments).timeout is None
    with pytest.raises(SystemExit) as end:
        cli.parse(["--spe", "x.py"])
    assert end.value.code == 2
    assert "unrecognized arguments" in capsys.readouterr().err


GUARDED = """
import sys
sys.path.insert(0, {root!r})
from align.verdict_process import guarded
def command():
    print("begun", flush=True)
    {body}
    return 0
status = guarded(command, 1.0)
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
    began = time.monotonic()
    process.communicate(timeout=30)  # ends when the other process has closed its streams
    assert time.monotonic() - began < 20
    assert process.returncode == 143


def test_a_process_that_the_users_code_leaves_behind_is_not_waited_for():
    body = """
    import os, time
    if os.fork() == 0:
        os.close(1), os.close(2)
        time.sleep(30)
        os._exit(0)
    os._exit(0)"""
    process = _started(body)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "no verdict" in err
    assert "heavy []" in err


def test_a_forked_process_of_the_users_code_gives_no_verdict():
    """It returns through the command, as the one that has to judge never does."""
    body = """
    import os
    if os.fork() != 0:
        os.wait()
        os._exit(0)"""
    process = _started(body)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "no verdict" in err
