"""Results; and faults planted by hand in the product: exit status 1, the place named."""

import importlib
import inspect
from pathlib import Path

import pytest

from align.cases import job_sharing, runner
from align.cases.context import Context
from align.cases.jobs import jobs
from align.cases.kinds.case_kinds import ModelCase, Recipe
from align.cases.tables.cases import CASES
from align.frameworks import on_paddle
from tests.align.tiny_bert import OPTIONS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
BRIEF = Recipe(steps=6, warmup_steps=2, total_steps=8)
QK = ModelCase(
    "qk", options=OPTIONS, recipe=BRIEF, steps=("forward", "backward", "optimizer", "training")
)


def verdict(case, step, dtype="float64"):
    return runner.run([(case, step, dtype)], Context())


def test_every_step_of_every_case_has_a_runner():
    assert all(runner.runner_of(case, step) for case in CASES for step in case.steps)
    of_models = [c for c in CASES if not c.values]
    assert {step for case in of_models for step in case.steps} == set(runner.RUNNERS)


def test_every_case_names_values_that_take_its_options():
    for case in CASES:
        if case.values:
            module, _, name = case.values.partition(":")
            held = importlib.import_module(f"align.cases.values.{module}")
            for step in case.steps:
                inspect.signature(getattr(held, name or step)).bind(None, **case.given)


def test_a_run_times_its_results_and_reports_each_as_it_comes():
    seen = []
    cases = [ModelCase(name, options=OPTIONS) for name in ("a", "b")]
    todo = [(case, "forward", "float64") for case in cases]
    report = runner.run(todo, Context(), seen.append)
    assert seen == report.results
    assert [result.case for result in seen] == ["a", "b"]
    assert all(result.seconds > 0 for result in seen)
    assert report.exit_code == 0
    assert report.environment["packages"]["torch"]
    assert report.environment["paddle_device"]


def test_worker_processes_find_what_this_process_finds():
    """Every comparison and every control, and what the report says of the machine."""
    todo = list(jobs([QK], ("forward", "backward"), ("float64",)))
    runs = []
    for run in (lambda *rest: job_sharing.run(*rest, lambda result: None, 2), runner.run):
        context = Context()
        report = run(todo, context)
        assert report.exit_code == 0
        assert report.environment["paddle_device"]
        assert report.environment["torch_threads"] >= 1
        assert all(r.seconds > 0 for r in report.results)
        values = [[(c.name, c.passed) for c in r.comparisons] for r in report.results]
        controls = [[(c.name, c.caught) for c in r.controls] for r in report.results]
        runs.append((values, controls, {k: list(v[0]) for k, v in context.classic.items()}))
    assert runs[0] == runs[1]
    assert set(runs[0][2]) == {"forward_align", "backward_align"}


def test_an_empty_run_proves_nothing():
    assert runner.run([], Context()).exit_code == 1


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
