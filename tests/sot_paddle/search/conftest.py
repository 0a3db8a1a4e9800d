"""A stand-in for the training run of train_glue: the same folder, scores and ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from sot_paddle.cli import NonFinite, TrainingStopped
from sot_paddle.train import callbacks, text_command

STEPS = 3


class Bench:
    """A space, command lines for it, and what the stand-in is to do.

    Its loss falls to ``(x - 0.3)^2`` with x, the learning rate, moved by .01 a seed; its accuracy,
    the main score, is 1 - x.

    Attributes:
        stops: (folder's name, step) in which the run is interrupted, once each.
        nan_above: x from which the loss is not finite.
        refuses: the run refuses its data.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.stops: set[tuple[str, int]] = set()
        self.nan_above, self.refuses = 2.0, False
        self.training = ["--task_name", "RTE", "--data_dir", "d", "--model_name_or_path", "m"]

    def run_config(self, config) -> None:
        """Train: remembers each step in the folder, so that it goes on as a training does."""
        out, x = Path(config.output_dir), config.learning_rate + 0.01 * config.seed
        if self.refuses:
            raise ValueError("the stand-in refuses")
        (out / "checkpoint-1").mkdir(parents=True, exist_ok=True)
        (out / "best").mkdir(exist_ok=True)
        with open(out / "started", "a") as stream:
            stream.write("x")
        if x > self.nan_above:
            raise NonFinite("the loss is nan")
        done = len(list(out.glob("step-*")))
        for step in range(done + 1, STEPS + 1):
            if (out.name, step) in self.stops:
                self.stops.remove((out.name, step))
                raise TrainingStopped("stopped", status=130)
            (out / f"step-{step}").mkdir()
            scores = {"loss": (x - 0.3) ** 2 + 1 / step, "acc": 1 - x, "main": 1 - x}
            for watch in callbacks.WATCHES:
                watch(step, STEPS, scores)
        scores = [{"acc": 1 - x, "loss": (x - 0.3) ** 2 + 1 / step} for step in (2, 3, 1)]
        content = {"finished": True, "metric": "acc", "last": scores[1], "best": {"acc": 1 - x / 2}}
        content |= {"evaluations": dict(enumerate(scores)), "options": vars(config)}
        content |= {"predictions": {"test": f"{config.task_name}.tsv"}}
        (out / f"{config.task_name}.tsv").write_text(str(config.seed))
        (out / "metrics.json").write_text(json.dumps(content))

    def space(self, **changes: object) -> list[str]:
        """Write a space that draws x in [0, 1] and a choice; returns a search's command line."""
        lines = {"command": "train_glue", "metric": "loss", "direction": "minimize"}
        lines |= {"trials": 4} | changes
        text = "".join(f"{name}: {value}\n" for name, value in lines.items())
        text += "parameters:\n  learning_rate: {kind: uniform, low: 0.0, high: 1.0}\n"
        text += "  seed: {kind: choice, values: [0]}\n  adam_epsilon: {kind: log_uniform, "
        text += "low: 1.0e-8, high: 1.0e-2}\n"
        (self.folder / "space.yaml").write_text(text, encoding="utf-8")
        return ["--space", str(self.folder / "space.yaml"), "--output_dir", str(self.out)]

    def contents(self, name: str) -> dict[str, str]:
        """What files of this name hold, by the folder they are in."""
        return {
            path.parent.relative_to(self.out).as_posix(): path.read_text()
            for path in self.out.rglob(name)
        }


@pytest.fixture
def bench(tmp_path: Path, monkeypatch) -> Iterator[Bench]:
    """Without waiting for the disk at each score."""
    made = Bench(tmp_path)
    monkeypatch.setattr(text_command, "run_config", made.run_config)
    event.listen(Engine, "connect", _without_waiting)
    yield made
    event.remove(Engine, "connect", _without_waiting)


def _without_waiting(connection, _) -> None:
    connection.execute("PRAGMA synchronous=OFF")
