"""The report: console, JSON file, HTML page, reprod_log files."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec

import numpy as np
import pytest

from align.judge.comparator import compare_arrays, compare_mappings
from align.record.results import ControlResult, Report, StepResult, Tolerance
from align.report.report import console, write_atomically, write_html, write_json
from align.report.reprod import report_lines, write_reprod

RULE = Tolerance("scaled", 1e-10, "rounding is far below")
ORACLE = Tolerance("oracle", 1e-6, "four times PyTorch's own", norm="l2", factor=4.0)
STAMPS = {"ours": {"framework": "paddle"}, "reference": {"framework": "torch"}}
VOID = {"meta", "br", "wbr", "img", "link", "hr", "input"}


def taps(count, broken=None):
    rng = np.random.default_rng(count)
    theirs = {f"layers.{i}": rng.standard_normal((3, 4)) for i in range(count)}
    ours = {name: x + 1e-15 for name, x in theirs.items()}
    if broken is not None:
        ours[broken] = 3 * theirs[broken]
    return ours, theirs


def result(step="forward", broken=None, count=6, case="bert", **changes):
    fields = {
        "comparisons": compare_mappings(*taps(count, broken), RULE),
        "controls": [ControlResult("one weight transposed", True, "differs by 1.4", "layers.1")],
        "seconds": 0.5,
        "stamps": STAMPS,
    }
    return StepResult(case, step, "float64", **{**fields, **changes})


@pytest.fixture
def failing():
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
            result(broken="layers.2", case="<script>alert(1)</script>"),
            result("training", controls=[missed], series={"loss": curve}),
            result("backward", comparisons=gradients),
        ],
    )


class Page(HTMLParser):
    """Collects tags, attributes and text, and sees unclosed tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.stack, self.opened = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "details" and dict(attrs).get("class") in ("pass", "fail"):
            self.opened.append("open" in dict(attrs))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def test_console_names_the_first_divergence(failing):
    text = console(failing)
    lines = text.splitlines()
    assert lines[0].startswith("alignment: FAIL  2/4 results, 57/58 comparisons")
    assert "3/4 planted faults caught" in lines[0]
    assert sum(line.startswith("PASS") for line in lines) == 2
    assert sum(line.startswith("FAIL") for line in lines) == 2
    assert "first divergence: layers.2: differs by 2.00e+00 of the scale" in text
    assert "hint: layers.2: is 3.000 x the reference" in text
    assert "control not caught: epsilon (no difference)" in text


def test_console_aligns_its_columns(failing):
    rows = [line for line in console(failing).splitlines() if line[:4] in ("PASS", "FAIL")]
    ends = {row.index("float64") for row in rows}
    assert len(ends) == 1


def test_console_of_nothing_is_a_failure():
    text = console(Report({}, []))
    assert "FAIL" in text
    assert "nothing is proved" in text


def test_json_file_is_the_report(failing, tmp_path):
    path = write_json(failing, tmp_path / "deep" / "report.json")
    assert json.loads(path.read_text()) == failing.to_json()
    assert os.listdir(path.parent) == ["report.json"]


def test_html_is_self_contained_and_well_formed(failing, tmp_path):
    text = write_html(failing, tmp_path / "report.html").read_text()
    page = Page(text)
    assert page.stack == []
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert not re.search(r"https?://|@import|url\(", text)
    targets = [value for name, value in page.attributes if name in ("href", "src")]
    assert targets
    ids = {value for name, value in page.attributes if name == "id"}
    assert all(target.startswith("#") and target[1:] in ids for target in targets)
    assert page.tags.count("svg") == 5
    assert page.opened == [False, True, False, True]  # grouped by case, failures open
    assert "prefers-color-scheme" in text
    assert "width=device-width" in text


def test_html_escapes_every_text(tmp_path):
    evil = "<script>alert('&')</script>"
    held = compare_mappings({evil: np.ones(2)}, {evil: np.zeros(2)}, Tolerance("exact", 0, evil))
    bad = StepResult(
        evil, "loss", None, held, [ControlResult(evil, False, evil, evil)], 0.1, evil,
        {evil: {evil: [1.0, 2.0], "b": [1.0, 2.0]}}, {evil: {evil: evil}},
    )  # fmt: skip
    text = write_html(Report({evil: {evil: [evil]}}, [bad]), tmp_path / "r.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert Page(text).stack == []


def test_html_says_verdict_tolerance_and_reason(failing, tmp_path):
    text = write_html(failing, tmp_path / "r.html").read_text()
    for said in ("Fail", "rounding is far below", "is 3.000 x the reference", "numpy 1.26"):
        assert said in text
    good = write_html(Report({}, [result()]), tmp_path / "g.html").read_text()
    assert '<section class="banner pass"' in good
    assert 'class="why"' not in good
    assert (
        '<section class="banner fail"'
        in write_html(Report({}, []), tmp_path / "e.html").read_text()
    )


def test_curves_with_gaps_and_unequal_lengths_are_drawn(tmp_path):
    series = {
        "loss": {"paddle": [1.0, float("nan"), 0.5], "pytorch": [1.0, 0.8]},
        "constant": {"paddle": [2.0] * 3, "pytorch": [2.0] * 3},
        "one": {"paddle": [1.0], "pytorch": [1.0]},
        "nothing": {"paddle": [], "pytorch": []},
        "long": {"paddle": list(range(5000)), "pytorch": list(range(5000))},
    }
    text = write_html(Report({}, [result(series=series)]), tmp_path / "r.html").read_text()
    assert Page(text).tags.count("svg") == 5
    drawings = re.findall(r"<svg.*?</svg>", text)
    assert not any(re.search(r"[ M]-?(nan|inf)", drawing) for drawing in drawings)


def test_every_measured_difference_can_be_drawn(tmp_path):
    values = (0.0, 5e-324, 1e-300, 1e300, np.nan)
    pairs = [(np.array([v, 1.0]), np.array([0.0, 1.0])) for v in values]
    held = [compare_arrays(f"t{i}", a, b, RULE) for i, (a, b) in enumerate(pairs)]
    for comparisons in (held, held * 8, held[:1]):
        report = Report({}, [result(comparisons=comparisons)])
        assert Page(write_html(report, tmp_path / "r.html").read_text()).tags.count("svg") == 1


def test_a_hundred_results_stay_below_three_megabytes(tmp_path):
    report = Report({}, [result("backward", count=200, case=f"case {i}") for i in range(100)])
    assert write_html(report, tmp_path / "r.html").stat().st_size < 3_000_000


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "a.txt", b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


CHECKS = {
    "forward": ({"logits": np.array([[0.5, 1.0]])}, {"logits": np.array([[0.5, 1.0 + 1e-7]])}),
    "metric": ({"accuracy": 0.5, "right": np.array(3)}, {"accuracy": 0.5, "right": np.array(4)}),
    "back": ({"loss": np.array([0.7], "float32")}, {"loss": np.array([0.7], "float32")}),
}
STOCK = """
import sys
from reprod_log import ReprodDiffHelper
helper = ReprodDiffHelper()
folder, check = sys.argv[1:]
first = helper.load_info(f"{folder}/{check}_torch.npy")
helper.compare_info(first, helper.load_info(f"{folder}/{check}_paddle.npy"))
helper.report(path=f"{folder}/stock.txt")
"""


@pytest.mark.skipif(
    find_spec("reprod_log") is None or find_spec("paddle") is None,
    reason="reprod_log or the Paddle that it imports is absent",
)
@pytest.mark.parametrize(("check", "verdict"), [("forward", "passed"), ("metric", "failed")])
def test_the_stock_tool_reads_our_files_and_says_what_our_log_says(tmp_path, check, verdict):
    write_reprod(tmp_path, CHECKS)
    command = [sys.executable, "-c", STOCK, str(tmp_path), check]
    subprocess.run(command, check=True, capture_output=True, timeout=120)

    def lines(name):
        text = (tmp_path / name).read_text()
        return [re.sub(r"^\[[^]]*\]", "", line) for line in text.splitlines()]

    assert lines(f"{check}.log") == lines("stock.txt")
    assert lines(f"{check}.log")[-1].endswith(f"diff check {verdict}")


def test_reprod_writes_three_files_per_check(tmp_path):
    paths = write_reprod(tmp_path / "new", CHECKS)
    assert len(paths) == 9
    assert sorted(os.listdir(tmp_path / "new")) == sorted(path.name for path in paths)


def test_reprod_keeps_values_and_makes_whole_numbers_subtractable(tmp_path):
    ids = np.array([0, 255], "uint8")
    sides = {"ids": ids, "mask": ids > 0, "x": np.array([0.1])}
    path = write_reprod(tmp_path, {"forward": (sides, sides)})[0]
    held = np.load(path, allow_pickle=True).item()  # our own file, a moment old
    assert {name: x.dtype.name for name, x in held.items()} == {
        "ids": "int64",
        "mask": "int64",
        "x": "float64",
    }
    assert held["ids"].tolist() == [0, 255]


@pytest.mark.parametrize(
    ("ours", "word"),
    [
        ({}, "only on one side"),
        ({"x": np.full((2, 3), np.nan)}, "nan"),
        ({"x": np.ones((3, 2))}, "shapes"),
        ({"x": np.ones((2, 3)) + 1e-5}, "False"),
    ],
)
def test_the_log_fails_where_the_format_would_look_away(ours, word):
    lines = report_lines({"x": np.ones((2, 3))}, ours, 1e-6)
    assert lines[-1] == "diff check failed"
    assert word in lines[1]
    assert report_lines({}, {}, 1e-6) == ["diff check failed"]


@pytest.mark.parametrize("check", ["../out", "", ".hidden"])
def test_reprod_refuses_a_name_that_is_a_path(tmp_path, check):
    with pytest.raises(ValueError, match="plain file name"):
        write_reprod(tmp_path, {check: ({}, {})})


def test_reprod_refuses_objects_before_it_writes(tmp_path):
    checks = {"forward": CHECKS["forward"], "loss": ({"x": "text"}, {"x": 1.0})}
    with pytest.raises(ValueError, match="expected numbers"):
        write_reprod(tmp_path, checks)
    assert os.listdir(tmp_path) == []
