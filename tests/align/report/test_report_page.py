"""Findings, the tree of layers, the drift curve, the certificate and JUnit XML of a report."""

from xml.etree import ElementTree

import numpy as np
import pytest

from align.judge.comparator import compare_arrays
from align.record.results import ControlResult, Divergence, Report, StepResult, Tolerance
from align.report.report import write_junit
from align.report.report_html import page
from align.report.report_junit import junit
from align.report.report_tree import grow, tree

RULE = Tolerance("scaled", 1e-10, "rounding is far below")
STAMPS = {"ours": {"framework": "paddle"}, "reference": {"framework": "torch"}}
CAUGHT = [ControlResult("a fault", True, "seen")]


def compared(name, off=0.0):
    value = np.arange(1.0, 5.0)
    return compare_arrays(name, value + off, value, RULE)


def result(*comparisons, step="forward", case="pair", **changes):
    fields = {"controls": CAUGHT, "stamps": STAMPS, "seconds": 0.25, **changes}
    return StepResult(case, step, "float64", list(comparisons), **fields)


@pytest.fixture
def report():
    forward = result(
        compared("encoder.0.norm"), compared("encoder.0.act", 1e-3), compared("(model)", 1e-12)
    )
    backward = result(compared("gradient at encoder.0.act[0]"), step="backward")
    found = Divergence(
        "encoder.0.act",
        "encoder.0.act",
        "forward",
        "float64",
        "1e-3 <b>off</b>",
        "GELU tanh",
        "x.py:3",
    )
    return Report(
        {}, [forward, backward], findings=[found], notes=["left out: <i>"], layers={"encoder": "E"}
    )


def test_the_tree_keeps_the_worst_of_everything_below(report):
    root = grow(report.results)
    assert list(root.children) == ["encoder"]
    block = root.children["encoder"].children["0"]
    assert block.worst["forward"].name == "encoder.0.act"
    assert block.failed
    assert not block.children["norm"].failed
    assert block.children["act"].worst["backward"].passed


def test_structure_comparisons_are_no_layers():
    odd = result(compared("(tied parameters: a)"), compared("input x"), compared("loss value [1]"))
    assert tree([odd], {}, []) == ""


def test_the_page_names_place_cause_and_code_and_escapes_them(report):
    text = page(report)
    assert "<code>encoder.0.act</code>" in text
    assert "Likely cause: GELU tanh" in text
    assert "x.py:3" in text
    assert "<b>off</b>" not in text
    assert "&lt;i&gt;" in text
    assert 'class="leaf bad"' in text
    assert 'class="chip fail">here</span>' in text


def test_a_passing_page_has_nothing_to_mend():
    text = page(Report({}, [result(compared("encoder.0.act"))]))
    assert "What to mend" not in text
    assert 'class="leaf bad" title' not in text


def test_drift_is_drawn_on_a_logarithmic_axis_with_its_band():
    series = {"drift": {"paddle": [1e-16, 1e-15, 3e-15], "noise band": [1e-15, 1e-14, 1e-13]}}
    text = page(Report({}, [result(compared("losses"), step="training", series=series)]))
    assert "curves on a logarithmic axis" in text
    assert "1e-13" in text
    flat = {"drift": {"paddle": [0.0], "noise band": [0.0]}}
    text = page(Report({}, [result(compared("losses"), step="training", series=flat)]))
    assert "curves on a logarithmic axis" not in text


def test_the_certificate_stands_on_the_page():
    held = {"faults": 61, "detected": 61, "located": 60, "explained": 52}
    held |= {"clean_seeds": 30, "false_alarms": 0}
    text = page(Report({}, [result(compared("a"))], certificate=held))
    assert "Sensitivity certificate" in text
    assert "60 / 61" in text
    assert "0 / 30" in text


def test_junit_counts_and_explains_failures(report, tmp_path):
    path = write_junit(report, tmp_path / "deep" / "junit.xml")
    root = ElementTree.parse(path).getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    suite = root.find("testsuite")
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("pair", "2", "1")
    failed = suite.find("testcase[@name='forward float64']/failure")
    assert "encoder.0.act" in failed.get("message")
    assert "GELU tanh" in failed.text
    assert suite.find("testcase[@name='backward float64']/failure") is None


def test_junit_of_nothing_fails():
    root = ElementTree.fromstring(junit(Report({})))
    assert (root.get("tests"), root.get("failures")) == ("1", "1")


def test_junit_survives_control_characters():
    root = ElementTree.fromstring(junit(Report({}, [result(compared("a"), case="a\x00<&>")])))
    assert root.find("testsuite").get("name") == "a?<&>"
