"""What a spec raises, hangs in or misspells is one line of the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from align import cli
from tests.tools import tool_runs

ROOT = Path(__file__).resolve().parents[3]
SPEC = """
import os, sys, time
class Mine(Exception): pass
def deep(n=0): return deep(n + 1)
def fail(error): raise error
def torch_module(): pass
def paddle_layer(): pass
def inputs():
    {inputs}
{end}
"""


@pytest.mark.parametrize("place", ["end", "inputs"])
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("fail(MemoryError())", 2, "MemoryError"),
        ("deep()", 2, "RecursionError: maximum recursion depth"),
        ("fail(Mine('own'))", 2, "Mine: own"),
        ("fail(TimeoutError('late'))", 2, "TimeoutError: late"),
        ("fail(KeyboardInterrupt)", 130, "interrupted"),
        ("sys.exit(0)", 2, "sys.exit(0) before a verdict"),
    ],
)
def test_what_a_spec_raises_is_one_line(line, status, said, place, tmp_path, capsys):
    path = tmp_path / "pair.py"
    path.write_text(SPEC.format(**({"inputs": "pass", "end": ""} | {place: line})), "utf-8")
    for start in (["spec", path], ["dump", "--side", "torch", "--out", "d", "--spec", path]):
        assert cli.main([*map(str, start)]) == status
        lines = capsys.readouterr().err.splitlines()
        assert said in lines[-1]
        assert len(lines) == 1 or "Mine" in said  # unknown to us: with its traceback


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("LOS = 'mse'", "LOS is no option, and nothing in the file reads it: did you mean LOSS?"),
        ("LOSS_FUNCTION = 'mse'", "LOSS_FUNCTION is no option, and nothing in the file reads it"),
        ("ZZZ: int = 3", "ZZZ is no option"),
        ("A, (B, LOS) = 1, (2, 3)", "A is no option"),
    ],
)
def test_unknown_names_in_capitals_are_refused(end, said, tmp_path, capsys):
    path = tmp_path / "pair.py"
    path.write_text(SPEC.format(inputs="pass", end=end), "utf-8")
    assert cli.main(["spec", str(path)]) == 2
    assert said in tool_runs.only_line(capsys.readouterr().err)


def _align(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "align", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("place", ["end", "inputs"])
def test_a_spec_that_hangs_ends_in_time(place, tmp_path):
    path = tmp_path / "pair.py"
    lines = {"inputs": "pass", "end": ""} | {place: "time.sleep(600)"}
    path.write_text(SPEC.format(**lines), "utf-8")
    done = _align("spec", path, "--timeout", 0.03)
    assert (done.returncode, done.stdout) == (2, "")
    line = tool_runs.only_line(done.stderr)
    assert line.endswith("no verdict within 0.03 minutes; --timeout MINUTES allows more")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e999", "soon", ""])
def test_a_limit_is_minutes(given, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["spec", "x.py", "--timeout", given])
    assert end.value.code == 2
    assert "expected minutes, a number above 0" in tool_runs.only_line(capsys.readouterr().err)
