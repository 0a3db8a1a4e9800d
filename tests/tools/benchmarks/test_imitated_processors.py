"""Imitated processors: every two values meet, rows go on where they stopped, alarms are told."""

import itertools
import os
import sys

import pytest

from align.port import port_steps
from align.port.port_run import ROWS
from tools import stress_align
from tools.benchmarks import imitated_processors as stress


def found_by(index):
    """What a worker sends of a row."""
    return {
        "row": index,
        "settings": stress.settings(index),
        "tensors": 5,
        "controls": 2,
        "redrawn": [],
        "failures": ["a forward: t: differs"] if index == 4 else [],
        "nearest": ["a", 0.5],
        "processor": "one",
        "threads": [os.environ[n] for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")],
        "unset": "MKL_CBWR" not in os.environ,
    }


def leaving(index):
    sys.exit(7)


def test_every_two_values_of_two_variables_meet():
    rows = stress.rows()
    assert len(rows) >= 16
    for one, other in itertools.combinations(stress.VARIABLES, 2):
        met = {(row[one], row[other]) for row in rows}
        values = {row[one] for row in rows}, {row[other] for row in rows}
        assert met == set(itertools.product(*values)), (one, other)


def test_the_settings_repeat_with_weights_of_their_own():
    assert [stress.settings(row) for row in range(18, 36)] == stress.rows()
    seeds = {row + 1 + 100 * draw for row in range(stress.ROWS) for draw in range(stress.DRAWS)}
    assert len(seeds) == stress.ROWS * stress.DRAWS


def test_every_quick_model_with_a_float32_result_takes_part():
    names = {row.name for row in stress.float32_models()}
    assert {"bert_mgcrp", "head_mgcrp_all_values", "timm_deit"} <= names
    assert not names & {"bert_base_full", "head_mgcrp_triu"}
    assert names <= {row.name for row in ROWS}


def test_rows_run_under_their_settings_and_are_not_run_again(tmp_path):
    said = []
    found = stress.run(tmp_path / "out", [0, 4], 2, said.append, found_by)
    assert [row["row"] for row in found] == [0, 4]
    assert len(said) == 2
    for row in found:
        assert row["threads"] == [row["settings"]["OMP_NUM_THREADS"]] * 2
        assert row["unset"] == (row["settings"]["MKL_CBWR"] == "")
    again = stress.run(tmp_path / "out", [0, 4], 2, said.append, leaving)
    assert (again, len(said)) == (found, 2)
    text = stress.table(found)
    assert "10 float32 tensors, 1 failures" in text
    assert text.splitlines()[-1] == "a forward: t: differs"


def test_a_row_without_a_result_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="row 3 has no result: it ended with SystemExit: 7"):
        stress.run(tmp_path, [3], 1, work=leaving)


def test_weights_that_amplify_rounding_are_drawn_again(monkeypatch):
    model = next(row for row in stress.float32_models() if row.name == "bert_mgcrp")
    seeds = []

    class Result:
        def __init__(self, reason):
            self.comparisons = [type("C", (), {"reason": reason})]

    class Outcome:
        def __init__(self, reason):
            self.results = [Result(reason)]

    def run_row(row, dtypes, choices):
        assert dtypes == ["float32"]
        seeds.append(row.batch.seed)
        return Outcome(stress.ILL_CONDITIONED if len(seeds) < 3 else "")

    monkeypatch.setattr(port_steps, "run_row", run_row)
    redrawn = []
    assert stress._results(model, 1, redrawn)
    assert redrawn == ["bert_mgcrp"] * 2
    assert len(set(seeds)) == 3


@pytest.mark.parametrize("options", [["--rows", "99"], ["--processes", "0"]])
def test_impossible_options_are_refused_in_one_line(options, tmp_path, capsys):
    assert stress_align.main(["--out", str(tmp_path), *options]) == 2
    said = capsys.readouterr().err
    assert "expected at least 1 process and rows from 0 to 98" in said
    assert said.count("\n") == 1
