"""The benchmark at toy size: what it runs and reports; no time is ever judged."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os

import pytest

from tests.tools import tool_runs
from tools.benchmarks import reporting, step_rows, turns
from tools.benchmarks.reporting import SUITES, Settings, run_suites
from tools.benchmarks.serving import Server
from tools.benchmarks.timed_steps import _products, products_of
from tools.benchmarks.workloads import MODELS, TOY_HEADS, Workload


class InThisProcess(Server):
    """A side without a process of its own: for what is measured, not for how fast."""

    pid = os.getpid()

    def ask(self, *request):
        return json.loads(json.dumps(self.answer(json.loads(json.dumps(request)))))


@contextlib.contextmanager
def in_this_process(sides, threads, clock):
    yield {side: InThisProcess(side, clock) for side in sides}


@pytest.mark.long
def test_steps_are_timed_on_every_side_beside_their_floor(tmp_path, monkeypatch):
    for module in (turns, step_rows):
        monkeypatch.setattr(module, "PAUSE", 0)
    monkeypatch.setattr(reporting, "workers", in_this_process)
    out = tmp_path / "new" / "bench.json"
    lines = run_suites(Settings(1, repeats=1, quick=True, json=str(out), also=("bfloat16",)))
    assert [line[:-1] for line in lines if line[:-1] in SUITES] == list(SUITES)
    found, sides = json.loads(out.read_text(encoding="utf-8")), {"paddle", "pytorch", "bfloat16"}
    assert found["processor"] == turns.processor_line()
    assert set(found["environment"]) == sides
    expected = [
        (suite, toy.name, mode)
        for suite, (modes, _, toys) in SUITES.items()
        for toy in toys
        for mode in modes
    ]
    assert [(r["suite"], r["workload"], r["mode"]) for r in found["results"]] == expected
    for row in found["results"]:
        assert set(row["median_s"]) == set(row["times_floor"]) == set(row["peak_mib"]) == sides
        numbers = [row["floor_s"], *row["peak_mib"].values(), *row["ratio"].values()]
        assert all(math.isfinite(number) and number > 0 for number in numbers)
        assert row["times_floor"]["paddle"] == row["median_s"]["paddle"] / row["floor_s"]


@pytest.mark.long
def test_each_side_runs_its_own_framework_and_settings(monkeypatch):
    for name in ("SOT_PADDLE_TUNE", "FLAGS_use_stride_kernel"):  # align sets the second one
        monkeypatch.delenv(name, raising=False)
    with turns.workers(["paddle", "pytorch"], 1) as sides:
        paddle, torch = (sides[side].ask("stamp") for side in ("paddle", "pytorch"))
        with pytest.raises(ValueError, match="the pytorch side cannot measure step unknown train"):
            sides["pytorch"].ask("step", Workload("unknown", "nothing", 1, 8).to_json(), "train")
    assert torch == {"framework": torch["framework"], "threads": 1}
    assert paddle["frameworks_loaded"] == ["paddle"]
    assert paddle["tuning"]["OMP_NUM_THREADS"].startswith("1")
    assert paddle["tuning"]["FLAGS_use_stride_kernel"].startswith("0")


@pytest.mark.parametrize(
    ("side", "tuned", "native", "threads"),
    [("paddle", None, None, "3"), ("pytorch", "0", None, "3"), ("installed", "0", "0", None)],
)
def test_a_side_gets_the_environment_of_its_kind(monkeypatch, side, tuned, native, threads):
    started = []
    monkeypatch.delenv("SOT_PADDLE_TUNE", raising=False)
    monkeypatch.setenv("FLAGS_use_stride_kernel", "0")  # as a tuned parent hands it down
    monkeypatch.setattr(turns.subprocess, "Popen", lambda *_, env, **__: started.append(env))
    monkeypatch.setattr(turns.tempfile, "TemporaryFile", lambda mode: io.StringIO())
    turns.Worker(side, 3)
    names = ("SOT_PADDLE_TUNE", "SOT_PADDLE_NATIVE", "OMP_NUM_THREADS")
    assert tuple(map(started[0].get, names)) == (tuned, native, threads)
    assert ("FLAGS_use_stride_kernel" in started[0]) is (side == "paddle")


def test_the_products_of_a_step_are_the_ones_of_the_mathematics():
    """A head of H heads: a product for the q and k of all heads, one of covariances per head."""
    head = TOY_HEADS[0]
    b, n, c = head.batch, head.length, head.channels
    h, d = head.options["head_num_heads"], head.options["wr_dim"]
    found = dict(products_of(head, "inference"))
    work = sum(number * count * m * k * w for (count, m, k, w), number in found.items())
    expected = b * n * c * 2 * h * d + b * h * n * d * d + b * h * d * d * 2
    assert expected <= work <= 1.1 * expected
    with pytest.raises(ValueError, match="cannot count _scaled_dot_product_attention"):
        _products("_scaled_dot_product_attention", (), None)


class Scripted:
    """A side whose steps take what it is told; `rehearsed` is what it was asked."""

    pid = os.getpid()

    def __init__(self, *seconds: float) -> None:
        self._seconds, self.rehearsed = iter(seconds), []

    def ask(self, what, *rest):
        if what == "products":
            return [["product", 2]]
        if what == "product":
            return [0.25]
        self.rehearsed.append(rest[2])
        return {"seconds": next(self._seconds), "peak_mib": 7.0}


@pytest.mark.parametrize(
    ("ours", "rehearsed"),
    [((1.5, 2.0, 1.8), [True, False, False]), ((1.5, 0.9, 1.8), [True, False, True])],
)
def test_long_steps_of_every_side_need_no_uncounted_one(monkeypatch, ours, rehearsed) -> None:
    monkeypatch.setattr(step_rows, "PAUSE", 0)
    sides = {"paddle": Scripted(*ours), "pytorch": Scripted(3.0, 3.0, 3.0)}
    row = step_rows.measured("train", MODELS[0], "train", sides, 3)
    assert [side.rehearsed for side in sides.values()] == [rehearsed, rehearsed]
    assert row.turns["paddle"] == list(ours)
    assert row.floor == 0.5
    assert row.ratio("paddle") == pytest.approx(sorted(ours)[1] / 3)


def test_a_row_reports_medians_ratios_and_marks():
    seconds = {"paddle": [1.0, 3.0, 2.0], "pytorch": [4.0, 4.0, 9.0]}
    row = step_rows.StepRow("train", "w", "train", seconds, 0.5)
    assert row.to_json()["median_s"] == {"paddle": 2.0, "pytorch": 4.0}
    assert row.to_json()["ratio"] == {"paddle": 0.5}
    assert row.disturbed  # 2 is far above 1
    assert step_rows.step_table([row])[1].split() == [
        *("w", "train", "500.0", "2000.0", "4.00", "0.50", "4000.0", "8.00", "*")
    ]
    calm = {side: [2.0, 2.0] for side in seconds}
    assert not step_rows.StepRow("train", "w", "train", calm, 0.5, {}, 0.05).disturbed
    assert step_rows.StepRow("train", "w", "train", calm, 0.5, {}, 0.5).disturbed


def test_the_work_of_others_is_told_from_ours(monkeypatch):
    clock = iter([(10.0, 4.0, 100.0), (17.0, 8.0, 102.0)])
    monkeypatch.setattr(turns.OtherLoad, "_now", lambda self: next(clock))
    assert turns.OtherLoad([]).share() == (7 - 4) / 2


@pytest.mark.parametrize(
    "arguments",
    [
        *([flag, value] for flag in ("--threads", "--repeats") for value in ("0", "-2", "many")),
        ["--suite", "sleep"],
        ["--also", "jax"],
        ["--json", "/tmp"],
    ],
)
def test_what_cannot_be_measured_is_refused(arguments, capsys):
    line = tool_runs.refused_here(capsys, "bench", *arguments)
    assert arguments[0] in line or "cannot write to /tmp: it is a folder" in line
