"""reprod_log's documented checks: data, forward, metric, loss, learning rate, backward, training.

The stock logger writes a file for each side, the stock helper reads both, takes the mean absolute
difference of every array and compares it with its default threshold of 1e-6. Models are in float32;
the same weights are loaded first, the iterations of the backward check have dropout off.

Source: specs.md D.5 for what published checks log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from reprod_log import ReprodDiffHelper, ReprodLogger

from align.certify.peers.answer import FAIL, NO_CHECK, PASS, Answer
from align.certify.peers.sides import DTYPE, Sides
from align.certify.scene import Scene
from align.frameworks import on_paddle, on_torch
from align.pair import runs
from align.record.nested import leaves

BATCHES = 5  # of the data check
RATES = 20  # of the learning rate check
ITERATIONS = 10  # of the backward check
PLAIN = {"name": "sgd", "lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0}
Arrays = dict[str, np.ndarray]
STEPS = {
    "data": ("data",),
    "forward": ("forward", "weights"),
    "metric": ("metric",),
    "loss": ("loss",),
    "learning_rate": ("learning_rate",),
    "backward": ("backward", "optimizer"),
    "training": ("training", "optimizer"),
}
"""Check -> the steps of the suite whose faults it is meant to show."""


def answer(scene: Scene) -> Answer:
    """Run every check that a scene has material for; the first that fails is the answer."""
    ran = False
    with scene.planted():
        for name, sides in _checks(Sides(scene)):
            ran = True
            said = _judged(name, *sides)
            if said:
                return Answer(FAIL, name, said=said)
    return Answer(PASS) if ran else Answer(NO_CHECK)


def _judged(name: str, torch_arrays: Arrays, paddle_arrays: Arrays) -> str:
    """The failing lines of the stock report, "" when it passes."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for side, arrays in (("torch", torch_arrays), ("paddle", paddle_arrays)):
            logger = ReprodLogger()
            for key, value in arrays.items():
                logger.add(key, value)
            paths.append(str(Path(folder) / f"{name}_{side}.npy"))
            logger.save(paths[-1])
        helper = ReprodDiffHelper()
        log = Path(folder) / f"{name}.log"
        silent = contextlib.redirect_stdout(io.StringIO())
        with silent, contextlib.redirect_stderr(io.StringIO()), _handlers_put_back():
            try:
                helper.compare_info(*(helper.load_info(path) for path in paths))
            except (AssertionError, ValueError) as error:  # it stops: a user sees that
                return f"{type(error).__name__}: {error}"[:200]
            helper.report(path=str(log))
        text = log.read_text(encoding="utf-8", errors="replace").split("\n")
    wrong = [line.partition("INFO: ")[2].strip() for line in text if "passed: False" in line]
    return "; ".join(wrong[:2])[:200]


@contextlib.contextmanager
def _handlers_put_back() -> Iterator[None]:
    """The tool adds handlers to the root logger at every report and never takes them away."""
    root = logging.getLogger("root")
    held, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in set(root.handlers) - set(held):
            handler.close()
        root.handlers[:] = held
        root.setLevel(level)


def _checks(sides: Sides) -> Iterator[tuple[str, tuple[Arrays, Arrays]]]:
    """Name and both sides' arrays of each check, in the order of the guide."""
    plan = sides.plan
    if plan.data is not None:
        yield "data", tuple(_batches(source) for source in plan.data)
    models = sides.torch(False), sides.paddle(False)
    given = plan.cast(DTYPE, DTYPE)
    frameworks = (on_torch, on_paddle)
    with on_torch.default_dtype(DTYPE), on_paddle.default_dtype(DTYPE):
        outputs = [f.call(m, given)[0] for f, m in zip(frameworks, models, strict=True)]
        found = [
            [t for _, t in leaves(o, f.is_tensor) if f.numpy(t).dtype.kind == "f"]
            for f, o in zip(frameworks, outputs, strict=True)
        ]
        yield (
            "forward",
            tuple(
                {f"output_{i}": f.numpy(t) for i, t in enumerate(held)}
                for f, held in zip(frameworks, found, strict=True)
            ),
        )
        if plan.metric is not None:
            yield "metric", tuple(_metrics(plan, i, held[0]) for i, held in enumerate(found))
        if plan.loss is not None:
            losses = (
                f.numpy(f.loss_of(plan, o, DTYPE, DTYPE))
                for f, o in zip(frameworks, outputs, strict=True)
            )
            yield "loss", tuple({"loss": np.atleast_1d(loss)} for loss in losses)
    if plan.schedule is not None:
        count = min(plan.schedule_steps, RATES)
        rates = (np.asarray(side(count), np.float64) for side in plan.schedule)
        yield "learning_rate", tuple({"lr": held} for held in rates)
    yield from _trained(sides)


def _batches(source: Any) -> Arrays:
    found: Arrays = {}
    for i, batch in enumerate(islice(source() if callable(source) else source, BATCHES)):
        named = batch if isinstance(batch, Mapping) else dict(enumerate(batch))
        for key, value in named.items():
            array = value.numpy() if hasattr(value, "numpy") else value
            found[f"{key}_{i}"] = np.asarray(array)
    return found


def _metrics(plan: Any, side: int, output: Any) -> Arrays:
    framework = (on_torch, on_paddle)[side]
    value = plan.metric[side](output, framework.tensor(np.asarray(plan.labels)))
    named = value if isinstance(value, Mapping) else {"metric": value}
    return {str(name): np.atleast_1d(np.asarray(float(one))) for name, one in named.items()}


def _trained(sides: Sides) -> Iterator[tuple[str, tuple[Arrays, Arrays]]]:
    """Losses and rates of some iterations, and the loss at their end."""
    plan = sides.plan
    optimizer = PLAIN if plan.optimizer is None else plan.optimizer
    plan = dataclasses.replace(plan, optimizer=optimizer, steps=ITERATIONS, dropout="off")
    held = [
        runs.train(framework, model, plan, DTYPE, DTYPE)
        for framework, model in ((on_torch, sides.torch(True)), (on_paddle, sides.paddle(True)))
    ]
    if plan.schedule is None:
        yield "learning_rate", tuple({"lr": np.asarray(run.learning_rates)} for run in held)
    yield "backward", tuple({"loss": np.asarray(run.losses)} for run in held)
    yield "training", tuple({"final_loss": np.asarray(run.losses[-1:])} for run in held)
