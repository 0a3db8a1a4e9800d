"""Judging what a model is before weights are loaded: facts, listed differences, lines, draws."""

import math

import numpy as np
import pytest

from align.cases.sides.built_records import (
    ABSENT,
    Built,
    StatedDifference,
    alike,
    collapse,
    compare_facts,
    compare_values,
    shifted,
)
from align.cases.values.drawn_weights import FALSE_ALARMS, compare


def failures(comparisons):
    return {c.name: c.reason for c in comparisons if not c.passed}


def test_alike_is_strict_about_types_and_lenient_about_the_last_digits():
    assert alike(0.1, 1.0 - 0.9)
    assert alike((1, 2.0), (1.0, 2))
    assert not alike(1e-5, 1.0000001e-5)
    assert not alike(1, True)
    assert not alike("1", 1)
    assert not alike((1, 2), (1, 2, 3))
    assert not alike(None, False)


def test_facts_are_compared_by_name_on_both_sides():
    ours = {"a": {"shape": (2, 3), "p": 0.1}, "mine": {"p": 0.0}}
    theirs = {"a": {"shape": (3, 2), "p": 0.2, "q": 1}, "theirs": {"p": 0.0}}
    assert failures(compare_facts(ours, theirs)) == {
        "a": "shape (2, 3) against (3, 2); p 0.1 against 0.2; q '(absent)' against 1",
        "mine": "missing on the PyTorch side",
        "theirs": "missing on the Paddle side",
    }
    assert failures(compare_facts({}, {}))
    assert not failures(compare_facts(theirs, theirs))
    assert failures(compare_facts({"a": {}}, {})) == {"a": "missing on the PyTorch side"}


def test_a_listed_difference_must_be_there_exactly():
    listed = (StatedDifference("a", "p", 0.1, ABSENT, "because"),)
    assert not failures(compare_facts({"a": {"p": 0.1}}, {"a": {}}, listed))
    assert set(failures(compare_facts({"a": {"p": 0.1}}, {"a": {"p": 0.1}}, listed))) == {
        "(listed difference) a: p"
    }
    other = failures(compare_facts({"a": {"p": 0.3, "q": 1}}, {"a": {"q": 2}}, listed))
    assert set(other) == {"(listed difference) a: p", "a"}


def test_a_failure_is_never_hidden_among_equal_names_or_layers():
    good, bad = {"x.0": {"p": 1}, "x.1": {"p": 1}, "y": {"p": 1}}, {"x.0": {"p": 2}}
    one = [*compare_facts(good, good), *compare_facts(bad, {"x.0": {"p": 1}})]
    lines = collapse(one)
    assert [(line.name, line.passed) for line in lines] == [
        ("x.0", False),
        ("x.# (2 alike)", True),
        ("y", True),
    ]


def test_values_are_compared_in_every_element():
    table = np.arange(6.0).reshape(2, 3)
    assert not failures(compare_values({"t": table}, {"t": table}))
    assert set(failures(compare_values({"t": shifted(table)}, {"t": table}))) == {"t"}
    assert set(failures(compare_values({}, {"t": table}))) == {"t"}
    assert compare_values({}, {}) == []


def test_counts():
    facts = {"trained": True, "decayed (vision)": True}
    built = Built(
        {
            "w": {"shape": (2, 3), **facts},
            "head.b": {"shape": (4,), **facts, "decayed (vision)": False},
            "running_mean": {"shape": (5,), "trained": False, "decayed (vision)": False},
            "table": {"shape": (7,), "trained": False, "decayed (vision)": False},
        }
    )
    assert built.counts() == {
        "trainable": 10,
        "all values": 17,
        "decayed": 1,
        "undecayed": 1,
        "head": 4,
    }


@pytest.mark.parametrize("size", [60, 2000, 16000])
def test_draws_of_the_right_family_pass_and_others_fail(size):
    rng = np.random.default_rng(3)
    normal, uniform = ("normal", 0.0, 0.02), ("uniform", -0.1, 0.1)
    draws = {normal: rng.normal(0.0, 0.02, size), uniform: rng.uniform(-0.1, 0.1, size)}
    for start, values in draws.items():
        (right,) = compare({"w": values}, {"w": start})
        assert right.passed
        assert right.bound == math.sqrt(math.log(2 / FALSE_ALARMS) / (2 * size))
        (shape,) = compare({"w": values + 0.2}, {"w": start})
        assert not shape.passed
    if size > 200:
        assert failures(compare({"w": draws[normal] * 2}, {"w": normal}))
    if size > 10000:
        assert failures(compare({"w": rng.uniform(-1, 1, size) * 0.02 * 3**0.5}, {"w": normal}))
    assert failures(compare({"w": np.full(3, 1.0 + 1e-6)}, {"w": ("constant", 1.0)}))
