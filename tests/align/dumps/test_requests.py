"""What a pair may ask for besides its passes, and dumps that know the other side's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from align.commands import dumps
from align.record.dump_files import Dump
from tests.align.dumps.guarded_commands import judged, main_compare, main_dump
from tests.align.small_pairs import steps_due

FLAT = """
import numpy as np

NAME, SHAKE, DTYPE, LOSS = "flat", False, "float64", "mse"
SCHEDULE_STEPS = 6
FIRST = 0


def torch_module():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


def paddle_layer():
    import paddle

    return paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.ReLU())


def inputs():
    return np.random.default_rng(0).normal(size=(5, 4))


def labels():
    return np.ones((5, 4))


def rates(first):
    return lambda steps: [1e-3 * 0.5 ** max(0, i - first) for i in range(steps)]


def distance(scale):
    return lambda output, labels: {"mae": scale * abs(output - labels).mean()}


METRIC = (distance(1), distance(1))
SCHEDULE = (rates(0), rates(FIRST))
"""


def test_metric_and_schedule_are_judged(tmp_path) -> None:
    def run(side: str, name: str, *options: str, changes=()) -> Dump:
        text = FLAT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        spec = tmp_path / f"{name}.py"
        spec.write_text(text)
        out = str(tmp_path / name)
        assert main_dump(["--side", side, "--spec", str(spec), "--out", out, *options]) == 0
        return Dump(tmp_path / name)

    torch = run("torch", "t")
    given = ("--weights", str(torch.path))
    right = judged(torch, run("paddle", "p", *given))
    assert right.passed, str(right)
    steps = [(result.step, result.dtype) for result in right.report.results]
    assert steps == steps_due("metric", "schedule_steps", dtypes=("float64",), live=False)
    changes = [("FIRST = 0", "FIRST = 1"), ("distance(1))", "distance(1.5))")]
    wrong = judged(torch, run("paddle", "q", *given, changes=changes))
    places = {one.step: one for one in wrong.findings}
    assert places["metric"].place == "metric mae"
    assert places["learning_rate"].place == "schedule"
    assert "1 step" in places["learning_rate"].cause


def test_a_draft_is_written_when_names_do_not_match(make, torch_dump, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="a draft of the table is in weights_draft.json"):
        make("paddle", "renamed", ('    "bn": "norm2",\n', ""), other=torch_dump)
    assert (tmp_path / "weights_draft.json").is_file()


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
    names = make("paddle", "norm_names", own, written, few)
    plain = make("torch", "norm_plain", few)
    assert plain.meta.norms["norm"] is True
    with pytest.raises(ValueError, match="was run on weights of its own"):
        dumps.pair_up(plain, names)
    port = make("paddle", "norm_port", own, written, few, other=plain)
    notes = judged(plain, port).notes
    assert any("--against" in note and "norm" in note for note in notes)
    against = make("torch", "norm_against", few, other=names)
    assert against.meta.norms == {"norm": False, "bn": True}
    port = make("paddle", "norm_again", own, written, few, other=against)
    right = judged(against, port)
    assert right.passed, str(right)
    assert not any("--against" in note for note in right.notes)


HEADER = 'NAME, LOSS, OPTIMIZER, STEPS = "tiny", "cross_entropy", "adamw", 2'
CLIPPED = """NAME, LOSS, STEPS, DTYPE, LIMIT = "tiny", "cross_entropy", 4, "float64", 0.1


def _clipped(model):
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    clip = torch.nn.utils.clip_grad_norm_
    return optimizer, None, lambda model: clip(model.parameters(), LIMIT)


def _paddle_clipped(model):
    import paddle

    clip, parameters = paddle.nn.ClipGradByGlobalNorm(LIMIT), model.parameters()
    return paddle.optimizer.Momentum(0.1, 0.9, parameters, weight_decay=0.1, grad_clip=clip)


OPTIMIZER = (_clipped, _paddle_clipped)
"""


def test_what_paddles_optimizers_hold_in_float32_is_allowed_for(make) -> None:
    """Momentum and decay, and a norm that clips without PyTorch's 1e-6."""
    torch = make("torch", "clipped_torch", (HEADER, CLIPPED))
    right = judged(torch, make("paddle", "clipped", (HEADER, CLIPPED), other=torch))
    assert right.passed, str(right)
    other = CLIPPED.replace('"float64", 0.1', '"float64", 0.1001')
    wrong = judged(torch, make("paddle", "clipped_more", (HEADER, other), other=torch))
    assert [finding.step for finding in wrong.findings] == ["training"]


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
