"""Loss, rate and scores in the logs of a run, as VisualDL reads them."""

from __future__ import annotations

import threading

import pytest
from visualdl import LogReader

from sot_paddle.failures import NonFiniteLoss
from sot_paddle.train.watching import watched_by
from tests.sot_paddle.train.run_output import metrics


def test_visualdl_has_loss_rate_and_scores(tiny, tmp_path):
    out = tmp_path / "out"
    flags = ("--max_steps", "4", "--logging_steps", "1", "--eval_steps", "2", "--warmup_steps", "2")
    tiny.done(out, *flags)
    logged = {}
    for file in (out / "runs").glob("vdlrecords*"):
        reader = LogReader(file_path=str(file))
        for tag in reader.get_tags().get("scalar", ()):
            logged[tag] = {one.id: one.value for one in reader.get_data("scalar", tag)}
    losses = logged["train/loss"]
    assert list(losses) == [1, 2, 3, 4]
    assert sum(losses.values()) / 4 == pytest.approx(metrics(out)["train"]["loss"], rel=1e-6)
    rates = {1: 5e-3, 2: 1e-2, 3: 5e-3, 4: 0.0}  # of the step that follows
    assert logged["train/learning_rate"] == pytest.approx(rates, rel=1e-6)
    for name in ("acc", "loss"):
        evaluations = metrics(out)["evaluations"].items()
        scores = {int(step): one[name] for step, one in evaluations}
        assert logged[f"eval/{name}"] == pytest.approx(scores, rel=1e-6)


def test_a_training_that_is_ended_early_leaves_no_open_log(tiny, tmp_path):
    """A search goes on in this process; each log has a thread."""

    def end(step, steps, scores):
        raise NonFiniteLoss("ended by the search")

    threads = set(threading.enumerate())
    with watched_by(end):
        assert "ended by the search" in tiny.refused(tmp_path / "out", "--max_steps", "2")
    assert set(threading.enumerate()) <= threads
