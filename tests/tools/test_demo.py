"""The demo: what it shows, what it writes, and its exit status; the training is not run here."""

import json
import sys

import pytest

from align.port.port_pair import PortPair
from align.port.port_run import ROWS
from sot_paddle.convert import installed
from tests.tools import tool_runs


@pytest.fixture
def tool():
    return tool_runs.load("demo")


@pytest.fixture
def brief(tool, monkeypatch, tmp_path):
    """The demo with one short row, without its conversion and fine-tuning."""
    monkeypatch.setattr(tool, "SHOWN", ("words_only_gap",))
    monkeypatch.setattr(tool, "find_checkpoint", lambda: tmp_path)
    monkeypatch.setattr(tool, "load_there_and_back", lambda source, out: (True, "converted"))
    monkeypatch.setattr(tool, "fine_tune", lambda source, out, head, *rest, **named: f"run {head}")
    monkeypatch.setattr(tool, "train_on_digits", lambda config, out, **named: f"run {config.name}")
    monkeypatch.setattr(sys, "argv", ["demo.py", "--out", str(tmp_path / "report")])
    return tool


def test_what_it_shows_exists_and_covers_the_proof(tool):
    shown = {row.name: row for row in ROWS if row.name in tool.SHOWN}
    assert len(shown) == len(tool.SHOWN)
    assert any(row.recipe for row in shown.values())
    assert {row.subject for row in shown.values()} == {"text", "images"}
    assert shown["checkpoint_sentences"].batch.sentences
    assert shown["checkpoint_mgcrp"].checkpoint


def test_one_table_and_the_files(brief, capsys, tmp_path):
    assert brief.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "converted"
    assert lines[1].startswith("alignment: PASS  6/6 results")
    runs = [line.strip() for line in lines if "run " in line]
    assert runs == ["run plain", "run mgcrp", "run sot_digits.yaml"]
    assert lines[-1] == f"HTML report: {tmp_path / 'report' / 'report.html'}"
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "pass"
    assert (tmp_path / "report" / "report.html").stat().st_size > 1000
    assert (tmp_path / "report" / "reprod_log" / "forward_align.log").exists()


def test_weights_that_do_not_come_back_bit_equal_exit_with_1(brief, monkeypatch, capsys):
    monkeypatch.setattr(brief, "load_there_and_back", lambda source, out: (False, "1 differs"))
    assert brief.main() == 1
    assert "alignment: PASS" in capsys.readouterr().out


def test_a_failed_comparison_exits_with_1(brief, monkeypatch, capsys):
    monkeypatch.setattr(PortPair, "planted", lambda self, step: iter([("none", "", self.ours)]))
    assert brief.main() == 1
    assert "alignment: FAIL" in capsys.readouterr().out


def test_a_missing_checkpoint_is_one_line_and_exit_status_2(tool, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, installed.PACKAGE, None)  # the package is blocked
    monkeypatch.setattr(tool, "train_on_digits", lambda config, out, **named: f"run {config.name}")
    monkeypatch.setattr(sys, "argv", ["demo.py", "--out", str(tmp_path / "report")])
    assert tool.main() == 2
    out, messages = capsys.readouterr()
    assert out == ""
    line = tool_runs.only_line(messages)
    assert line.startswith("demo: error: the real checkpoint is not installed")
    assert not (tmp_path / "report").exists()


def test_the_real_checkpoint_comes_back_bit_equal(tool, tmp_path):
    try:
        source = installed.find_checkpoint()
    except ValueError:
        pytest.skip("the real checkpoint is not installed")
    bit_equal, summary = tool.load_there_and_back(source, tmp_path)
    assert bit_equal
    assert "0 differ" in summary
