"""`python -m align spec`, and the example of docs/align_your_own.md."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from align import cli
from align.commands.spec import read_spec

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "distilbert_pair.py"
GOOD = """
import numpy as np

def torch_module():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))

def paddle_layer():
    from paddle import nn
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3, epsilon=EPSILON))

EPSILON = 1e-5
DTYPE = "float64"

def inputs():
    return np.random.default_rng(0).normal(size=(5, 4))
"""


@pytest.fixture
def example(tmp_path):
    """A copy of the example that may be changed, and is forgotten afterwards."""
    for name in ("distilbert_pair.py", "distilbert_paddle.py"):
        text = (EXAMPLE.parent / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = list(sys.path)
    sys.modules.pop("distilbert_paddle", None)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("distilbert_paddle", None)


def test_the_example_of_the_docs_passes(example, capsys) -> None:
    assert cli.main(["spec", str(example / "distilbert_pair.py")]) == 0
    assert capsys.readouterr().out.startswith("PASS")


def test_one_epsilon_changed_in_the_example_is_found_and_named(example, capsys) -> None:
    path = example / "distilbert_paddle.py"
    text = path.read_text(encoding="utf-8")
    line = "self.norm2 = nn.LayerNorm(dim, epsilon=eps)"
    assert line in text
    path.write_text(text.replace(line, "self.norm2 = nn.LayerNorm(dim)"), encoding="utf-8")
    options = ("--dtype", "float64", "--json", str(example / "report.json"))
    assert cli.main(["spec", str(example / "distilbert_pair.py"), *options]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert "layers.0.norm2" in first
    assert "epsilon: Paddle's layer has 1e-05, PyTorch's 1e-12" in first
    assert json.loads((example / "report.json").read_text())["verdict"] == "fail"


def test_the_batches_of_the_docs_run_with_the_example(example, capsys) -> None:
    """The code block of the docs, appended to the spec."""
    docs = (ROOT / "docs" / "align_your_own.md").read_text(encoding="utf-8")
    block = docs.partition('OPTIMIZER, STEPS = "adamw", 3')[2].partition("```")[0]
    path = example / "distilbert_pair.py"
    path.write_text(path.read_text(encoding="utf-8") + block, encoding="utf-8")
    report = example / "report.json"
    assert cli.main(["spec", str(path), "--dtype", "float64", "--json", str(report)]) == 0
    capsys.readouterr()
    (run,) = (r for r in json.loads(report.read_text())["results"] if r["step"] == "training")
    assert "batches[0] and batches[1] exchanged" in [control["name"] for control in run["controls"]]


def test_a_spec_is_run_in_this_process_too(tmp_path, capsys) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD, encoding="utf-8")
    assert cli.main(["spec", str(path), "--inject", "--out", str(tmp_path / "report")]) == 0
    assert "mine (inject)" in capsys.readouterr().out
    assert (tmp_path / "report" / "report.html").is_file()
    path.write_text(GOOD.replace("EPSILON = 1e-5", "EPSILON = 1e-3"), encoding="utf-8")
    assert cli.main(["spec", str(path)]) == 1


def test_a_spec_that_was_just_changed_is_read_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "mine.py"
    for seed in (4, 5):  # texts of the same length and of the same time
        path.write_text(f"{GOOD}\nSEED = {seed}\n", encoding="utf-8")
        os.utime(path, (0, 0))
        assert read_spec(path).seed == seed
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_table_lies_beside_the_spec_or_where_the_command_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()
    path = tmp_path / "specs" / "mine.py"
    path.write_text(f"{GOOD}\nWEIGHTS = 'weights_draft.json'\n", encoding="utf-8")
    assert read_spec(path).weights == Path("weights_draft.json")
    beside = path.with_name("weights_draft.json")
    beside.write_text("{}", encoding="utf-8")
    assert read_spec(path).weights == beside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("def torch_module(:", "line 1: SyntaxError"),
        ("x = 1", "torch_module, paddle_layer, inputs missing"),
        ("import not_installed_here", "line 1: ModuleNotFoundError"),
        (GOOD.replace("(4, 3)", "(4, 2)", 1), "weights: 2 mistakes"),
        (GOOD.replace("size=(5, 4)", "size=(5, 9)"), "(paddle"),
        (GOOD + "\nWEIGHTS = 'none.json'\n", "error: cannot read "),
        (GOOD + "\ndef labels():\n    return 1 / 0\n", "line 19: ZeroDivisionError"),
        (GOOD + "\ntorch_module = 5\n", "torch_module is not a function"),
        (GOOD + "\nSCHEDULE_STEP = 3\n", "SCHEDULE_STEP is no option, and nothing in the"),
        (GOOD + "\nSteps = 3\n", "did you mean steps? If it is your own, begin it with an"),
        (GOOD + "\ndef optimiser():\n    return 'sgd'\n", "did you mean optimizer?"),
        (GOOD + "\nA, (B, LOS) = 1, (2, 3)\n", "A is no option"),
    ],
)
def test_a_bad_spec_ends_in_one_line(text, message, tmp_path, capsys) -> None:
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert cli.main(["spec", str(path)]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


def test_an_error_of_the_framework_names_the_line_of_the_model_that_calls_it(tmp_path, capsys):
    helper = """
import paddle
class Layer(paddle.nn.Sequential):
    def forward(self, x):
        return paddle.cast(True, "float32")
def paddle_layer():
    return Layer(paddle.nn.Linear(4, 3), paddle.nn.LayerNorm(3))
"""
    (tmp_path / "port_that_raises.py").write_text(helper, encoding="utf-8")
    path = tmp_path / "bad.py"
    text = f"{GOOD}\nfrom port_that_raises import paddle_layer\n"
    path.write_text(text, encoding="utf-8")
    assert cli.main(["spec", str(path)]) == 2
    assert "port_that_raises.py:5)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spec", "x.py", "--quick"], "unrecognized arguments: --quick"),
        (["--inject"], "unrecognized arguments: --inject"),
        *[
            (["spec", "x.py", "--timeout", given], "expected minutes, a number above 0")
            for given in ("0", "nan", "soon")
        ],
    ],
)
def test_options_that_mean_nothing_are_refused(words, message, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


RAISING = """
import sys
class Mine(Exception): pass
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
        ("fail(Mine('own'))", 2, "Mine: own"),
        ("fail(KeyboardInterrupt)", 130, "interrupted"),
        ("sys.exit(0)", 2, "sys.exit(0) before a verdict"),
    ],
)
def test_what_a_spec_raises_is_one_line(line, status, said, place, tmp_path, capsys) -> None:
    path = tmp_path / "pair.py"
    lines = {"inputs": "pass", "end": ""} | {place: line}
    path.write_text(RAISING.format(**lines), encoding="utf-8")
    for start in (["spec", path], ["dump", "--side", "torch", "--out", "d", "--spec", path]):
        assert cli.main([*map(str, start)]) == status
        printed = capsys.readouterr().err.splitlines()
        assert said in printed[-1]
        assert len(printed) == 1 or "Mine" in said  # unknown to us: with its traceback


def test_every_option_of_a_spec_is_read_and_imported_from_beside_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "seed_beside.py").write_text("SEED = 6\n", encoding="utf-8")
    path = tmp_path / "mine.py"
    own = "from numpy import load as steps_\nBATCH, _STEP = 5, 1\n_SIZES = [BATCH]\n"
    own += "from seed_beside import SEED\n"
    path.write_text(f"{GOOD}\n{own}def weights():\n    return {{'0': '0'}}\n", "utf-8")
    given = read_spec(path)
    assert (given.seed, given.weights, given.name) == (6, {"0": "0"}, "mine")
    assert given.inputs[0].shape == (5, 4)
