"""Loss, rate and scores in the logs of a run, as VisualDL and TensorBoard read them."""

from __future__ import annotations

import json
import sys

import pytest
from visualdl import LogReader

from sot_paddle.train import run_record


@pytest.fixture
def logged(tiny, tmp_path):
    """The folder of a run of four steps that logs each, and evaluates twice."""
    out = tmp_path / "out"
    flags = ("--max_steps", "4", "--logging_steps", "1", "--eval_steps", "2", "--warmup_steps", "2")
    tiny.done(out, *flags)
    return out


def visualdl(out) -> dict[str, dict[int, float]]:
    """Tag -> step -> value."""
    (file,) = (out / "runs").glob("vdlrecords*")
    reader = LogReader(file_path=str(file))
    return {
        tag: {record.id: record.value for record in reader.get_data("scalar", tag)}
        for tag in reader.get_tags()["scalar"]
    }


def test_visualdl_has_loss_rate_and_scores(logged):
    found = visualdl(logged)
    metrics = json.loads((logged / "metrics.json").read_text(encoding="utf-8"))
    losses = found["train/loss"]
    assert list(losses) == [1, 2, 3, 4]
    assert sum(losses.values()) / 4 == pytest.approx(metrics["train"]["loss"], rel=1e-6)
    rates = {1: 5e-3, 2: 1e-2, 3: 5e-3, 4: 0.0}  # of the step that follows
    assert found["train/learning_rate"] == pytest.approx(rates, rel=1e-6)
    for name in ("acc", "loss"):
        scores = {int(step): one[name] for step, one in metrics["evaluations"].items()}
        assert found[f"eval/{name}"] == pytest.approx(scores, rel=1e-6)


@pytest.mark.parametrize("package", ["tensorboard", "tensorboardX"])
def test_tensorboard_has_the_same(package, monkeypatch, request):
    """Read back with TensorBoard's own reader."""
    pytest.importorskip(package)
    events = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    if package == "tensorboardX":
        monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    out = request.getfixturevalue("logged")
    (file,) = (out / "runs").glob("events.out.tfevents.*")
    found: dict[str, dict[int, float]] = {}
    for event in events.LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            found.setdefault(value.tag, {})[event.step] = value.simple_value
    expected = visualdl(out)
    assert found.keys() == expected.keys()
    for tag, values in expected.items():
        assert found[tag] == pytest.approx(values, rel=1e-6)
    assert run_record.first_foreign(out) is None
