"""N processes against one: a real run in two, and every fault on emulated ones."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from paddle import nn

from align.commands import comparing, distributed_worker
from align.commands.spec import Files, read_spec, run_spec
from align.explain.distributed_causes import fit
from align.frameworks import on_paddle
from align.pair import launching, runs, slice_passes
from align.pair.any_pair import AnyPair, Setup
from align.record import batch_slices
from align.record.batch_slices import Shares
from align.record.recording import loss_of, run_model
from align.record.request import Request
from align.stages import distributed

pytestmark = pytest.mark.slow

SPEC = """
import numpy as np

LOSS, OPTIMIZER, STEPS, DTYPE = "cross_entropy", "adamw", 2, "float64"

def torch_module():
    import torch
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.GELU(), torch.nn.Linear(5, 3))

def paddle_layer():
    from paddle import nn
    return nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3))

def inputs():
    return (np.random.default_rng(0).normal(size=(6, 4)),)

def labels():
    return np.array([0, 1, 2, 0, 1, 2])

def batches():
    drawn = np.random.default_rng(1)
    return [(drawn.normal(size=(n, 4)), drawn.integers(0, 3, n)) for n in (6, 4)]
"""


DIES = """
def parallel(layer):
    import os, time
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        os.kill(os.getpid(), 9)
    time.sleep(60)
"""


def test_two_real_processes_agree_with_one(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SPEC, encoding="utf-8")
    result, divergences = distributed.distributed(path, read_spec(path), 2)
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert divergences == []
    names = {c.name for c in result.comparisons}
    assert {"weights of the processes", "gradient of 0.weight", "one process: 2.bias"} <= names
    assert result.stamps["ours"]["processes"] == 2
    assert len(result.series["loss"]["paddle"]) == 2


def test_a_process_that_is_killed_is_named(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SPEC + DIES, encoding="utf-8")
    with pytest.raises(ValueError, match=r"process 1 was killed by SIGKILL$"):
        distributed.distributed(path, read_spec(path), 2)


def pair_of(norm: bool = False, **given) -> AnyPair:
    theirs = [torch.nn.Linear(4, 5), torch.nn.Identity(), torch.nn.Linear(5, 3)]
    ours = [nn.Linear(4, 5), nn.Identity(), nn.Linear(5, 3)]
    if norm:
        theirs[1], ours[1] = torch.nn.BatchNorm1d(5), nn.BatchNorm1D(5)
    given = {
        "inputs": np.random.default_rng(0).normal(size=(6, 4)),
        "loss": "cross_entropy",
        "labels": np.array([0, 1, 2, 0, 1, 2]),
        "optimizer": "sgd",
        "steps": 1,
        **given,
    }
    request = Request(torch.nn.Sequential(*theirs), nn.Sequential(*ours), **given)
    return AnyPair(Setup(batch_slices.plan_of(request, "float64")), "float64")


def emulated(pair: AnyPair, fault: str = "") -> Shares:
    """What two processes leave after one step, computed in one."""
    slices = slice_passes.Slices(pair, 2)
    factors = {"summed": [1, 1], "alone": [1, 0], "twice": [0.25, 0.25]}.get(fault, [0.5, 0.5])
    gradients = dict(slices.weighted(factors).items())
    losses = []
    for index in range(2):
        plan = batch_slices.cut(pair.plan, 2, index)
        output, _ = run_model(on_paddle, pair.model, plan.cast("float64", "float64"))
        losses.append([float(loss_of(on_paddle, plan, output, "float64", "float64"))])
    model = pair.our_model(True)
    optimizer, _ = on_paddle.make_optimizer(pair.plan, model)
    for name, value in on_paddle.named(model).items():
        if name in gradients:
            value.grad = on_paddle.tensor(gradients[name])
    rate = on_paddle.rate(optimizer)
    optimizer.step()
    state = dict(runs.tensors(on_paddle, model).items())
    on_paddle.clear(model)
    apart = dict.fromkeys(gradients, 0.001 if fault in ("alone", "parted") else 0.0)
    return Shares(losses, [rate], apart, gradients, state, {"framework": "paddle"})


@pytest.mark.parametrize(
    ("fault", "given", "place", "cause"),
    [
        ("summed", {}, "0.weight", "2 x the mean over the processes: a division by n is missing"),
        (
            "twice",
            {},
            "0.weight",
            "0.5 x the mean over the processes: one division by n is too",
        ),
        ("alone", {}, "0.weight", "not synchronised, process 0 steps with that of its own slice"),
        ("parted", {}, "0.weight", "though the gradients of the first step are shared"),
        (
            "",
            {"labels": np.array([0, -100, -100, 0, 1, 2])},
            "loss",
            "ignored labels (-100): the processes count 1 and 3 labels",
        ),
        ("", {"norm": True}, "loss", "batch statistics of each process: layer 1 normalises"),
        (
            "",
            {
                "loss": (
                    lambda y, t: torch.nn.functional.cross_entropy(y, t, reduction="sum"),
                    lambda y, t: nn.functional.cross_entropy(y, t, reduction="sum"),
                )
            },
            "loss",
            "the loss is a sum over the samples: the mean over the processes is 1/2",
        ),
    ],
)
def test_a_fault_is_named(fault, given, place, cause) -> None:
    pair = pair_of(**given)
    result, divergences = distributed.compare(pair, emulated(pair, fault), 2)
    assert not result.passed
    assert result.problems == []
    assert divergences[0].step == "distributed"
    assert divergences[0].place == place
    assert cause in divergences[0].cause


def test_emulated_processes_without_a_fault_pass() -> None:
    pair = pair_of()
    result, divergences = distributed.compare(pair, emulated(pair), 2)
    assert result.passed, [c.reason for c in result.failures] + result.problems
    assert divergences == []


def test_a_batch_is_cut_in_order() -> None:
    pair = pair_of(inputs=(np.arange(12.0).reshape(6, 2), np.ones((3, 3)), 7))
    one = batch_slices.cut(pair.plan, 3, 1)
    np.testing.assert_array_equal(one.inputs[0], [[4.0, 5.0], [6.0, 7.0]])
    assert one.inputs[1].shape == (3, 3)
    assert one.inputs[2] == 7
    np.testing.assert_array_equal(one.labels, [2, 0])


@pytest.mark.parametrize(
    ("given", "processes", "message"),
    [
        ({"batches": None}, 4, "a batch of 6 cannot be cut equally among 4 processes"),
        ({}, 3, "a batch of 4 cannot be cut equally among 3 processes"),
        (
            {"batches": None, "labels": np.array([0, 1, 2])},
            2,
            "labels of shape \\(3,\\) for a batch of 6",
        ),
        ({"batches": None, "loss": None, "labels": None}, 2, "needs a loss that is a mean"),
        (
            {"batches": None, "steps": 0, "optimizer": None},
            2,
            "needs a loss .* optimizer= and steps=",
        ),
        ({}, 1, "--processes 1: expected at least 2"),
    ],
)
def test_what_cannot_be_distributed_is_refused(given, processes, message, tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SPEC, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        distributed.distributed(path, dataclasses.replace(read_spec(path), **given), processes)


@pytest.mark.parametrize(
    ("count", "message"), [(1, "--processes 1: expected at least 2"), (4, "6")]
)
def test_it_is_refused_before_the_pair_is_compared(count, message, tmp_path, monkeypatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SPEC, encoding="utf-8")
    monkeypatch.setattr(comparing, "compared", None)  # not called
    with pytest.raises(ValueError, match=message):
        run_spec(path, (), False, Files(None, None, None), count)


def test_a_process_whose_spec_gives_it_other_data_refuses(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(SPEC, encoding="utf-8")
    asked = {"spec": str(path), "dtype": "float64", "steps": 2, "seed": 0}
    told = batch_slices.told(batch_slices.plan_of(read_spec(path), "float64"))
    told["2.1.1"] = {**told["2.1.1"], "sha256": "another"}
    (tmp_path / "request.json").write_text(json.dumps({**asked, "fed": told}), encoding="utf-8")
    with pytest.raises(ValueError, match="draw them from a fixed seed"):
        distributed_worker.run(tmp_path)


def _process(folder: Path, code: str) -> list[str]:
    (folder / "log").mkdir()
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("logs", "message"),
    [
        (["align: error: ValueError: no such file", ""], "process 0: ValueError: no such file"),
        (["align: error: reset by peer", "half a"], "process 1 ended without a word; .* half a"),
        (["one\\ntwo", "Traceback\\nKilled"], "process 1 ended without a word; .* Killed"),
        (
            ["distributed_worker: process 1 was killed by SIGKILL; what was saved", "half a"],
            "process 1 was killed by SIGKILL$",
        ),
        ([], "the launcher's last line: unheard"),
    ],
)
def test_a_dead_process_is_one_line(logs, message, tmp_path) -> None:
    code = "import sys; print('unheard')\n"
    for index, text in enumerate(logs):
        code += f"open('log/workerlog.{index}', 'w').write('{text}')\n"
    with pytest.raises(ValueError, match=message) as caught:
        launching.run(_process(tmp_path, code + "sys.exit(3)"), tmp_path, 2)
    assert "status 3" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_run_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(launching, "TIMEOUT_S", 1)
    child = "import time; time.sleep(2); open('late', 'w')"
    code = "import subprocess, sys\n"  # PADDLE: its launcher gives each a session of its own
    code += f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    with pytest.raises(ValueError, match="did not end within 1 s"):
        launching.run(_process(tmp_path, code), tmp_path, 2)
    time.sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_a_factor_between_gradients_is_fitted() -> None:
    a = {"w": np.array([1.0, -2.0]), "b": np.array([3.0])}
    assert fit({n: 4 * v for n, v in a.items()}, a) == (4.0, 0.0)
    assert fit({"w": np.array([2.0, 1.0]), "b": np.zeros(1)}, a)[1] == 1.0
    assert fit({}, a) == (0.0, 1.0)
