"""Every suite of the benchmark runs at toy size and reports; no time is ever judged."""

import contextlib
import io
import json
import math
import os
import types

import pytest

from tools.benchmarks import reporting, step_rows, suites, turns
from tools.benchmarks.operator_profile import REST, _add_own_times, shares_of
from tools.benchmarks.reporting import Settings, run_suites
from tools.benchmarks.scaling_plots import write_plots
from tools.benchmarks.serving import Server
from tools.benchmarks.suites import SUITES
from tools.benchmarks.timed_steps import _products, products_of
from tools.benchmarks.workloads import HEADS, TOY_HEADS, TOY_MODELS, TOY_SCALING, Workload

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAIR = """
import numpy as np
LOSS, OPTIMIZER, STEPS, DTYPE = "mse", "sgd", 1, "float64"

def torch_module():
    import torch
    return torch.nn.Linear(4, 3)

def paddle_layer():
    from paddle import nn
    return nn.Linear(4, 3)

def inputs():
    return np.random.default_rng(0).normal(size=(5, 4))

def labels():
    return np.zeros((5, 3))
"""


class InThisProcess(Server):
    """A side without a process of its own: for what is measured, not for how fast."""

    pid = os.getpid()

    def __init__(self, side, threads=1, clock="wall"):
        super().__init__(side, clock)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def ask(self, *request):
        return json.loads(json.dumps(self.answer(json.loads(json.dumps(request)))))


@contextlib.contextmanager
def in_this_process(sides, threads, clock):
    yield {side: InThisProcess(side, threads, clock) for side in sides}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A toy run of every suite: (lines, content of its JSON file, folder)."""
    folder = tmp_path_factory.mktemp("bench")
    pair, out = folder / "pair.py", folder / "new" / "bench.json"
    pair.write_text(PAIR, encoding="utf-8")
    how = {"suite": tuple(SUITES), "also": ("bfloat16",), "plots": str(folder)}
    settings = Settings(1, repeats=1, quick=True, json=str(out), pair=pair, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "PAUSE", 0)
        patch.setattr(step_rows, "PAUSE", 0)
        patch.setattr(reporting, "workers", in_this_process)
        patch.setattr(suites, "Worker", InThisProcess)
        lines = run_suites(settings)
    return lines, json.loads(out.read_text(encoding="utf-8")), folder


def rows_of(ran, suite):
    return [row for row in ran[1]["results"] if row["suite"] == suite]


def test_every_suite_has_a_section(ran):
    assert [line[:-1] for line in ran[0] if line[:-1] in SUITES] == list(SUITES)


@pytest.mark.parametrize("suite", ["train", "infer", "head", "scaling"])
def test_steps_are_timed_on_every_side_beside_their_floor(ran, suite):
    toy = {"head": TOY_HEADS, "scaling": TOY_SCALING["tokens of a row"]}.get(suite, TOY_MODELS)
    modes = {"train": ["train"], "infer": ["inference"], "head": ["train", "inference"]}
    modes = modes.get(suite, ["inference", "train"])
    rows = rows_of(ran, suite)
    assert [(r["workload"], r["mode"]) for r in rows] == [(w.name, m) for w in toy for m in modes]
    sides = {"paddle", "pytorch", "bfloat16"}
    for row in rows:
        assert set(row["median_s"]) == set(row["times_floor"]) == set(row["peak_mib"]) == sides
        assert set(row["ratio"]) == sides - {"pytorch"}
        numbers = [*row["median_s"].values(), *row["times_floor"].values(), row["floor_s"]]
        numbers += [*row["peak_mib"].values(), *row["ratio"].values()]
        assert all(math.isfinite(number) and number > 0 for number in numbers)
        assert row["times_floor"]["paddle"] == row["median_s"]["paddle"] / row["floor_s"]


def test_a_run_says_what_it_ran_on(ran):
    assert ran[1]["processor"] == turns.processor_line()
    assert set(ran[1]["environment"]) == {"paddle", "pytorch", "bfloat16"}


def test_each_side_runs_its_own_framework_and_settings(monkeypatch):
    monkeypatch.delenv("SOT_PADDLE_TUNE", raising=False)
    with turns.workers(["paddle", "pytorch"], 1) as sides:
        paddle, torch = (sides[side].ask("stamp") for side in ("paddle", "pytorch"))
        with pytest.raises(ValueError, match="the pytorch side cannot measure step unknown train"):
            sides["pytorch"].ask("step", Workload("unknown", "nothing", 1, 8).to_json(), "train")
    assert torch == {"framework": torch["framework"], "threads": 1}
    assert paddle["frameworks_loaded"] == ["paddle"]
    assert paddle["tuning"]["OMP_NUM_THREADS"].startswith("1")
    assert paddle["tuning"]["FLAGS_use_stride_kernel"].startswith("0")
    assert "native_operators" not in paddle  # no step has asked for them yet


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


def test_the_text_pipeline_is_measured(ran):
    (row,) = rows_of(ran, "data")
    assert row["sentences"] == 3000
    assert set(row["seconds"]) == {"one thread", "all threads", "cached"}
    assert 0 < row["loader_share"] < 1
    assert row["batches"] == 750
    assert set(row["epoch_s"]) == {"fixed", "bucketed"}
    epochs = row["epoch_s"]
    assert row["fixed_over_bucketed"] == epochs["fixed"]["paddle"] / epochs["bucketed"]["paddle"]


def test_the_conversion_is_measured(ran):
    (row,) = rows_of(ran, "convert")
    assert list(row["seconds"]) == ["copy", "convert", "convert back"]
    assert row["speed_of_copying"]["copy"] == 1
    assert 0 < row["largest_mib"] < row["file_mib"] < 2


def test_the_comparison_is_measured(ran):
    (row,) = rows_of(ran, "align")
    assert row["verdict"].startswith("PASS")
    assert row["seconds"]["forward float64"] > 0


def test_the_operators_of_a_step_add_up(ran):
    train, inference = rows_of(ran, "profile")
    assert (train["mode"], inference["mode"]) == ("train", "inference")
    for row in (train, inference):
        assert sum(found["share"] for found in row["operators"]) == pytest.approx(1)
        assert row["operators"][-1]["operator"] == REST
    calls = {found["operator"]: found["calls"] for found in train["operators"]}
    products = 8  # q, k, v and output, two of the feed-forward part, pooler and classifier
    assert (calls["matmul"], calls["MatmulGradNode"]) == (products, products)
    assert "MatmulGradNode" not in {found["operator"] for found in inference["operators"]}


def test_an_operator_has_its_own_time_and_the_mean_of_the_steps():
    def node(name, kind, start, end, *inner):
        return types.SimpleNamespace(
            name=name, type=f"Type.{kind}", start_ns=start, end_ns=end, children_node=inner
        )

    launch = node("matmul kernel launch", "OperatorInner", 4, 8)
    product = node("matmul dygraph", "Operator", 3, 9, launch)
    other = node("matmul dygraph", "Operator", 10, 12)
    layer = node("Linear", "Forward", 2, 13, product, other)
    calls = {REST: [0]}
    _add_own_times(node("step", "ProfileStep", 0, 20, layer), calls, (REST, 0))
    assert calls == {REST: [9], "layer Linear": [3], "matmul": [6, 2]}
    other = {REST: [8], "layer Linear": [5], "matmul": [4, 8], "tanh": [0]}
    rows = shares_of([calls, other])
    assert [(r["operator"], r["calls"], round(1e9 * r["seconds"])) for r in rows] == [
        *(("matmul", 2, 10), ("layer Linear", 1, 4), (REST, None, 8))
    ]
    assert [r["share"] for r in rows] == [20 / 45, 8 / 45, 17 / 45]


def test_the_plots_are_pictures(ran, tmp_path):
    for name in ("scaling_seconds.png", "scaling_memory.png"):
        assert (ran[2] / name).read_bytes().startswith(b"\x89PNG")
    unknown = [{**r, "peak_mib": dict.fromkeys(r["median_s"])} for r in rows_of(ran, "scaling")]
    assert [path.name for path in write_plots(tmp_path, unknown)] == ["scaling_seconds.png"]


def test_the_products_of_a_step_are_the_ones_of_the_mathematics():
    """A head of H heads: a product for the q and k of all heads, one of covariances per head."""
    head = TOY_HEADS[0]
    b, n, c = head.batch, head.length, head.channels
    h, d = head.options["head_num_heads"], head.options["wr_dim"]
    found = dict(products_of(head, "inference"))
    work = sum(number * count * m * k * w for (count, m, k, w), number in found.items())
    projections, covariances, classifier = (
        b * n * c * 2 * h * d,
        b * h * n * d * d,
        b * h * d * d * 2,
    )
    assert (
        projections + covariances + classifier
        <= work
        <= 1.1 * (projections + covariances + classifier)
    )


def test_a_product_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="cannot count _scaled_dot_product_attention"):
        _products("_scaled_dot_product_attention", (), None)


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


def test_the_work_of_this_process_is_no_work_of_others():
    load = turns.OtherLoad([])
    busy, ours, at = load._began
    assert load._pids[0] > 0
    assert busy > ours > 0 < at


def test_an_unknown_side_is_refused():
    with pytest.raises(ValueError, match="unknown side 'jax'"), turns.workers(["jax"], 1):
        pass


def test_padded_rows_are_masked():
    rows = TOY_MODELS[0]
    assert rows.inputs()["attention_mask"].sum(axis=1).tolist() == list(rows.rows)
    assert "labels" not in HEADS[0].inputs()
