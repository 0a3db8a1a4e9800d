"""Counts, thresholds, JSON, the table and the page."""

from __future__ import annotations

import argparse
import dataclasses
import json

import pytest

from align.certify import certificate_table, command
from align.certify.certificate import Certificate, CleanRun, FaultRow
from align.certify.page import page

KEYS = ["faults", "detected", "located", "explained", "clean_seeds", "false_alarms", "rows"]


def certificate(missed=0, misplaced=0, unexplained=0, alarms=0, faults=100, seeds=30, settings=2):
    rows = [
        FaultRow(
            f"fault_{i}",
            ("model", "data")[i % 2],
            "scene",
            "forward",
            "layer",
            detected=i >= missed,
            located=i >= missed + misplaced,
            explained=i >= missed + unexplained,
            said_step="forward",
            said_place="layer",
            said_cause="a | b <c>",
        )
        for i in range(faults)
    ]
    clean = [
        CleanRun(scene, seed, ("as found", "AVX2")[seed % settings], seed >= alarms, "PASS")
        for seed in range(seeds)
        for scene in ("one", "two")
    ]
    return Certificate(rows, clean, 12.0, 2)


def test_everything_found_is_a_certificate() -> None:
    found = certificate()
    assert found.problems == []
    assert found.passed
    assert found.exit_code == 0
    assert (found.faults, found.clean_seeds, found.false_alarms) == (100, 30, 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"missed": 1}, "1 of 100 faults were not detected"),
        ({"misplaced": 6}, "94 of 100 faults were located, 95% are needed"),
        ({"unexplained": 21}, "79 of 100 faults were explained, 80% are needed"),
        ({"alarms": 1}, "2 of 60 clean runs were not clean"),
        ({"faults": 59}, "59 faults were planted, at least 60 are needed"),
        ({"seeds": 29}, "29 clean seeds were run, 30 are needed"),
        ({"settings": 1}, "clean runs were made under 1 setting of the processor, 2 are needed"),
    ],
)
def test_each_threshold_alone_refuses_the_certificate(change, problem) -> None:
    found = certificate(**change)
    assert found.problems == [problem]
    assert found.exit_code == 1


@pytest.mark.parametrize("change", [{"misplaced": 5}, {"unexplained": 20}, {"faults": 60}])
def test_the_thresholds_themselves_are_enough(change) -> None:
    assert certificate(**change).passed


def test_a_seed_counts_only_with_every_scene() -> None:
    found = certificate()
    partial = dataclasses.replace(found, clean=found.clean[:-1])
    assert partial.clean_seeds == 29


def test_an_error_is_no_detection_and_no_clean_run() -> None:
    assert not FaultRow("f", "model", "s", "forward", "*", error="died").detected
    assert Certificate([], [CleanRun("s", 0, error="died")]).false_alarms == 1


def test_the_json_has_the_keys_of_the_contract() -> None:
    found = certificate(missed=2).to_json()
    assert list(found) == KEYS
    assert found["detected"] == 98
    assert json.loads(json.dumps(found))["rows"][0]["fault"] == "fault_0"
    assert {"fault", "area", "scene", "step", "place", "detected"} <= set(found["rows"][0])


def test_the_console_says_what_is_missing() -> None:
    text = certificate_table.console(certificate(missed=1, alarms=1))
    assert "NOT CERTIFIED" in text.splitlines()[-1]
    assert "missing: 1 of 100 faults were not detected" in text
    assert "false alarm: one, seed 0" in text
    assert certificate_table.console(certificate()).splitlines()[-1].startswith("CERTIFIED")


def test_the_markdown_table_escapes_its_bars() -> None:
    text = certificate_table.markdown(certificate())
    assert "forward, layer: a \\| b <c>" in text
    assert "| all | 100 | 100 | 100 | 100 |" in text
    assert "60 clean runs (2 pairs on 30 seeds" in text


def test_the_page_stands_alone_and_escapes() -> None:
    good, bad = (page(c, {"python": "3.11"}) for c in (certificate(), certificate(missed=3)))
    for html in (good, bad):
        assert "a | b &lt;c&gt;" in html
        assert "http" not in html
        assert "<script" not in html
    assert "<strong>Certified</strong>" in good
    assert "<strong>Not certified</strong>" in bad
    assert "3 of 100 faults were not detected" in bad


def test_the_command_lists_and_writes(tmp_path, monkeypatch, capsys) -> None:
    options = argparse.Namespace(
        list=True, faults=["gelu_tanh"], seeds=1, jobs=1, json=None, out=None
    )
    assert command.main(options) == 0
    assert capsys.readouterr().out.split()[0] == "gelu_tanh"
    monkeypatch.setattr(command, "certify", lambda *_: certificate(missed=1))
    options.list, options.json, options.out = False, str(tmp_path / "c.json"), str(tmp_path / "o")
    assert command.main(options) == 1
    assert list(json.loads((tmp_path / "c.json").read_text())) == KEYS
    names = {path.name for path in (tmp_path / "o").iterdir()}
    assert names == {"certificate.json", "certificate.md", "certificate.html"}
