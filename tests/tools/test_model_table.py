"""The table of the family: rows, choices, and refusals of one line with exit status 2."""

from __future__ import annotations

import pytest

from tests.tools import tool_runs


def rows(output: str) -> dict[str, list[str]]:
    lines = [line.split() for line in output.splitlines()]
    return {line[0]: line[1:] for line in lines if line and "," in line[1]}


@pytest.mark.long
def test_rows_beside_the_published_figures() -> None:
    done = tool_runs.run("model_table", "--models", "sot_tiny", "SoT_Small", "deit_small")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == {
        "sot_tiny": ["7,983,550", "7.7", "2.529", "2.5"],
        "sot_small": ["27,010,856", "26.9", "5.797", "5.8"],
        "deit_small": ["22,050,664", "22.1", "4.241", "4.6"],
    }
    assert "published: README" in done.stdout


def test_size_and_classes(capsys) -> None:
    flags = ["--models", "deit_tiny", "--img-size", "32", "--num-classes", "10"]
    assert not tool_runs.load("model_table").main(flags)
    cells = rows(capsys.readouterr().out)["deit_tiny"]
    assert cells[0] == f"{5_717_416 - (196 - 4) * 192 - 990 * 193:,}"
    block = 5 * (192 * 576 + 192 * 192 + 2 * 192 * 768)  # of 4 patches and the class token
    assert cells[2] == f"{(4 * 768 * 192 + 12 * block + 192 * 10) / 1e9:.3f}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--models", "sot_tny"], "unknown model 'sot_tny'; did you mean sot_tiny"),
        (["--models", "bert_base"], "bert_base is a text model; expected sot_tiny,"),
        (["--models", "sot_tiny", "--img-size", "100"], "must be a multiple of it, got 100"),
        (["--img-size", "0"], "img_size: Input should be greater than or equal to 1, got 0"),
        (["--moddels", "x"], "unrecognized arguments: --moddels x; did you mean --models?"),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys) -> None:
    line = tool_runs.refused_here(capsys, "model_table", *arguments)
    assert line.startswith("model_table: error: ")
    assert message in line
