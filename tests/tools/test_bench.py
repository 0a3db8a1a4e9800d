"""The benchmark's command line; what it measures is tested in tests/tools/benchmarks."""

import pytest

from tests.tools import tool_runs


@pytest.fixture(scope="module")
def tool():
    return tool_runs.load("bench")


def test_its_lines_are_printed(tool, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(tool, "run_suites", lambda settings: asked.append(settings) or ["a", "b"])
    assert tool.main(["--suite", "data", "head", "--quick", "--threads", "1"]) == 0
    assert capsys.readouterr().out == "a\nb\n"
    assert (asked[0].suite, asked[0].threads, asked[0].quick) == (["data", "head"], 1, True)


def test_the_usual_suites_are_those_of_steps(tool, monkeypatch):
    asked = []
    monkeypatch.setattr(tool, "run_suites", lambda settings: asked.append(settings) or [])
    assert tool.main([]) == 0
    assert asked[0].suite == ("train", "infer", "head")


def test_a_folder_in_place_of_the_json_file_is_refused_before_the_work(capsys, tmp_path):
    line = tool_runs.refused_here(capsys, "bench", "--quick", "--json", tmp_path)
    assert line.startswith(f"bench: error: cannot write to {tmp_path}")


@pytest.mark.parametrize(
    "arguments",
    [
        *([flag, value] for flag in ("--threads", "--repeats") for value in ("0", "-2", "many")),
        ["--suite", "sleep"],
        ["--also", "jax"],
        ["--plots", "folder"],
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, capsys):
    assert arguments[0] in tool_runs.refused_here(capsys, "bench", *arguments)
