"""Latency, throughput and memory of predictions, by a clock that the test moves."""

import re

import pytest

from sot_paddle.deploy.stopwatch import Stopwatch


def test_batches_are_timed_and_records_counted():
    now = iter([1.0, 1.5, 2.0, 2.1, 2.5, 2.7, 2.8, 3.0])
    watch = Stopwatch(lambda: next(now))
    run = watch.timed(lambda arrays: arrays["x"] + 1)
    assert [run({"x": x}) for x in range(4)] == [1, 2, 3, 4]
    assert list(watch.counted("abcdefghij")) == list("abcdefghij")
    line = watch.line()
    assert line.startswith("10 records, 5.0 a second; 4 batches, ms each: p50 200.0, p90 410.0,")
    assert "longest 500.0, first 500.0; peak memory " in line
    peak = int(re.search(r"peak memory (\d+) MiB", line)[1])
    assert 10 < peak < 100_000


def test_what_predicted_nothing_says_so():
    assert Stopwatch().line().startswith("nothing predicted; peak memory ")


def test_what_a_model_raises_is_not_counted():
    def broken(arrays):
        raise ValueError("no")

    watch = Stopwatch()
    with pytest.raises(ValueError, match="no"):
        watch.timed(broken)({})
    assert watch.line().startswith("nothing predicted")
