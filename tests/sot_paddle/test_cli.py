"""Every command ends with the documented status, and says in one line why it failed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from align import cli as align_cli
from sot_paddle import __version__
from sot_paddle.cli import CommandParser, NonFinite, Terminated, command
from tests.tools import tool_runs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = sorted(path.stem for path in (ROOT / "tools").glob("[!_]*.py"))


def _deep(depth: int = 0) -> int:
    return _deep(depth + 1)


def _raise(error: BaseException, cause: BaseException | None = None) -> None:
    raise error from cause


ESCAPES = {
    "memory": (lambda: _raise(MemoryError()), 2, "MemoryError"),
    "depth": (_deep, 2, "maximum recursion depth exceeded"),
    "disk": (lambda: _raise(OSError(28, "No space left", "x")), 2, "[Errno 28] No space left: 'x'"),
    "value": (lambda: _raise(ValueError("a\nb")), 2, "a b"),
    "import": (lambda: __import__("no_such_package"), 2, "No module named 'no_such_package'"),
    "loss": (lambda: _raise(NonFinite("the loss is nan")), 2, "the loss is nan"),
    "interrupt": (lambda: _raise(KeyboardInterrupt()), 130, "interrupted; run the same command"),
    "interrupt of an import": (
        lambda: _raise(ImportError("initialization failed"), KeyboardInterrupt()),
        *(130, "interrupted; run the same command"),
    ),
    "terminate": (lambda: _raise(Terminated()), 143, "terminated by SIGTERM; run the same command"),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_what_escapes_is_one_line_and_a_status(name, capsys, monkeypatch):
    action, status, said = ESCAPES[name]
    main = command("tool")(lambda arguments: action())
    assert main([]) == status
    out, line = capsys.readouterr()
    assert out == ""
    assert tool_runs.only_line(line).startswith(f"tool: {said}")
    monkeypatch.setattr(sys, "argv", ["tool", "--traceback"])
    assert main() == status
    shown = capsys.readouterr().err
    assert shown.endswith(line)
    assert ("Traceback (most recent call last)" in shown) is (status == 2)


def test_a_defect_of_ours_shows_where_it_arose_and_is_no_verdict(capsys):
    assert command("tool")(lambda arguments: arguments[0])([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.endswith("tool: IndexError: list index out of range\n")


def test_options_are_written_out(capsys):
    parser = CommandParser(prog="tool")
    parser.add_argument("--name")
    assert vars(parser.parse_args(["--traceback", "--name", "x"])) == {"name": "x"}
    for flag in ("--trace", "--nam"):
        with pytest.raises(SystemExit) as end:
            parser.parse_args([flag, "x"])
        assert end.value.code == 2
        assert tool_runs.only_line(capsys.readouterr().err).startswith("tool: error: unrecogn")


COMMANDS = {
    **{f"tools/{name}.py": lambda name=name: tool_runs.load(name).main for name in TOOLS},
    "python -m align": lambda: align_cli.main,
    **{
        f"python -m align {name}": lambda name=name: lambda words: align_cli.main([name, *words])
        for name in ("spec", "dump", "compare")
    },
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        COMMANDS[name]()(["--help"])
    assert end.value.code == 0
    out, said = capsys.readouterr()
    assert "--traceback" in out
    assert "Traceback" not in said


@pytest.mark.parametrize("name", [name for name in COMMANDS if "align " not in name])
def test_every_command_says_its_version(name, capsys):
    with pytest.raises(SystemExit) as end:
        COMMANDS[name]()(["--version"])
    assert end.value.code == 0
    out, said = capsys.readouterr()
    assert (out.split()[1:], said) == ([PROJECT["version"]], "")
    assert PROJECT["version"] == __version__


PROGRAM = """
import sys, time
sys.path.insert(0, {root!r})
from sot_paddle.cli import command
from sot_paddle.runtime import quiet_imports
@command("tool")
def main(arguments):
    with quiet_imports():
        {imports}
    print("begun", flush=arguments == [])
    time.sleep(60 * (arguments == []))
sys.exit(main())
"""


def _started(*arguments: str, imports: str = "pass", **options) -> subprocess.Popen:
    code = PROGRAM.format(root=str(ROOT), imports=imports)
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options,
        # a job in the background ignores Ctrl-C, and its children would
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


SWALLOWS = """try:
            print("begun", flush=True)
            time.sleep(60)
        except BaseException:  # as some packages do
            time.sleep(60)"""


@pytest.mark.parametrize(
    ("imports", "number", "status", "said"),
    [
        ("pass", signal.SIGINT, 130, "tool: interrupted; run the same command again\n"),
        # PADDLE: importing it replaces the answer to SIGTERM
        ("import paddle", signal.SIGTERM, 143, "tool: terminated by SIGTERM; run the same comm"),
        (SWALLOWS, signal.SIGINT, 130, ""),
        (SWALLOWS, signal.SIGTERM, 143, ""),
    ],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C in an import", "SIGTERM in an import"],
)
def test_signals_end_a_command_with_their_status(imports, number, status, said):
    process = _started(imports=imports)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, line = process.communicate(timeout=20)
    assert process.returncode == status
    assert line.startswith(said)
    assert line.count("\n") == bool(said)


def test_a_result_that_cannot_be_written_is_none():
    with open("/dev/full", "w") as full:
        process = _started("at once", stdout=full)
    assert "tool: [Errno 28] No space left on device" in process.communicate(timeout=60)[1]
    assert process.returncode != 0
