"""The records: what counts as a pass, and JSON that any parser reads."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from align.judge.comparator import compare_arrays
from align.record.results import STEPS, Comparison, ControlResult, StepResult, Tolerance
from align.record.run_report import Report
from sot_paddle.reading import json_ready

RULE = Tolerance("scaled", 1e-10, "rounding is far below")
STAMPS = {"ours": {"framework": "paddle"}, "reference": {"framework": "torch"}}
CAUGHT = ControlResult("scaled by 3", True, "differs by 2.0", "logits")
FOUND = {"about", "findings", "guilty", "notes"}


def make(ours=(1.0, 2.0), **changes):
    pairs = changes.pop("pairs", None) or [("logits", ours, (1.0, 2.0))]
    fields = {
        "case": "bert",
        "step": "forward",
        "dtype": "float64",
        "comparisons": [compare_arrays(n, np.array(a), np.array(b), RULE) for n, a, b in pairs],
        "controls": [CAUGHT],
        "stamps": STAMPS,
    }
    return StepResult(**{**fields, **changes})


def test_a_complete_result_passes_and_without_stamps_a_step_that_needs_none():
    result = make()
    assert result.passed
    assert result.problems == []
    assert result.first_failure is None
    assert make(stamps={}, framework_free=True, step="data", dtype=None).passed


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"comparisons": []}, "nothing was compared"),
        ({"controls": []}, "no negative control"),
        ({"controls": [CAUGHT, ControlResult("eps", False, "unseen")]}, "control not caught: eps"),
        ({"stamps": {}}, "no framework stamp"),
        ({"stamps": {"ours": {"framework": "paddle"}}}, "no framework stamp on side: reference"),
        (
            {"stamps": {"ours": {"framework": "torch"}, "reference": {"framework": "Torch"}}},
            "both sides were computed by torch",
        ),
    ],
)
def test_what_keeps_a_result_from_passing(changes, word):
    result = make(**changes)
    assert not result.passed
    assert any(word in problem for problem in result.problems)


def test_first_failure_and_the_worst_which_is_what_cannot_be_measured():
    pairs = [
        ("a", (1.0, 2.0), (1.0, 2.0)),
        ("b", (1.0, 2.001), (1.0, 2.0)),
        ("c", (1.5, 2.0), (1.0, 2.0)),
    ]
    result = make(pairs=pairs)
    assert not result.passed
    assert result.first_failure.name == "b"
    assert result.position == {"name": "c", "index": [0]}
    assert result.worst == pytest.approx(0.25)
    assert result.tolerance == 1e-10
    pairs = [("a", (9.0, 2.0), (1.0, 2.0)), ("b", (math.nan, 2.0), (1.0, 2.0))]
    result = make(pairs=pairs)
    assert result.position == {"name": "b", "index": [0]}
    assert math.isnan(result.worst)


def test_json_has_the_agreed_keys_and_is_strict():
    pairs = [("a", (math.nan, 2.0), (1.0, 2.0)), ("b", (1.0,), (1.0, 2.0))]
    report = Report({"seed": np.int64(3), "none": None}, [make(pairs=pairs, seconds=1.5)])

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    data = json.loads(report.dumps(), parse_constant=refuse)
    assert set(data) == {"verdict", "environment", "results", *FOUND}
    assert (data["verdict"], data["environment"]) == ("fail", {"seed": 3, "none": None})
    (result,) = data["results"]
    keys = {"name", "worst", "bound", "passed", "position", "ours", "reference", "reason"}
    assert all(keys <= set(row) for row in result["comparisons"])
    assert result["worst"] == "nan"
    assert [row["worst"] for row in result["comparisons"]] == ["nan", "inf"]
    assert "rounding is far below" in result["why"]


def test_json_refuses_what_it_cannot_hold():
    with pytest.raises(TypeError, match="ndarray"):
        json_ready({"x": np.ones(2)})
    with pytest.raises(TypeError, match="string keys"):
        json_ready({1: 2})


def test_verdict_and_exit_code():
    good, bad = make(), make(controls=[])
    assert (Report({}, [good]).verdict, Report({}, [good]).exit_code) == ("pass", 0)
    assert (Report({}, [good, bad]).verdict, Report({}, [good, bad]).exit_code) == ("fail", 1)
    assert (Report({}, []).verdict, Report({}, []).exit_code) == ("fail", 1)


@pytest.mark.parametrize("worst", [math.nan, math.inf, 2.0])
def test_a_comparison_cannot_claim_to_pass(worst):
    with pytest.raises(ValueError, match="claims to pass"):
        Comparison("x", True, worst, 1.0, 1.0, worst, RULE)
    with pytest.raises(ValueError, match="without a reason"):
        Comparison("x", False, worst, 1.0, 1.0, worst, RULE)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        (("loose", 1e-3, "why"), "kind 'loose'"),
        (("scaled", math.nan, "why"), "finite number"),
        (("scaled", math.inf, "why"), "finite number"),
        (("absolute", -1.0, "why"), "finite number"),
        (("scaled", 1.0, "why"), "tensor of zeros"),
        (("exact", 1e-9, "why"), "expected 0"),
        (("scaled", 1e-9, "  "), "empty why"),
        (("absolute", 1e-9, "why", "l2"), "norm 'l2'"),
        (("oracle", 1e-6, "why"), "factor None"),
        (("scaled", 1e-6, "why", "max", 4.0), "factor 4.0"),
        (("oracle", 1e-6, "why", "max", 4.0, 2.0), "floor 2.0"),
    ],
)
def test_a_tolerance_that_means_nothing_is_refused(fields, word):
    with pytest.raises(ValueError, match=word):
        Tolerance(*fields)


def test_unknown_step_and_dtype_are_refused():
    with pytest.raises(ValueError, match="step 'forwards'"):
        make(step="forwards")
    with pytest.raises(ValueError, match="dtype 'double'"):
        make(dtype="double")


def test_the_docs_say_when_each_step_is_compared():
    page = (Path(__file__).parents[3] / "docs" / "align_your_own.md").read_text(encoding="utf-8")
    table = page.partition("## What is compared")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| `?(\w+)[^|]*\|$", table, re.MULTILINE)
    assert rows == [(step.name, step.argument or "always") for step in STEPS.values()]
