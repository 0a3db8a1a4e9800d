"""The catalogue of the certificate through reprod_log and PaDiff, beside what this suite found.

Each is used as its manual says, on pairs in float32 with our weights on both sides and dropout off.
docs/certificate.md holds the table and how each tool was used. Without --padiff: reprod_log alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import inspect
import io
import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sot_paddle.cli import CommandParser, command
from sot_paddle.reading import read_object
from sot_paddle.runtime import ignore_import_warnings

ignore_import_warnings()

import numpy as np
from reprod_log import ReprodDiffHelper, ReprodLogger

from align.commands.spec import USER_ERRORS
from align.frameworks import on_paddle, on_torch
from align.pair import runs
from align.pair.any_pair import AnyPair, Setup
from align.processes import Failure, TaskBatch, outcomes
from align.record.arrays import leaves
from align.record.recording import loss_of, run_model
from tests.certificate import faults, scenes
from tests.certificate.planting import plant
from tests.certificate.scene import Scene

_EPILOG = """\
install PaDiff into a folder of its own:
  pip install --target FOLDER --no-deps padiff==0.2.0

exit status: 0 this suite sees every fault that a peer sees; 1 it misses one; 2 could not run

example:
  python -m tests.certificate.run --json certificate.json
  python -m tests.certificate.peers certificate.json --padiff FOLDER"""
DTYPE = "float32"
PASS, FAIL, CANNOT_RUN = "pass", "fail", "cannot run"
NAMES = {
    "reprod_log": "reprod_log 1.0.1, five checks",
    "padiff_mean": "PaDiff, compare_mode mean",
    "padiff_strict": "PaDiff, compare_mode strict",
}
SEEDS, LIMIT = 3, 300.0  # clean seeds; seconds for one task


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a tool says of a scene: state, first failing check, layer it names, its words."""

    state: str
    check: str = ""
    place: str = ""
    said: str = ""


def sides_of(scene: Scene) -> tuple[Scene, Callable[[bool], tuple[Any, Any]]]:
    """What is asked, and what builds both models with the same weights, PyTorch's first."""
    shake = scene.shake and not scene.converted
    plan = dataclasses.replace(scene, shake=shake, dtype=DTYPE)
    with tempfile.TemporaryDirectory() as folder:
        pair = AnyPair(Setup(plan, Path(folder)), DTYPE)

    def build(train: bool) -> tuple[Any, Any]:
        if plan.converted:  # with the weights that its user converted
            return pair.reference_model(DTYPE, train), on_paddle.prepare(plan, DTYPE, train)
        return pair.reference_model(DTYPE, train), pair.our_model(train)

    return plan, build


# ---- reprod_log: stock logger and helper, mean difference, default threshold of 1e-6

BATCHES, RATES, ITERATIONS = 5, 20, 10  # of the data, learning rate and backward checks
PLAIN = {"name": "sgd", "lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0}
Arrays = dict[str, np.ndarray]


def ask_reprod_log(scene: Scene) -> Answer:
    """Run every check that a scene has material for; the first that fails is the answer."""
    with scene.planted():
        for name, arrays in _checks(*sides_of(scene)):
            if said := _reprod_log_says(name, *arrays):
                return Answer(FAIL, name, said=said)
    return Answer(PASS)


def _reprod_log_says(name: str, *sides: Arrays) -> str:
    """The failing lines of the stock report, "" when it passes."""
    root, helper = logging.getLogger(), ReprodDiffHelper()
    before = list(root.handlers)  # it adds some at every report and never takes them away
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{name}_{side}.npy") for side in ("torch", "paddle")]
        for path, arrays in zip(paths, sides, strict=True):
            logger = ReprodLogger()
            for key, value in arrays.items():
                logger.add(key, value)
            logger.save(path)
        log = Path(folder) / f"{name}.log"
        try:
            helper.compare_info(*(helper.load_info(path) for path in paths))
            helper.report(path=str(log))
        except (AssertionError, ValueError) as error:  # it stops: a user sees that
            return f"{type(error).__name__}: {error}"[:200]
        finally:
            for handler in set(root.handlers) - set(before):
                root.removeHandler(handler)
                handler.close()
        text = log.read_text(encoding="utf-8", errors="replace").split("\n")
    wrong = [line.partition("INFO: ")[2].strip() for line in text if "passed: False" in line]
    return "; ".join(wrong[:2])[:200]


def _checks(plan: Scene, build: Callable) -> Iterator[tuple[str, list[Arrays]]]:
    """Name and both sides' arrays of each check, in the order of the guide."""
    if plan.data is not None:
        yield "data", [_batches(source) for source in plan.data]
    given = plan.cast(DTYPE, DTYPE)
    with on_torch.default_dtype(DTYPE), on_paddle.default_dtype(DTYPE):
        models = zip((on_torch, on_paddle), build(False), strict=True)
        both = [(f, run_model(f, model, given)[0]) for f, model in models]
        tensors = [
            [(f, t) for _, t in leaves(output, f.is_tensor) if f.numpy(t).dtype.kind == "f"]
            for f, output in both
        ]
        arrays = [[f.numpy(tensor) for f, tensor in of_side] for of_side in tensors]
        yield "forward", [{f"output_{i}": a for i, a in enumerate(one)} for one in arrays]
        if plan.metric is not None:
            yield "metric", [_metrics(plan, i, *one[0]) for i, one in enumerate(tensors)]
        if plan.loss is not None:
            losses = (f.numpy(loss_of(f, plan, output, DTYPE, DTYPE)) for f, output in both)
            yield "loss", [{"loss": np.atleast_1d(loss)} for loss in losses]
    if plan.schedule is not None:
        count = min(plan.schedule_steps, RATES)
        yield "learning_rate", [{"lr": np.asarray(s(count), np.float64)} for s in plan.schedule]
    optimizer = PLAIN if plan.optimizer is None else plan.optimizer
    asked = dataclasses.replace(plan, optimizer=optimizer, steps=ITERATIONS, dropout="off")
    models = zip((on_torch, on_paddle), build(True), strict=True)
    done = [runs.train(framework, model, asked, DTYPE, DTYPE) for framework, model in models]
    if plan.schedule is None:
        yield "learning_rate", [{"lr": np.asarray(run.learning_rates)} for run in done]
    yield "backward", [{"loss": np.asarray(run.losses)} for run in done]
    yield "training", [{"final_loss": np.asarray(run.losses[-1:])} for run in done]


def _batches(source: Any) -> Arrays:
    found: Arrays = {}
    for i, batch in enumerate(islice(source() if callable(source) else source, BATCHES)):
        named = batch if isinstance(batch, Mapping) else dict(enumerate(batch))
        for key, value in named.items():
            found[f"{key}_{i}"] = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    return found


def _metrics(plan: Scene, side: int, framework: Any, output: Any) -> Arrays:
    value = plan.metric[side](output, framework.tensor(np.asarray(plan.labels)))
    named = value if isinstance(value, Mapping) else {"metric": value}
    return {str(name): np.atleast_1d(np.asarray(float(one))) for name, one in named.items()}


# ---- PaDiff 0.2: auto_diff, which wraps functions of both frameworks when it is imported

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "padiff_mean": {"atol": 1e-4},  # its guide to LayerMap; bare defaults fail on rounding
    "padiff_strict": {"atol": 1e-4, "rtol": 0, "compare_mode": "strict"},  # its first example
}
ATTEMPTS = ("auto_weights", "layer map", "weights as loaded")
_STAGES = {
    "forward": ("Diff found in `Forward", "While checking forward", "diff found at their output!"),
    "loss": ("Diff found in loss",),
    "backward": ("Diff found in `Backward", "While checking backward", "model grad after"),
    "optimizer": ("model weights after optimizer step",),
}
"""What it prints, in the order of its stages."""
_MARK = re.compile(r"\((?P<path>[\w.]+)\)\s+<---\s+\*\*\* HERE")
_PARAMETER = re.compile(r"paddle path:\s+\w+\.(?P<path>[\w.]+)\.\w+\s")
_TYPES = re.compile(r"Type of layer is\s+: (.*)")


@functools.cache
def way(tool: str, scene: str, seed: int) -> tuple[str, Answer]:
    """The first way to pair the weights that passes without a fault: more help than a user has."""
    clean, found = scenes.build(scene, seed), []
    for attempt in ATTEMPTS:
        found.append(_attempt(clean, SETTINGS[tool], attempt))
        if found[-1].state == PASS:
            return attempt, found[-1]
    return "", next((answer for answer in found if answer.state == FAIL), found[0])


def ask_padiff(tool: str, scene: Scene, is_clean: bool) -> Answer:
    """Run PaDiff on a scene, with or without a fault; CANNOT_RUN where it fails without one."""
    attempt, clean = way(tool, scene.name, scene.seed)
    if is_clean or clean.state != PASS:
        return clean if is_clean else Answer(CANNOT_RUN, said=clean.said)
    return _attempt(scene, SETTINGS[tool], attempt)


def _attempt(scene: Scene, setting: Mapping[str, Any], attempt: str) -> Answer:
    import padiff

    printed = io.StringIO()
    with scene.planted(), contextlib.redirect_stdout(printed), _log_folder() as folder:
        plan, build = sides_of(scene)
        module, layer = build(scene.train)
        options = {"auto_weights": attempt != "weights as loaded" and not scene.converted}
        options["steps"] = max(scene.steps, 1)
        try:
            with contextlib.ExitStack() as stack:
                for framework in (on_torch, on_paddle):
                    stack.enter_context(framework.default_dtype(DTYPE))
                    stack.enter_context(runs.without_dropout(framework.FUNCTIONAL))
                if attempt == "layer map":
                    options["layer_map"] = padiff.LayerMap()
                    options["layer_map"].auto(layer, module)
                options |= _training(plan, layer, module)
                given = _by_keyword(plan, layer, module)
                passed = padiff.auto_diff(layer, module, given, options=dict(setting), **options)
        except USER_ERRORS as error:
            return _cannot_run(error)
        files = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.log"))]
    text = "\n".join([printed.getvalue(), *files])
    if passed:
        return Answer(PASS)
    if "Assign weight Failed" in text:
        return Answer(CANNOT_RUN, said="Assign weight Failed")
    failing = (name for name, said in _STAGES.items() if any(words in text for words in said))
    said = found[1] if (found := _TYPES.search(text)) else text.strip().rpartition("\n")[2]
    return Answer(FAIL, next(failing, ""), _place(text), said[:200])


def _cannot_run(error: Exception) -> Answer:
    return Answer(CANNOT_RUN, said=f"{type(error).__name__}: {' '.join(str(error).split())}"[:200])


@contextlib.contextmanager
def _log_folder() -> Iterator[Path]:
    """PaDiff writes long trees beside the first entry of sys.path: give it a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "diff_log"
        logs.mkdir()
        sys.path.insert(0, folder)
        try:
            yield logs
        finally:
            sys.path.remove(folder)


def _by_keyword(plan: Scene, *models: Any) -> tuple[dict, ...]:
    """The inputs of both models by their names, as PaDiff passes them."""
    given, found = plan.cast(DTYPE, DTYPE), []
    for framework, model in zip((on_paddle, on_torch), models, strict=True):
        names = inspect.signature(model.forward).parameters
        named = given if isinstance(given, Mapping) else dict(zip(names, given, strict=False))
        found.append({name: framework.tensor(value) for name, value in named.items()})
    return tuple(found)


def _training(plan: Scene, *models: Any) -> dict[str, Any]:
    """Loss functions and optimizers, Paddle's first, where the scene has them."""

    def loss(framework: Any) -> Any:
        return lambda output: loss_of(framework, plan, output, DTYPE, DTYPE)

    def stepper(framework: Any, model: Any) -> Any:
        optimizer, scheduler = framework.make_optimizer(plan, model)[:2]
        return lambda: runs.advance(framework, optimizer, scheduler, model)

    found, sides = {}, (on_paddle, on_torch)
    if plan.loss is not None:
        found["loss_fn"] = tuple(map(loss, sides))
    if plan.optimizer is not None and plan.steps:
        found["optimizer"] = tuple(map(stepper, sides, models))
    return found


def _place(text: str) -> str:
    """The Paddle layer that is marked in its printed tree, or whose parameter is listed."""
    if mark := _MARK.search(text.partition("Paddle Model\n")[2].partition("Torch Model\n")[0]):
        return mark["path"].partition(".")[2] or "(model)"
    return found["path"] if (found := _PARAMETER.search(text)) else ""


def answers(tasks: Sequence[dict[str, Any]], tool: str, folder: str | None) -> Iterator[Answer]:
    """What a worker does: ask a tool about each {"scene", "seed"}, with a "fault" or without."""
    os.environ["PADIFF_PATH_LOG"] = "ON"
    sys.path[:0] = [folder] if folder else []
    for task in tasks:
        scene, fault = scenes.build(task["scene"], task["seed"]), task.get("fault")
        try:
            scene = plant(faults.find(fault), scene) if fault else scene
            classic = tool == "reprod_log"
            yield ask_reprod_log(scene) if classic else ask_padiff(tool, scene, not fault)
        except USER_ERRORS as error:
            yield _cannot_run(error)


def checks_of(tool: str, step: str) -> tuple[str, ...]:
    """The checks of a tool that are meant for faults of a step."""
    if tool == "reprod_log" and step == "optimizer":
        return ("backward", "training")
    step = "forward" if step == "weights" else step
    return (step,) if tool == "reprod_log" or step in _STAGES else ()


def is_located(tool: str, row: Mapping[str, Any], answer: Answer) -> bool:
    """The check that is meant for a fault failed, and a layer that is named is the right one."""
    if answer.state != FAIL or answer.check not in checks_of(tool, row["step"]):
        return False
    layer = answer.place if row["step"] in ("forward", "backward") else ""
    return not layer or faults.find(row["fault"]).is_at(layer)


def ask(tool: str, rows: Sequence[dict], jobs: int, folder: str | None) -> dict[str, Answer]:
    """The answers of one tool by name of a fault, and by pair and seed of its clean runs."""
    clean = [(row["scene"], seed) for row in rows for seed in range(SEEDS)]
    tasks = {f"{s}, seed {n}": {"scene": s, "seed": n} for s, n in clean}
    for row in rows:
        if checks_of(tool, row["step"]):
            tasks[row["fault"]] = {"scene": row["scene"], "seed": 0, "fault": row["fault"]}
    names, found = list(tasks), {}
    work = functools.partial(answers, tool=tool, folder=folder)
    batches = [TaskBatch((i,)) for i in range(len(tasks))]
    running = outcomes(list(tasks.values()), work, batches, jobs, LIMIT, quiet=True)
    with contextlib.closing(running) as finished:
        for i, outcome in finished:
            died = isinstance(outcome, Failure)
            found[names[i]] = Answer(CANNOT_RUN, said=outcome.why) if died else outcome
            print(f"{tool}: {len(found)} of {len(tasks)}", end="\r", file=sys.stderr)
    return found


def show(certificate: Mapping[str, Any], found: Mapping[str, Mapping[str, Answer]]) -> int:
    """Print the comparison in Markdown; how many faults a peer sees and this suite does not."""
    rows, total = certificate["rows"], certificate["faults"]
    titles = ("tool", "has a check for", "detected", "located", "explained", "false alarms")
    lines = [(*titles, "does not run on"), ("---", *["---:"] * 6)]
    counts = [f"{certificate[key]:g}" for key in ("detected", "located", "explained")]
    alarms = f"{certificate['false_alarms']} of {certificate['clean_runs']}"
    lines.append(("this suite", f"{total} of {total}", *counts, alarms, "–"))
    missed = set()
    for tool, said in found.items():
        planted = [(row, said[row["fault"]]) for row in rows if row["fault"] in said]
        seen = [row for row, answer in planted if answer.state == FAIL]
        missed |= {row["fault"] for row in seen if not row["detected"]}
        states = [answer.state for name, answer in said.items() if ", seed " in name]
        line = [f"{len(planted)} of {total}", len(seen)]
        line += [sum(is_located(tool, row, answer) for row, answer in planted), "–"]
        line += [f"{states.count(state)} of {len(states)}" for state in (FAIL, CANNOT_RUN)]
        lines.append((NAMES[tool], *map(str, line)))
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    names = ", ".join(sorted(missed)) or "none"
    print(f"\nFaults that a peer sees and this suite does not: {names}.")
    return len(missed)


@command("peers: error")
def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    parser = CommandParser(
        description=__doc__,
        status="",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("certificate", metavar="FILE", help="of make certificate, --json")
    parser.add_argument("--padiff", metavar="FOLDER", help="where PaDiff 0.2 is installed")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes at a time")
    options = parser.parse_args(arguments)
    if options.padiff and not (Path(options.padiff) / "padiff" / "__init__.py").is_file():
        raise ValueError(f"--padiff {options.padiff}: no package padiff there; see --help")
    certificate = read_object(options.certificate, {"rows": list})
    tools = list(NAMES) if options.padiff else ["reprod_log"]
    found = {t: ask(t, certificate["rows"], options.jobs, options.padiff) for t in tools}
    return min(show(certificate, found), 1)


if __name__ == "__main__":
    sys.exit(main())
