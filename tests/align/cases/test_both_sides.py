"""The one way from both sides' values to a result."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from align.cases import both_sides
from align.cases.both_sides import BothSides, Setting, ValueFault
from align.cases.context import Context
from align.cases.kinds.case_kinds import ValueCase
from align.record.results import Tolerance
from align.record.run_report import Report

STAMPS = {"ours": {"framework": "paddle"}, "reference": {"framework": "torch"}}
ONE = {"a": np.array([1.0, 2.0])}
TWICE = {"a": 2 * ONE["a"]}


def judged(step="loss", dtype="float64", context=None, **sides):
    case = ValueCase("case", "nothing:here", steps=(step,), dtypes=(dtype,))
    given = {"ours": ONE, "reference": ONE, "faults": {"doubled": TWICE}, "stamps": STAMPS}
    setting = Setting(case, step, dtype, context or Context())
    return both_sides.result(setting, BothSides(**{**given, **sides}))


def caught(result):
    return {control.name: control.caught for control in result.controls}


def test_equal_values_pass_with_the_bound_of_their_step():
    result = judged()
    assert result.passed, result.problems
    assert (result.case, result.step, result.dtype) == ("case", "loss", "float64")
    assert [c.bound for c in result.comparisons] == [1e-10]
    assert judged("data", None, framework_free=True, stamps={}).comparisons[0].bound == 0.0


def test_values_that_differ_fail_by_name():
    result = judged(ours=TWICE, faults={"right": ONE})
    assert [c.name for c in result.failures] == ["a"]
    assert caught(result) == {"right": False}


def test_a_rule_of_its_own_by_name():
    rules = {"a": Tolerance("absolute", 3.0, "as far as that")}
    assert judged(ours=TWICE, rule=rules.__getitem__).comparisons[0].passed


def test_a_control_that_nothing_notices_fails_the_result():
    result = judged(faults={"none": ONE, "doubled": TWICE}, place="here")
    assert caught(result) == {"none": False, "doubled": True}
    assert not result.passed
    assert result.problems == ["control not caught: none (nothing failed (here))"]
    assert Report({}, [result]).exit_code == 1


def test_a_result_without_controls_or_stamps_fails():
    assert judged(faults={}).problems == ["no negative control ran"]
    assert judged(stamps={}).problems
    assert judged(stamps={}, framework_free=True).passed


def test_a_fault_is_arrays_or_makes_them_or_is_the_references_or_elsewhere():
    faults = {
        "made": lambda: TWICE,
        "theirs": ValueFault(reference=TWICE),
        "theirs, made": ValueFault(reference=lambda: TWICE),
        "both alike": ValueFault(TWICE, TWICE),
        "elsewhere": ValueFault(TWICE, place="there"),
    }
    result = judged(faults=faults, place="here")
    assert caught(result) == {name: name != "both alike" for name in faults}
    places = {control.name: control.detail.partition(":")[0] for control in result.controls}
    assert (places["made"], places["elsewhere"]) == ("here", "there")


def test_another_way_to_judge_is_asked_no_further_than_its_first_failure():
    asked = []

    def compare(ours, reference):
        for name in ("a", "b"):
            asked.append(name)
            yield from both_sides.compare_mappings(
                {name: ours["a"]}, {name: reference["a"]}, Tolerance("exact", 0.0, "equal or not")
            )

    result = judged(compare=compare)
    assert [c.name for c in result.comparisons] == ["a", "b"]
    assert asked == ["a", "b", "a"]
    assert caught(result) == {"doubled": True}


def test_a_failure_is_explained_by_the_edits_of_the_reference_that_do_the_same():
    edits = {"twice": lambda: TWICE, "thrice": lambda: {"a": 3 * ONE["a"]}}
    result = judged(ours=TWICE, faults={"right": ONE}, edits=edits)
    assert result.failures[0].hint == "the reference does the same with: twice"
    assert judged(ours=TWICE, edits={"thrice": edits["thrice"]}).failures[0].hint == ""
    assert judged(edits={"never tried": pytest.fail}).comparisons[0].hint == ""


def test_classic_arrays_are_kept_under_case_and_precision():
    context = Context()
    judged(context=context, log="loss_align")
    judged("metric", None, context=context, log="metric_align")
    assert {check: list(sides[0]) for check, sides in context.classic.items()} == {
        "loss_align": ["case/float64/a"],
        "metric_align": ["case/a"],
    }


def test_a_folder_is_there_until_the_values_are_judged(monkeypatch):
    made = []

    def values(setting, *, text):
        made.append(setting.folder())
        (made[0] / "file").write_text(text, encoding="utf-8")
        read = lambda: {"a": np.array(len((made[0] / "file").read_text(encoding="utf-8")))}  # noqa: E731
        return BothSides({"a": np.array(2)}, {"a": np.array(2)}, {"read late": read}, stamps=STAMPS)

    module = SimpleNamespace(loss=values)
    monkeypatch.setitem(sys.modules, "align.cases.values.scratch", module)
    case = ValueCase("case", "scratch", {"text": "abc"}, steps=("loss",))
    assert both_sides.run(case, "loss", "float64", Context()).passed
    assert not made[0].exists()
