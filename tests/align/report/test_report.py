"""What a report shows: in the console, on the page, as JSON and as JUnit XML."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from align.judge.comparator import compare_arrays, compare_mappings
from align.record.results import ControlResult, Divergence, StepResult, Tolerance
from align.record.run_report import Report
from align.report.report_html import page, write_page
from align.report.report_text import console, junit_of
from tests.html_tags import Page, assert_stands_alone

RULE = Tolerance("scaled", 1e-10, "rounding is far below")
ORACLE = Tolerance("oracle", 1e-6, "four times PyTorch's own", norm="l2", factor=4.0)
STAMPS = {"ours": {"framework": "paddle"}, "reference": {"framework": "torch"}}
EVIL = "<script>alert('&')</script>"


def taps(count, broken=None):
    rng = np.random.default_rng(count)
    theirs = {f"layers.{i}": rng.standard_normal((3, 4)) for i in range(count)}
    ours = {name: x + 1e-15 for name, x in theirs.items()}
    if broken is not None:
        ours[broken] = 3 * theirs[broken]
    return ours, theirs


def compared(name, off=0.0):
    value = np.arange(1.0, 5.0)
    return compare_arrays(name, value + off, value, RULE)


def result(*comparisons, step="forward", broken=None, count=6, case="bert", **changes):
    fields = {
        "comparisons": list(comparisons or compare_mappings(*taps(count, broken), RULE)),
        "controls": [ControlResult("one weight transposed", True, "differs by 1.4", "layers.1")],
        "seconds": 0.5,
        "stamps": STAMPS,
    }
    return StepResult(case, step, "float64", **{**fields, **changes})


@pytest.fixture
def failing():
    """A run of the suite: a wrong layer, a fault that was not caught, gradients by an oracle."""
    missed = ControlResult("epsilon", False, "no difference")
    curve = {"paddle": [0.7, 0.6, 0.5], "pytorch": [0.7, 0.6, 0.5 + 1e-9]}
    gradients = [
        compare_arrays(f"w{i}", *[np.ones(3, "float32")] * 2, ORACLE, oracle=np.full(3, 1 + 1e-8))
        for i in range(40)
    ]
    return Report(
        {"python": "3.11", "packages": {"numpy": "1.26"}},
        [
            result(),
            result(broken="layers.2", case=EVIL),
            result(step="training", controls=[missed], series={"loss": curve}),
            result(*gradients, step="backward"),
        ],
    )


@pytest.fixture
def pair():
    """A user's pair: wrong data, a wrong layer, one that inject mode adds, a consequence."""
    forward = result(
        compared("encoder.0.norm"), compared("encoder.0.act", 1e-3), compared("(model)", 1e-12)
    )
    backward = result(compared("gradient at encoder.0.act[0]"), step="backward")
    data = result(compared("labels", 1.0), step="data")
    data.dtype = None
    reason = "differs by 1e-3 <b>off</b>"
    found = Divergence(
        "encoder.0.act", "encoder.0.act", "forward", "float64", reason, "GELU tanh", "x.py:3"
    )
    other = Divergence("encoder.1.act", "encoder.1.act", "forward", "float64", reason)
    wrong = Divergence("labels", "labels", "data", "", "differs", "one more than PyTorch's")
    follows = Divergence("loss", "x", "backward", "float64", "r").after("forward")
    about = {
        "pair": "tiny",
        "paddle": {"class": "Port", "code": "port.py:7", "parameters": 1234},
        "torch": {"class": "Net", "code": "net.py:9", "parameters": 1234},
        "seed": 3,
        "date": "2026-11-22T08:00:00+00:00",
        "command": "python -m align spec tiny.py",
        "commit": {"suite": "0.1.0 abc", "yours": "def"},
    }
    return Report(
        {},
        [forward, backward, data],
        findings=[wrong, found, follows],
        guilty=[found, other],
        notes=["left out: <i>"],
        about=about,
    )


def test_a_count_of_wrong_elements_is_no_cause() -> None:
    count = "1,204 of 1,204 elements are out of tolerance"
    reason = f"{count}; fc.a has no partner"
    finding = Divergence("x", "fc", "forward", "float64", "differs", reason)
    assert f"cause: no cause found; {count}; fc.a has no partner" in str(finding)
    cause = "fc.bias has no partner"
    assert f"cause: {cause}" in str(Divergence("x", "fc", "forward", "float64", "differs", cause))


def test_console_names_the_first_divergence(failing):
    text = console(failing)
    lines = text.splitlines()
    assert lines[0].startswith("alignment: FAIL  2/4 results, 57/58 comparisons")
    assert "3/4 planted faults caught" in lines[0]
    rows = [line for line in lines if line[:4] in ("PASS", "FAIL")]
    assert [row[:4] for row in rows] == ["PASS", "FAIL", "FAIL", "PASS"]
    assert len({row.index("float64") for row in rows}) == 1  # the columns are aligned
    assert "first divergence: layers.2: differs by 2.00e+00 of the scale" in text
    assert "hint: layers.2: is 3.000 x the reference" in text
    assert "control not caught: epsilon (no difference)" in text


def test_places_to_fix_are_numbered_and_what_follows_from_them_is_not(pair):
    """Wrong data first, then both layers; the gradient that only follows has no number."""
    assert [one.place for one in pair.repairs] == ["labels", "encoder.0.act", "encoder.1.act"]
    assert [one.step for one in pair.consequences] == ["backward"]
    fixes, rest = console(pair).split("To fix:\n")[1].split("Follows from these:\n")
    assert re.findall(r"^ +(\d)\. (.*)", fixes, re.M) == [
        ("1", "labels (data)"),
        ("2", "encoder.0.act (forward, float64)"),
        ("3", "encoder.1.act (forward, float64)"),
    ]
    assert "     differs at: encoder.0.act: by 1e-3" in fixes
    assert rest.startswith("     x (backward, float64)\n     cause: follows from the difference in")
    shown = page(pair)
    numbered, unnumbered = shown.split('<ol class="found">')[1].split("</ol>")
    assert numbered.count("<li>") == 3
    assert "backward" not in numbered
    assert "<li><code>x (backward, float64)</code>" in unnumbered
    assert json.loads(pair.dumps())["findings"][2]["follows"] == "forward"


def test_the_report_of_a_pair_names_it_and_how_it_was_made(pair):
    said = (
        "Port, 1,234 parameters, port.py:7",
        "Net, 1,234 parameters, net.py:9",
        "2026-11-22T08:00:00+00:00",
        "python -m align spec tiny.py",
        "0.1.0 abc",
        "def",
    )
    for text in (console(pair), Page(page(pair)).text):
        assert [one for one in said if one not in text] == []
    assert "<h1>tiny: Port (PaddlePaddle) against Net (PyTorch)</h1>" in page(pair)
    assert json.loads(pair.dumps())["about"]["seed"] == 3


def test_nothing_run_is_a_failure_everywhere():
    empty = Report({}, [])
    for text in (console(empty).lower(), page(empty).lower(), junit_of(empty).decode()):
        assert "nothing was run, so nothing is proved" in text
    root = ElementTree.fromstring(junit_of(empty))
    assert (root.get("tests"), root.get("failures")) == ("1", "1")
    assert '<section class="banner fail"' in page(empty)


def test_the_page_stands_alone_and_says_what_failed(failing, tmp_path):
    text = write_page(failing, tmp_path).read_text()
    assert json.loads((tmp_path / "report.json").read_text()) == failing.to_json()
    shown = assert_stands_alone(text)
    assert [tag for tag in shown.tags if tag == "script"] == []
    for said in ("Fail", "rounding is far below", "is 3.000 x the reference", "numpy 1.26"):
        assert said in text
    forward, backward, training = re.split("<h2>(?:Backward|Training)</h2>", text)
    assert forward.index("FAIL") < forward.index(">pass<")  # what failed comes first
    assert "control not caught: epsilon (no difference)" in training
    assert ">pass<" in backward
    good = page(Report({}, [result()]))
    assert '<section class="banner pass"' in good
    assert 'class="why"' not in good
    assert "To fix" not in good


def test_the_page_escapes_every_text(pair):
    rule = Tolerance("exact", 0, EVIL)
    failed = [*compare_mappings({EVIL: np.ones(2)}, {EVIL: np.zeros(2)}, rule)]
    bad = StepResult(
        EVIL, "loss", None, failed, [ControlResult(EVIL, False, EVIL, EVIL)], 0.1, EVIL,
        {EVIL: {EVIL: [1.0, 2.0], "b": [1.0, 2.0]}}, {EVIL: {EVIL: EVIL}},
    )  # fmt: skip
    found = Divergence(EVIL, EVIL, "loss", EVIL, EVIL, EVIL, EVIL)
    about = {"pair": EVIL, "paddle": {"class": EVIL, "code": EVIL, "parameters": 1}}
    text = page(Report({EVIL: {EVIL: [EVIL]}}, [bad], [found], [], [EVIL], about))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert Page(text).stack == []
    assert "&lt;i&gt;" in page(pair)
    assert "<b>off</b>" not in page(pair)


def test_curves_are_drawn_over_the_steps():
    series = {
        "loss": {"paddle": [1.0, float("nan"), 0.5], "pytorch": [1.0, 0.8]},
        "without a step": {"paddle": [], "pytorch": []},
        "drift": {"paddle": list(range(1, 5001)), "allowed": list(range(5000))},
    }
    text = page(Report({}, [result(step="training", series=series)]))
    shown = assert_stands_alone(text)
    assert shown.tags.count("svg") == 2
    assert shown.tags.count("polyline") == 4
    for said in ("Loss: training float64 of bert", "paddle 1 to 5000", "allowed 0 to 4999"):
        assert said in shown.text
    assert "Without a step" not in shown.text
    loss = re.findall(r'<polyline class="k0" stroke="gray" points="([^"]*)"', text)[0]
    assert len(loss.split()) == 2  # a number that is none has no point
    assert len(text) < 40_000


def test_the_first_divergence_is_drawn_along_the_layers(failing):
    shown = Page(page(failing))
    assert "first out of tolerance: layers.2" in shown.text
    kinds = [kind for kind in shown.values("class") if kind in ("good", "wrong")]
    assert kinds[:6] == ["good", "good", "wrong", "good", "good", "good"]
    many = Page(page(Report({}, [result(count=1000, broken="layers.700")])))
    assert many.tags.count("circle") <= 120
    assert many.values("class").count("wrong") == 1
    assert "first out of tolerance: layers.700" in many.text


def test_a_step_has_one_table_whose_further_rows_are_folded():
    results = [result(case=f"case {i}") for i in range(40)]
    shown = Page(page(Report({}, results)))
    assert "16 more" in shown.text
    assert [tag for tag in shown.tags if tag == "table"] == ["table"] * 3  # planted faults
    few = Page(page(Report({}, [result(count=30), result(count=30)])))
    assert few.tags.count("tr") == 1 + 24 + 1 + 2


def test_junit_counts_and_explains_failures(pair):
    root = ElementTree.fromstring(junit_of(pair))
    assert (root.get("tests"), root.get("failures")) == ("3", "2")
    suite = root.find("testsuite")
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("bert", "3", "2")
    failed = suite.find("testcase[@name='forward float64']/failure")
    assert "encoder.0.act" in failed.get("message")
    assert "GELU tanh" in failed.text
    assert "one more than PyTorch's" in suite.find("testcase[@name='data']/failure").text
    assert suite.find("testcase[@name='backward float64']/failure") is None
