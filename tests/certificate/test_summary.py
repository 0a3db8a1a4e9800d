"""Counts, thresholds, parts, JSON, the tables and the command."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.certificate import certificate_table, run, running
from tests.certificate.certificate import (
    Certificate,
    CleanRun,
    Counts,
    FaultRow,
)


def certificate(
    missed=0, misplaced=0, unexplained=0, held_out_unexplained=0, alarms=0, faults=200, seeds=30,
    settings=2, said="a | b <c>",
):  # fmt: skip
    """Half of the faults are held out: the even ones; what is not found is so among the odd."""
    rows = [
        FaultRow(
            f"fault_{i}",
            ("model", "data")[i % 2],
            "scene",
            "forward",
            "layer",
            held_out=i % 2 == 0,
            detected=i >= 2 * missed,
            located=i >= 2 * misplaced,
            explained=i >= 2 * (held_out_unexplained if i % 2 == 0 else unexplained),
            said_step="forward",
            said_place="layer",
            said_cause=said,
        )
        for i in range(faults)
    ]
    clean = [
        CleanRun(scene, seed, ("as found", "AVX2")[seed % settings], seed >= alarms, "PASS")
        for seed in range(seeds)
        for scene in ("one", "two")
    ]
    return Certificate(rows, clean, 200, 12.0, 2)


def test_everything_found_is_a_certificate() -> None:
    found = certificate()
    assert (found.problems, found.verdict, found.exit_code) == ([], "certified", 0)
    assert found.counts == Counts(200, 200, 200, 200)
    assert (found.clean_seeds, found.alarms) == (30, [])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"missed": 1}, "2 of 200 faults not detected"),
        ({"misplaced": 4}, "192 of 200 faults located, 97% are needed"),
        ({"unexplained": 11}, "89 of 100 development faults explained, 90% are needed"),
        ({"held_out_unexplained": 26}, "74 of 100 held-out faults explained, 75% are needed"),
        ({"alarms": 1}, "2 of 60 clean runs not clean"),
    ],
)
def test_each_threshold_alone_refuses_the_certificate(change, problem) -> None:
    """Also of a part of the catalogue."""
    for found in (certificate(**change), certificate(**change, seeds=4)):
        assert [text.replace(" of 8 ", " of 60 ") for text in found.problems] == [problem]
        assert (found.verdict, found.exit_code) == ("not certified", 1)


@pytest.mark.parametrize(
    "change", [{"misplaced": 3}, {"unexplained": 10}, {"held_out_unexplained": 25}]
)
def test_the_thresholds_themselves_are_enough(change) -> None:
    assert certificate(**change).verdict == "certified"


@pytest.mark.parametrize("change", [{"faults": 3}, {"seeds": 29}, {"settings": 1}])
def test_a_part_without_a_problem_is_no_certificate_and_no_failure(change) -> None:
    found = certificate(**change)
    assert found.verdict == "a part without a problem: no certificate"
    assert (found.problems, found.exit_code) == ([], 0)
    said = certificate_table.headline(found)
    assert said.startswith("A PART WITHOUT A PROBLEM: NO CERTIFICATE  ")
    assert f"{change.get('faults', 200)} of 200 faults, {change.get('seeds', 30)} of 30" in said


@pytest.mark.parametrize(
    ("said", "explanation"),
    [
        ("epsilon: Paddle has 1, PyTorch 2", 1),
        ("the order of the parts; normalisation is as it should be", 1),
        ("the mask is not applied, or its value is too weak", 0.5),
        ("either the mask is inverted", 0.5),
        ("a norm is left out (an auxiliary loss?)", 0.5),
        ("the divisor (by the number of labels?)", 0.5),
    ],
)
def test_a_cause_with_alternatives_is_half_of_one(said, explanation) -> None:
    row = FaultRow(
        "f", "model", "s", "forward", "x", detected=True, explained=True, said_cause=said
    )
    assert row.explanation == explanation
    assert dataclasses.replace(row, explained=False).explanation == 0
    assert Counts.of([row, row, row]).explained == 3 * explanation
    assert certificate_table.marks(row)[2] == {1: "yes", 0.5: "half"}[explanation]


def test_half_explanations_miss_the_threshold() -> None:
    assert len(certificate(said="this or that").problems) == 2


def test_a_seed_counts_only_with_every_scene() -> None:
    found = certificate()
    assert dataclasses.replace(found, clean=found.clean[:-1]).clean_seeds == 29


def test_an_error_is_no_detection_and_no_clean_run() -> None:
    assert not FaultRow("f", "model", "s", "forward", "*", error="died").detected
    assert len(Certificate([], [CleanRun("s", 0, error="died")], 1).alarms) == 1


def test_the_json_has_the_counts_and_the_rows() -> None:
    data = json.loads(json.dumps(certificate(missed=2, held_out_unexplained=3).to_json()))
    assert data["held_out"] == {"faults": 100, "detected": 98, "located": 100, "explained": 97}
    assert (data["detected"], data["clean_runs"], data["false_alarms"]) == (196, 60, 0)
    assert (data["rows"][0]["fault"], data["rows"][0]["detected"]) == ("fault_0", False)


def test_the_console_says_what_is_missing_and_what_has_no_place() -> None:
    found = certificate(missed=1, alarms=1)
    rows = [*found.rows[:-1], dataclasses.replace(found.rows[-1], place="*")]
    text = certificate_table.console(dataclasses.replace(found, rows=rows))
    assert text.splitlines()[-1].startswith("NOT CERTIFIED  200 of 200 faults, 30 of 30 seeds: 198")
    assert "missing: 2 of 200 faults not detected" in text
    assert "one      0  as found   PASS" in text
    assert "Without a place (located by their step)\nfault      step\nfault_199  forward" in text
    last = certificate_table.console(certificate()).splitlines()[-1]
    assert last.startswith("CERTIFIED  200 of 200 faults, 30 of 30 seeds: 200 detected, 200 loc")


def test_the_command_lists_and_writes(tmp_path, monkeypatch, capsys) -> None:
    assert run.main(["--list", "--faults", "square_weight_transposed"]) == 0
    assert capsys.readouterr().out.split() == (
        ["square_weight_transposed", "model", "distilbert", "forward", "development"]
    )
    monkeypatch.setattr(running, "certify", lambda *_: certificate(missed=1))
    assert run.main(["--json", str(tmp_path / "c.json")]) == 1
    assert json.loads((tmp_path / "c.json").read_text())["detected"] == 198
    assert "missing: 2 of 200 faults not detected" in capsys.readouterr().out
