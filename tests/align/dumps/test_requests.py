"""What a pair may ask for besides its passes, and dumps that know the other side's names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from align.commands import dump_comparing
from align.record.files.dump_reading import Dump
from tests.align.dumps.guarded_commands import judged, main_compare, main_dump

FLAT = """
import numpy as np

NAME, SHAKE, DTYPE, LOSS = "flat", False, "float64", "mse"
RNG = np.random.default_rng(3)
WEIGHT, BIAS = RNG.normal(size=(4, 4)), RNG.normal(size=4)
WRONG = False


def torch_module():
    import torch

    layer = torch.nn.Linear(4, 4)
    layer.load_state_dict({"weight": torch.tensor(WEIGHT), "bias": torch.tensor(BIAS)})
    return torch.nn.Sequential(layer, torch.nn.ReLU())


def paddle_layer():
    import paddle

    layer = paddle.nn.Linear(4, 4)
    layer.weight.set_value(WEIGHT if WRONG else WEIGHT.T.copy())
    layer.bias.set_value(BIAS)
    return paddle.nn.Sequential(layer, paddle.nn.ReLU())


def inputs():
    return np.random.default_rng(0).normal(size=(5, 4))


def labels():
    return np.ones((5, 4))

"""


def run(folder: Path, side: str, name: str, *options: str, changes=()) -> Path:
    """Dump a side of the flat pair with the command."""
    text = FLAT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    spec = folder / f"{name}.py"
    spec.write_text(text)
    arguments = ["--side", side, "--spec", str(spec), "--out", str(folder / name), *options]
    assert main_dump(arguments) == 0
    return folder / name


@pytest.fixture(scope="module")
def flat(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("flat")


@pytest.fixture(scope="module")
def flat_torch(flat: Path) -> Path:
    return run(flat, "torch", "t")


def test_weights_that_the_user_converted_pass(flat, flat_torch, capsys) -> None:
    own = run(flat, "paddle", "own")
    assert main_compare([str(flat_torch), str(own)]) == 0
    said = capsys.readouterr().out
    assert "PASS" in said
    assert "ran on weights of its own" in said
    wrong = run(flat, "paddle", "own_wrong", changes=[("WRONG = False", "WRONG = True")])
    outcome = judged(Dump(flat_torch), Dump(wrong))
    assert (outcome.root.step, outcome.root.place) == ("weights", "0.weight")
    assert "transpose" in outcome.root.cause
    assert [result.step for result in outcome.report.results] == ["weights"]


def test_a_draft_is_written_when_names_do_not_match(flat, flat_torch, tmp_path, capsys) -> None:
    changes = [
        (
            "return paddle.nn.Sequential(layer, paddle.nn.ReLU())",
            'return paddle.nn.Sequential(("first", layer), ("act", paddle.nn.ReLU()))',
        )
    ]
    own = run(flat, "paddle", "renamed", changes=changes)
    out = tmp_path / "report"
    assert main_compare([str(flat_torch), str(own), "--out", str(out)]) == 2
    assert "a draft of the table is in" in capsys.readouterr().err
    draft = json.loads((out / "weights_draft.json").read_text())
    draft["map"] = {"0": "first"}
    draft["ignore_paddle"] = {}
    table = tmp_path / "table.json"
    table.write_text(json.dumps(draft))
    assert main_compare([str(flat_torch), str(own), "--table", str(table)]) == 0


def test_norms_of_ones_own_are_followed_against_the_other_dump(make, torch_dump) -> None:
    """A layer norm written by hand in Paddle holds its epsilon in float64, unlike Paddle's own."""
    own = ("self.norm = nn.LayerNorm(6, epsilon=EPSILON)", "self.norm = Norm()")
    written = (
        "    class Net(nn.Layer):",
        "    class Norm(nn.Layer):\n"
        "        def __init__(self):\n"
        "            super().__init__()\n"
        "            self.weight = self.create_parameter([6])\n"
        "            self.bias = self.create_parameter([6], is_bias=True)\n\n"
        "        def forward(self, x):\n"
        "            y = x - x.mean(-1, keepdim=True)\n"
        "            y = y / ((y * y).mean(-1, keepdim=True) + EPSILON).sqrt()\n"
        "            return y * self.weight + self.bias\n\n"
        "    class Net(nn.Layer):",
    )
    few = ("SHAKE = True", 'SHAKE, DTYPE = True, "float64"')
    names = make("paddle", "norm_names", own, written, few, names_only=True)
    with pytest.raises(ValueError, match="holds names only"):
        dump_comparing.common(torch_dump, names)
    plain = make("torch", "norm_plain", few)
    assert plain.meta.norms["norm"] is True
    port = make("paddle", "norm_port", own, written, few, other=plain)
    notes = judged(plain, port).notes
    assert any("--against" in note and "norm" in note for note in notes)
    against = make("torch", "norm_against", few, other=names)
    assert against.meta.norms == {"norm": False, "bn": True}
    port = make("paddle", "norm_again", own, written, few, other=against)
    right = judged(against, port)
    assert right.passed, str(right)
    assert not any("--against" in note for note in right.notes)


def test_the_example_of_the_documentation(tmp_path, capsys) -> None:
    examples = Path(__file__).resolve().parents[3] / "docs" / "examples"
    spec, faulty = (str(examples / f"apart_{name}.py") for name in ("pair", "faulty_pair"))
    torch, paddle, wrong = (
        str(tmp_path / name) for name in ("from_torch", "from_paddle", "faulty")
    )
    few = ["--dtype", "float64", "--out"]
    assert main_dump(["--side", "torch", "--spec", spec, *few, torch]) == 0
    given = ["--weights", torch, *few]
    assert main_dump(["--side", "paddle", "--spec", spec, *given, paddle]) == 0
    assert main_dump(["--side", "paddle", "--spec", faulty, *given, wrong]) == 0
    capsys.readouterr()
    assert main_compare([torch, paddle]) == 0
    assert "PASS: " in capsys.readouterr().out
    assert main_compare([torch, wrong]) == 1
    said = "FAIL: forward pass, at blocks.0.norm2: epsilon: Paddle's layer has 1e-05, PyTorch's "
    assert capsys.readouterr().out.startswith(f"{said}1e-06")
