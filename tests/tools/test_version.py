"""Every command says its version."""

from __future__ import annotations

import tomllib

import pytest

from align import cli
from sot_paddle import __version__
from tests.tools import tool_runs

PROJECT = tomllib.loads((tool_runs.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = sorted(path.stem for path in (tool_runs.ROOT / "tools").glob("[a-z]*.py"))


def test_there_is_one_version():
    assert PROJECT["version"] == __version__


@pytest.mark.parametrize("name", [*TOOLS, "align"])
def test_a_command_answers_with_it(capsys, name):
    run = cli.main if name == "align" else tool_runs.load(name).main
    with pytest.raises(SystemExit) as ended:
        run(["--version"])
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert (out.split(), err) == ([out.split()[0], __version__], "")
