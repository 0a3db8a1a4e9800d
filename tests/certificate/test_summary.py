"""Counts, thresholds, JSON, the tables and the command."""

from __future__ import annotations

import json

import pytest

from tests.certificate import certificate_table, run, running
from tests.certificate.certificate import Certificate, CleanRun, FaultRow


def certificate(missed=0, misplaced=0, unexplained=0, held_out_unexplained=0, alarms=0,
    faults=200, seeds=30, settings=2, said="a | b <c>",
):  # fmt: skip
    """Half of the faults are held out: the even ones; what is not found is so among the odd."""
    rows = [
        FaultRow(
            f"fault_{i}", ("model", "data")[i % 2], "scene", "forward", "layer",
            held_out=i % 2 == 0,
            detected=i >= 2 * missed,
            located=i >= 2 * misplaced,
            explained=i >= 2 * (held_out_unexplained if i % 2 == 0 else unexplained),
            said_step="forward",
            said_place="layer",
            said_cause=said,
        )
        for i in range(faults)
    ]  # fmt: skip
    clean = [
        CleanRun(scene, seed, ("as found", "AVX2")[seed % settings], seed >= alarms, "PASS")
        for seed in range(seeds)
        for scene in ("one", "two")
    ]
    return Certificate(rows, clean, 200, 12.0, 2)


@pytest.mark.parametrize(
    ("change", "verdict", "problems"),
    [
        ({}, "certified", []),
        ({"misplaced": 3}, "certified", []),
        ({"unexplained": 20, "held_out_unexplained": 40}, "certified", []),
        ({"faults": 3}, "a part without a problem: no certificate", []),
        ({"seeds": 29}, "a part without a problem: no certificate", []),
        ({"settings": 1}, "a part without a problem: no certificate", []),
        ({"missed": 1}, "not certified", ["2 of 200 faults not detected"]),
        ({"misplaced": 4}, "not certified", ["192 of 200 faults located, 97% are needed"]),
        (
            {"unexplained": 21, "held_out_unexplained": 41},
            "not certified",
            [
                "59 of 100 held-out faults explained, 60% are needed",
                "79 of 100 development faults explained, 80% are needed",
            ],
        ),
        ({"alarms": 1}, "not certified", ["2 of 60 clean runs not clean"]),
    ],
)
def test_each_threshold_alone_refuses_the_certificate(change, verdict, problems) -> None:
    found = certificate(**change)
    assert (found.verdict, found.problems) == (verdict, problems)
    assert found.exit_code == bool(problems)
    assert certificate_table.headline(found).startswith(f"{verdict.upper()}  ")


@pytest.mark.parametrize(
    ("said", "explanation"),
    [
        ("the order of the parts; normalisation is as it should be", 1),
        ("the mask is not applied, or its value is too weak", 0.5),
        ("either the mask is inverted", 0.5),
        ("a norm is left out (an auxiliary loss?)", 0.5),
    ],
)
def test_a_cause_with_alternatives_is_half_of_one(said, explanation) -> None:
    named = ("f", "model", "s", "forward", "x")
    row = FaultRow(*named, detected=True, explained=True, said_cause=said)
    assert row.explanation == explanation
    assert FaultRow(*named, said_cause=said).explanation == 0


def test_the_command_lists_writes_and_says_what_is_missing(tmp_path, monkeypatch, capsys) -> None:
    assert run.main(["--list", "--faults", "square_weight_transposed"]) == 0
    assert capsys.readouterr().out.split() == (
        ["square_weight_transposed", "model", "distilbert", "forward", "development"]
    )
    monkeypatch.setattr(running, "certify", lambda *_: certificate(missed=1, alarms=1))
    assert run.main(["--json", str(tmp_path / "c.json")]) == 1
    data = json.loads((tmp_path / "c.json").read_text())
    assert data["held_out"] == {"faults": 100, "detected": 99, "located": 100, "explained": 100}
    assert (data["detected"], data["clean_runs"], data["false_alarms"]) == (198, 60, 2)
    said = capsys.readouterr().out
    assert "missing: 2 of 200 faults not detected" in said
    assert "one      0  as found   PASS" in said
