"""The reprod_log files: what the stock tool reads, and what the log refuses to pass."""

import re

import numpy as np
import pytest

from align.report.reprod import report_lines, write_reprod
from tests.align.stock_reprod import stock_log

CHECKS = {
    "forward": ({"logits": np.array([[0.5, 1.0]])}, {"logits": np.array([[0.5, 1.0 + 1e-7]])}),
    "metric": ({"accuracy": 0.5, "right": np.array(3)}, {"accuracy": 0.5, "right": np.array(4)}),
    "back": ({"loss": np.array([0.7], "float32")}, {"loss": np.array([0.7], "float32")}),
}


@pytest.mark.parametrize(("check", "verdict"), [("forward", "passed"), ("metric", "failed")])
def test_the_stock_tool_reads_our_files_and_says_what_our_log_says(tmp_path, check, verdict):
    write_reprod(tmp_path, CHECKS)
    said = without_times(stock_log(tmp_path, check, tmp_path / "stock.txt"))
    assert without_times((tmp_path / f"{check}.log").read_text()) == said
    assert said[-1].endswith(f"diff check {verdict}")


def without_times(log: str) -> list[str]:
    """Return the lines of a log without the date in front."""
    return [re.sub(r"^\[[^]]*\]", "", line) for line in log.splitlines()]


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
    lines = report_lines({"x": np.ones((2, 3))}, ours)
    assert lines[-1] == "diff check failed"
    assert word in lines[1]
    assert report_lines({}, {}) == ["diff check failed"]
