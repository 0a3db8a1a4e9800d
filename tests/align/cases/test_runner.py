"""Results; and faults planted by hand in the product: exit status 1, the place named."""

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from align.cases import job_sharing, runner
from align.cases.context import Context
from align.cases.jobs import jobs
from align.cases.kinds.case_kinds import DTYPES, ModelCase, PairValuesCase, Recipe, ValueCase
from align.cases.sides import paddle_side
from align.cases.tables.cases import CASES
from align.cases.values import loss_values
from align.frameworks import on_paddle
from align.record.results import STEPS
from align.report.report import console
from sot_paddle.backbones import paddlenlp_encoder
from sot_paddle.heads.pooling import TokenBatchNorm
from sot_paddle.train import schedule
from tests.align.small_values import loss_case, metric_case, rates_case
from tests.align.tiny_bert import OPTIONS

ROOT = Path(__file__).resolve().parents[3]
BRIEF = Recipe(steps=6, warmup_steps=2, total_steps=8)
QK = ModelCase(
    "qk", options=OPTIONS, recipe=BRIEF, steps=("forward", "backward", "optimizer", "training")
)


def verdict(case, step, dtype="float64"):
    return runner.run([(case, step, dtype)], Context())


def test_every_step_of_every_case_has_a_runner():
    assert all(runner.runner_of(case, step) for case in CASES for step in case.steps)
    of_models = [c for c in CASES if not isinstance(c, ValueCase | PairValuesCase)]
    assert {(step, type(case)) for case in of_models for step in case.steps} == set(runner.RUNNERS)


def test_every_case_names_values_that_take_its_options():
    for case in CASES:
        if isinstance(case, ValueCase | PairValuesCase):
            module, _, name = case.values.partition(":")
            held = importlib.import_module(f"align.cases.values.{module}")
            for step in case.steps:
                inspect.signature(getattr(held, name or step)).bind(None, **case.given)


def test_a_run_times_its_results_and_reports_each_as_it_comes():
    seen = []
    todo = [(loss_case("a"), "loss", "float64"), (metric_case("b"), "metric", None)]
    report = runner.run(todo, Context(), seen.append)
    assert seen == report.results
    assert [result.case for result in seen] == ["a", "b"]
    assert all(result.seconds > 0 for result in seen)
    assert report.exit_code == 0
    assert report.environment["packages"]["torch"]
    assert report.environment["paddle_device"]


def test_worker_processes_find_what_this_process_finds():
    """Every number and every control, and what the report says of the machine."""
    todo = list(jobs([metric_case(), loss_case()], STEPS, DTYPES))
    runs = []
    for run in (lambda *rest: job_sharing.run(*rest, lambda result: None, 2), runner.run):
        context = Context()
        report = run(todo, context)
        assert report.exit_code == 0
        assert report.environment["paddle_device"]
        assert report.environment["torch_threads"] >= 1
        assert all(r.seconds > 0 for r in report.results)
        values = [[(c.name, c.worst) for c in r.comparisons] for r in report.results]
        controls = [[(c.name, c.detail) for c in r.controls] for r in report.results]
        runs.append((values, controls, {k: list(v[0]) for k, v in context.classic.items()}))
    assert runs[0] == runs[1]
    assert set(runs[0][2]) == {"loss_align", "metric_align"}


def test_an_empty_run_proves_nothing():
    assert runner.run([], Context()).exit_code == 1


def test_a_schedule_shifted_by_one_step_is_caught(monkeypatch):
    linear = schedule.linear_factor
    shifted = {"linear": lambda step, warm_up, total: linear(step + 1, warm_up, total)}
    monkeypatch.setattr(schedule, "SCHEDULES", shifted)
    report = verdict(rates_case(), "learning_rate", None)
    assert report.exit_code == 1
    assert "first divergence: learning rates: " in console(report)


def test_a_wrong_loss_is_caught(monkeypatch):
    right = loss_values.classification_loss
    monkeypatch.setattr(
        loss_values,
        "classification_loss",
        lambda logits, labels: right(logits, labels) * (1 + 1e-9),
    )
    report = verdict(loss_case(), "loss")
    assert report.exit_code == 1
    assert "first divergence: loss: " in console(report)


def test_a_trained_padding_row_is_caught(monkeypatch):
    monkeypatch.setattr(paddlenlp_encoder, "zero_row_hook", lambda row: lambda gradient: gradient)
    report = verdict(QK, "backward")
    assert report.exit_code == 1
    (failed,) = report.results[0].failures
    assert failed.name == "bert.embeddings.word_embeddings.weight"
    assert failed.position[0] == 0


def test_biased_running_variance_is_caught(monkeypatch):
    right = TokenBatchNorm._update_running

    def biased(layer, mean, var, count):
        right(layer, mean, var * (count - 1) / count, count)

    monkeypatch.setattr(TokenBatchNorm, "_update_running", biased)
    report = verdict(QK, "forward")
    assert {c.name for c in report.results[0].failures} == {
        "head.pooling.q_norm.running_var",
        "head.pooling.k_norm.running_var",
    }
    assert report.exit_code == 1


def test_a_wrong_decayed_set_is_named(monkeypatch):
    everything = {"text": lambda model: {n for n, _ in model.named_parameters()}}
    monkeypatch.setattr(paddle_side, "_DECAY_RULES", everything)
    report = verdict(QK, "optimizer")
    assert report.exit_code == 1
    names = str([c.name for c in report.results[0].failures])
    assert "head.word_fc.bias" in names
    assert "bert.embeddings.layer_norm.weight" in names
    assert "head.word_fc.weight" not in names


def test_a_transposed_square_weight_is_caught(monkeypatch):
    """As a conversion table without the transposition would leave it: it loads without a word."""
    load = on_paddle.load

    def transposed(model, state):
        name = "bert.encoder.layers.0.self_attn.k_proj.weight"
        load(model, {**state, name: state[name].T} if name in state else state)

    monkeypatch.setattr(on_paddle, "load", transposed)
    report = verdict(QK, "forward")
    assert report.exit_code == 1
    assert report.results[0].first_failure.name == "layers.0"


EDITS = {
    "epsilon": (
        "sot_paddle/backbones/paddlenlp_encoder.py",
        "layer._epsilon = config.layer_norm_eps",
        "layer._epsilon = 1e-5",
        ("head_gap_sum_fc", "forward"),
        "first divergence: embeddings: ",
    ),
    "W and R": (
        "sot_paddle/heads/pooling.py",
        "w, r = parts.reshape(",
        "r, w = parts.reshape(",
        ("head_mgcrp_sum_fc", "forward"),
        "first divergence: head.covariance: ",
    ),
    "warm-up": (
        "sot_paddle/train/schedule.py",
        "return step / max(1.0, warmup_steps) if",
        "return (step + 1) / max(1.0, warmup_steps) if",
        ("lr_linear_warmup", "learning_rate"),
        "first divergence: learning rates: ",
    ),
}


@pytest.fixture(scope="module")
def edited_runs(tmp_path_factory):
    """The command on copies of the packages, each with one line edited; all run at once."""
    processes = {}
    for fault, (path, old, new, (case, step), _) in EDITS.items():
        copy = tmp_path_factory.mktemp("copy")
        for package in ("align", "sot_paddle", "sot_torch_ref"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, copy / package, ignore=ignored)
        text = (copy / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} no longer holds one {old!r}"
        (copy / path).write_text(text.replace(old, new), encoding="utf-8")
        processes[fault] = subprocess.Popen(
            [sys.executable, "-m", "align", "--dtype", "float64", "--case", case, "--step", step],
            cwd=copy,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    yield {fault: (*p.communicate(timeout=200), p.returncode) for fault, p in processes.items()}
    for process in processes.values():
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("fault", EDITS)
def test_a_fault_edited_into_the_source_exits_with_1_and_is_located(edited_runs, fault):
    out, messages, status = edited_runs[fault]
    assert status == 1, messages[-2000:]
    assert out.startswith("alignment: FAIL  0/1 results")
    assert EDITS[fault][-1] in out
    assert "Traceback" not in messages
