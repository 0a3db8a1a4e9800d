"""The outermost guard of every command: one line, the documented status, quiet pipes, signals."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from align import cli
from align.commands import dump_commands
from sot_paddle.atomic import write_atomically
from sot_paddle.failures import NonFiniteLoss, Terminated
from sot_paddle.guard import CommandParser, command
from tests.tools import tool_runs

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path.stem for path in (ROOT / "tools").glob("[!_]*.py"))
PADDLE_SAYS = """

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   paddle::pybind::ThrowExceptionToPython(std::__exception_ptr::exception_ptr)

----------------------
Error Message Summary:
----------------------
ResourceExhaustedError: Fail to alloc memory of 35184372088832 size."""


class OwnError(Exception):
    """Of a user's code."""


class OwnEnd(BaseException):
    """Of a user's code that wants nobody to catch it."""


def _deep(depth: int = 0) -> int:
    return _deep(depth + 1)


def _raise(error: BaseException) -> None:
    raise error


ESCAPES = {
    "memory": (lambda: _raise(MemoryError()), 2, "out of memory at test_guard.py:"),
    "array": (lambda: _raise(MemoryError("Unable to allocate 9 TiB")), 2, "allocate 9 TiB; take"),
    "depth": (_deep, 2, "maximum recursion depth exceeded at test_guard.py:"),
    "no path": (lambda: _raise(OSError(5, "Input/output error")), 2, "error at test_guard.py:"),
    "torch": (lambda: _raise(RuntimeError("mat1 and\nmat2")), 2, "RuntimeError at test_guard.py:"),
    "paddle": (lambda: _raise(RuntimeError(PADDLE_SAYS)), 2, ": ResourceExhaustedError: Fail to"),
    "long": (lambda: _raise(TypeError("x" * 9999)), 2, "xxx ...; --traceback shows the calls"),
    "own": (lambda: _raise(OwnError("mine")), 2, "OwnError at test_guard.py:"),
    "own end": (lambda: _raise(OwnEnd()), 2, ": no message; --traceback shows the calls"),
    "iteration": (lambda: next(iter(())), 2, "StopIteration at test_guard.py:"),
    "bytes": (lambda: b"\xff".decode(), 2, "UnicodeDecodeError at test_guard.py:"),
    "exit 0": (lambda: sys.exit(0), 2, "sys.exit(0) at test_guard.py:"),
    "exit": (sys.exit, 2, "sys.exit(None) at test_guard.py:"),
    "late": (lambda: _raise(TimeoutError("no verdict")), 2, "tool: no verdict\n"),
    "value": (lambda: _raise(ValueError("a\nb")), 2, "tool: a b\n"),
    "import": (lambda: __import__("no_such_package"), 2, "No module named 'no_such_package'"),
    "loss": (lambda: _raise(NonFiniteLoss("the loss is nan")), 2, "tool: the loss is nan\n"),
    "interrupt": (lambda: _raise(KeyboardInterrupt()), 130, "tool: interrupted; run the same"),
    "terminate": (lambda: _raise(Terminated()), 143, "tool: terminated by SIGTERM; run the same"),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_what_escapes_is_one_line_and_a_status(name, capsys):
    action, status, said = ESCAPES[name]
    main = command("tool")(lambda arguments: action())
    assert main([]) == status
    out, line = capsys.readouterr()
    assert out == ""
    assert said in line
    assert tool_runs.only_line(line).startswith("tool: ")
    assert len(line) < 700
    assert main(["--traceback"]) == status
    shown = capsys.readouterr().err
    assert shown.endswith(line.replace("\n", "") + "\n")
    assert "Traceback (most recent call last)" in shown
    assert main([]) == status
    assert capsys.readouterr().err == line  # the switch is of one run


def test_what_is_returned_is_the_status(capsys):
    assert command("tool")(lambda arguments: None)([]) == 0
    assert command("tool")(lambda arguments: 1)([]) == 1
    assert command("tool")(len)(["a", "b", "c"]) == 3
    assert capsys.readouterr() == ("", "")


def test_a_switch_behind_the_dashes_is_anothers(capsys):
    main = command("tool")(lambda arguments: _raise(OwnError()))
    assert main(["--", "--traceback"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_flag_with_the_home_folder_behind_its_sign_means_it(monkeypatch, tmp_path):
    """No shell expands that; a folder named ~ was made in the current one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    parser = CommandParser(prog="tool")
    parser.add_argument("--out-dir")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args(["--out-dir=~/x/~/y", "~", "a=~/x"])
    assert given.out_dir == f"{tmp_path}/x/~/y"
    assert given.words == ["~", "a=~/x"]


def test_options_are_written_out(capsys):
    parser = CommandParser(prog="tool")
    parser.add_argument("--name")
    assert vars(parser.parse_args(["--traceback", "--name", "x"])) == {"name": "x"}
    for given in ("--trace", "--nam"):
        with pytest.raises(SystemExit) as end:
            parser.parse_args([given, "x"])
        assert end.value.code == 2
        assert tool_runs.only_line(capsys.readouterr().err).startswith("tool: error: unrecogn")


COMMANDS = {
    **{f"tools/{name}.py": lambda name=name: tool_runs.load(name).main for name in TOOLS},
    "python -m align": lambda: cli.main,
    "python -m align dump": lambda: dump_commands.main_dump,
    "python -m align compare": lambda: dump_commands.main_compare,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_lists_the_switch(name, capsys, monkeypatch):
    with pytest.raises(SystemExit) as end:
        COMMANDS[name]()(["--help"])
    assert end.value.code == 0
    out, err = capsys.readouterr()
    assert "--traceback" in out
    assert "Traceback" not in err


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_is_a_guarded_main_and_nothing_else(name):
    tree = ast.parse((ROOT / "tools" / f"{name}.py").read_text(encoding="utf-8"))
    text = ast.unparse(tree)
    assert "command(" in text
    assert text.rstrip().endswith(")")
    assert ast.unparse(tree.body[-1]).startswith("if __name__ == '__main__':\n    sys.exit(")
    assert "except " not in text or name.startswith("bench")


PROGRAM = """
import os, sys, time
sys.path.insert(0, {root!r})
from sot_paddle.guard import command
@command("tool")
def main(arguments):
    {body}
    return {status}
if __name__ == "__main__":
    sys.exit(main())
"""


def _started(body: str, status: int = 0, shell: str = "", **options) -> subprocess.Popen:
    code = PROGRAM.format(root=str(ROOT), body=body, status=status)
    words = [sys.executable, "-c", code]
    if shell:
        words = ["bash", "-c", f'"$@" {shell}', "-", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        words,
        **pipes,
        start_new_session=True,
        # a job in the background ignores Ctrl-C, and its children would
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


PRINTS = "print('x' * 99999, flush=True); os.system('echo child'); print('end', file=sys.stderr)"


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("shell", ["| true", "2>&1 | true", ">&-", ">&- 2>&-", "| head -c 3"])
def test_a_reader_that_goes_changes_nothing(shell, status, tmp_path):
    mark = tmp_path / "done"
    body = f"{PRINTS}; open({str(mark)!r}, 'w').close()"
    process = _started(body, status, f"{shell}; exit ${{PIPESTATUS[0]}}")
    out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert (out, err) in (("", "end\n"), ("", ""), ("xxx", "end\n"))
    assert mark.exists()


def test_a_verdict_that_cannot_be_written_is_none():
    process = _started("print('verdict')", shell="> /dev/full")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert tool_runs.only_line(err).startswith("tool: [Errno 28] No space left on device")


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated by SIGTERM")],
)
def test_signals_end_a_command_with_their_status(number, status, said):
    process = _started("print('begun', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == status
    assert tool_runs.only_line(err) == f"tool: {said}; run the same command again"


IMPORTED = """
import ctypes, time
ctypes.CDLL(None).signal({number}, 0)  # as Paddle's import: Python's own answer is forgotten
try:
    import paddle_is_told  # no such module
except ImportError:
    pass
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:  # as some packages do
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        *(("convert_weights", "numpy"), ("align", "numpy")),
        *(("train_glue", "paddle"), ("model_table", "paddle")),
    ],
)
@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated by SIGTERM")],
)
def test_signals_end_a_command_while_it_imports(tool, name, number, status, said, tmp_path):
    forgotten = number if name == "paddle" else signal.SIGUSR1
    place = tmp_path / name
    place.mkdir()
    (place / "__init__.py").write_text(IMPORTED.format(number=int(forgotten)), "utf-8")
    start = ["-m", "align", "--list"] if tool == "align" else [str(ROOT / "tools" / f"{tool}.py")]
    process = subprocess.Popen(
        [sys.executable, *start],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == status, err
    begin = "align: error" if tool == "align" else tool
    assert tool_runs.only_line(err) == f"{begin}: {said}; run the same command again"


def test_a_forked_process_ends_by_sigterm_as_always():
    """A pool ends its workers so: no line of ours, nothing is cleaned up twice."""
    body = """
    child = os.fork()
    if not child:
        time.sleep(60)
    os.kill(child, 15)
    return os.waitpid(child, 0)[1]"""
    process = _started(body)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (15, "")


SPEC = """
import os, sys, time
class Mine(Exception): pass
class MineToo(BaseException): pass
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
        ("fail(Mine('own'))", 2, "Mine at pair.py:6: own; --traceback"),
        ("fail(MineToo('own'))", 2, "MineToo at pair.py:6: own; --traceback"),
        ("fail(TimeoutError('late'))", 2, "TimeoutError: late"),
        ("fail(KeyboardInterrupt)", 130, "interrupted"),
        ("sys.exit(0)", 2, "sys.exit(0) before a verdict"),
    ],
)
def test_what_a_spec_raises_is_one_line(line, status, said, place, tmp_path, capsys):
    path = tmp_path / "pair.py"
    path.write_text(SPEC.format(**({"inputs": "pass", "end": ""} | {place: line})), "utf-8")
    for start in (["--spec", path], ["dump", "--side", "torch", "--out", "d", "--spec", path]):
        assert cli.main([*map(str, start)]) == status
        assert said in tool_runs.only_line(capsys.readouterr().err)


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
    assert cli.main(["--spec", str(path)]) == 2
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
    done = _align("--spec", path, "--timeout", 0.03)
    assert (done.returncode, done.stdout) == (2, "")
    line = tool_runs.only_line(done.stderr)
    assert line.endswith("no verdict within 0.03 minutes; --timeout MINUTES allows more")


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e999", "soon", ""])
def test_a_limit_is_minutes(given, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--spec", "x.py", "--timeout", given])
    assert end.value.code == 2
    assert "expected minutes, a number above 0" in tool_runs.only_line(capsys.readouterr().err)


def test_a_result_never_takes_the_place_of_a_device(tmp_path):
    """Renamed over by root, /dev/full would be a file for every program of the machine."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileExistsError, match="not a regular file: '.*pipe'"):
        write_atomically(tmp_path / "pipe", b"x")
    assert (tmp_path / "pipe").is_fifo()
    assert len(list(tmp_path.iterdir())) == 1
