"""A row through the steps: all of them pass and catch their faults, a wrong model is named."""

import dataclasses
import json
import logging
from pathlib import Path
from types import ModuleType

import pytest

from align import cli
from align.explain import calls
from align.pair.any_pair import Setup
from align.port import port_pair
from align.port.port_pair import PortPair, layer_findings, row_request, run_row
from align.port.port_run import PortRun, run
from align.port.row import Choices, PortRow, Recipe
from sot_paddle.features import record
from sot_paddle.heads import pooling
from sot_paddle.heads.power_norm import SvPN
from sot_torch_ref.heads import pooling as torch_pooling
from tests.align.small_pairs import steps_due
from tests.align.tiny_bert import OPTIONS

# small steps: Paddle's float32 powers of beta2 make its first updates 3e-6 to 7e-6 off
BRIEF = Recipe(
    steps=6, warmup_steps=2, total_steps=8, learning_rate=2e-4, weight_decay=0.1, ema_decay=0.9
)
MGCRP = {**OPTIONS, "pooling": "mgcrp", "head_num_heads": 3, "wr_dim": 4}
WORDS = {"pooling": "gap", "head_dropout": 0.0}
QK = PortRow("qk", options=OPTIONS, recipe=BRIEF)


def test_a_row_takes_every_step_in_every_precision_and_passes():
    finished, _ = run_row(QK, ("float64", "float32"), Choices())
    steps = steps_due("loss", "schedule_steps", "optimizer", "steps")
    assert [(result.step, result.dtype) for result in finished.results] == steps
    assert not any(result.problems + result.failures for result in finished.results)
    assert all(result.controls for result in finished.results)
    names = {one.name for result in finished.results for one in result.comparisons}
    assert {"average/head.word_fc.weight", "(model)[layers.0]", "losses"} <= names
    assert finished.findings == []


def test_a_row_may_end_behind_the_forward_pass():
    row = PortRow("short", options=OPTIONS, forward_only=True)
    report, checks = run_row(row, ("float64",), Choices())
    assert [result.step for result in report.results] == ["forward"]
    assert not logging.getLogger("sot_paddle").level  # the remarks of the product are said again
    assert set(checks) == {"forward_align"}


def test_a_wrong_part_of_a_head_fails_and_is_named_with_its_row(monkeypatch):
    monkeypatch.setattr(calls, "study", lambda *_: calls.LayerStudy())  # no cause is looked for
    right = SvPN.forward
    monkeypatch.setattr(SvPN, "forward", lambda self, x, *rest: right(self, x, *rest) * 1.001)
    outcome, _ = run_row(PortRow("wrong", options=MGCRP), ("float64",), Choices())
    forward = outcome.results[0]
    assert forward.first_failure.name == "(model)[head.power_norm]"
    assert outcome.findings[0].step == "forward"
    assert outcome.findings[0].place.startswith("wrong: ")


def _edited(module, before: str, after: str) -> ModuleType:
    """Return a module's names after an edit of its source; lines of code are told as its own."""
    edited = ModuleType(module.__name__)
    source = Path(module.__file__).read_text("utf-8")
    assert source.count(before) == 1
    exec(compile(source.replace(before, after), module.__file__, "exec"), edited.__dict__)
    return edited


def test_another_activation_in_the_head_is_named_with_its_line(monkeypatch, capsys, tmp_path):
    edited = _edited(pooling, "functional.relu(self.q_norm", "functional.gelu(self.q_norm")
    wrong_forward = edited.QKCrossCovariance.forward
    monkeypatch.setattr(pooling.QKCrossCovariance, "forward", wrong_forward)
    monkeypatch.setattr("align.port.port_run.ROWS", [PortRow("qk", options=OPTIONS)])
    file = tmp_path / "new" / "a.json"
    flags = ["--jobs", "0", "--case", "qk", "--dtype", "float64", "--json", str(file)]
    assert cli.main(flags) == 1
    top = "\n".join(capsys.readouterr().out.splitlines()[:10])
    assert "1. qk: head.pooling (forward, float64)" in top
    assert "cause: activation: Paddle computes GELU (erf), PyTorch ReLU" in top
    assert "sot_paddle/heads/pooling.py:" in top
    report = json.loads(file.read_text(encoding="utf-8"))
    assert (report["verdict"], report["findings"][0]["step"]) == ("fail", "forward")
    forward = report["results"][0]
    assert not forward["passed"]
    assert forward["worst"] > forward["tolerance"]


def test_a_number_that_paddle_holds_in_float32_is_put_right_as_for_a_users_pair(monkeypatch):
    for module, kind, before in (
        (pooling, "QKCrossCovariance", "nn.functional.relu(self.q_norm(q, mask))"),
        (torch_pooling, "MGCrPQK", "F.relu(self.q_norm(self.q_proj(image), mask))"),
    ):
        edited = _edited(module, before, f"(({before} + 1.0) ** (1 / 3))")
        monkeypatch.setattr(getattr(module, kind), "forward", getattr(edited, kind).forward)
    rows = [PortRow("qk", options=OPTIONS, recipe=BRIEF)]
    report, checks = run(PortRun(rows, ["float64", "float32"]), 0)
    assert (report.verdict, report.findings) == ("pass", [])
    (note,) = report.notes
    assert note.startswith("qk: float64 was compared with this put right: no fault of the port")
    assert "Paddle's pow loses digits" in note
    assert "qk/float64/logits" in checks["forward_align"][0]
    right = SvPN.forward
    monkeypatch.setattr(SvPN, "forward", lambda self, x, *rest: right(self, x, *rest) * 1.001)
    outcome, _ = run_row(rows[0], ("float64",), Choices())
    assert outcome.findings[0].place == "qk: head.pooling.norm"
    assert not any("no fault of the port" in finding.cause for finding in outcome.findings)


def test_a_pooling_that_records_a_tap_is_the_place_of_its_fault(monkeypatch):
    def paddle_mean(self, tokens, mask=None, taps=None):
        pooled = tokens.mean(axis=1) * 1.001
        record(taps, "head.mean", pooled)
        return pooled

    def torch_mean(self, tokens, mask):
        return tokens.mean(dim=1), {"mean": tokens.mean(dim=1)}

    monkeypatch.setattr(pooling.AveragePooling, "forward", paddle_mean)
    monkeypatch.setattr(torch_pooling.GAP, "forward", torch_mean)
    row = PortRow("gap", options={**OPTIONS, "pooling": "gap"})
    first = run_row(row, ("float64",), Choices())[0].findings[0]
    assert first.place == "gap: head.pooling"
    assert "test_port_steps.py" in first.source


@pytest.mark.parametrize(("forward_only", "passes"), [(True, 0), (False, 1)])
def test_layers_are_compared_as_far_as_their_row(monkeypatch, forward_only, passes):
    compared = []
    monkeypatch.setattr(port_pair, "take_backward", lambda *_, **__: compared.append(1))
    request = row_request(PortRow("qk", options=OPTIONS), ("float64",), Choices())
    assert layer_findings(request, forward_only) == []
    assert len(compared) == passes


def test_running_statistics_are_judged_as_exactly_as_taps():
    setup = Setup(row_request(PortRow("qk", options=OPTIONS), ("float64",), Choices()))
    pair, name = PortPair(setup, "float64", QK), "head.pooling.k_norm.running_var"
    state = {key: pair.ours.state[key] * (1 + 1e-8 * (key == name)) for key in pair.ours.state}
    moved = dataclasses.replace(pair.ours, state=state)
    assert [one.name for one in pair.taps(moved) if not one.passed] == [name]


def test_a_fault_that_is_not_caught_fails_the_result(monkeypatch):
    monkeypatch.setattr(
        PortPair, "planted", lambda self, step: iter([("none", "nowhere", self.ours)])
    )
    outcome, _ = run_row(PortRow("qk", options=OPTIONS), ("float64",), Choices())
    problems = {result.step: result.problems for result in outcome.results}
    assert problems["forward"] == ["control not caught: none (nothing failed (nowhere))"]
    assert problems["loss"] == []


@pytest.mark.long
def test_a_worker_process_computes_the_same_as_this_one():
    rows = [PortRow("qk", options=OPTIONS), PortRow("words", subject="words", options=WORDS)]
    reports = [run(PortRun(rows, ["float64"]), workers)[0] for workers in (0, 1)]
    worst = [[(r.case, r.step, r.worst_comparison.worst) for r in one.results] for one in reports]
    assert worst[0] == worst[1]
    assert [one.exit_code for one in reports] == [0, 0]
