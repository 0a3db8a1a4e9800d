"""PaDiff's auto_diff on a scene, with the help that its manual asks of a user.

It wraps functions of both frameworks when it is imported, so it runs in a process of its own. The
weights are loaded before and by PaDiff itself where it can; where it cannot pair the layers, its
automatic map of layers is tried, then comparing with the weights as they are.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from align.certify.peers.answer import CANNOT_RUN, FAIL, PASS, Answer
from align.certify.peers.sides import DTYPE, Sides
from align.certify.scene import Scene
from align.frameworks import on_paddle, on_torch

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "mean": {"atol": 1e-4},  # as in its guide to LayerMap; bare defaults fail on float32 rounding
    "strict": {"atol": 1e-4, "rtol": 0, "compare_mode": "strict"},  # its first example
}
RAISED = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError)
RAISED += (ValueError, NotImplementedError)
ATTEMPTS = ("auto_weights", "layer map", "weights as loaded")
_MARK = re.compile(r"\((?P<path>[\w.]+)\)\s+<---\s+\*\*\* HERE")
_PARAMETER = re.compile(r"paddle path:\s+\w+\.(?P<path>[\w.]+)\.\w+\s")
_TYPES = re.compile(r"Type of layer is\s+: (.*)")


def load(folder: str | None) -> ModuleType:
    """Import PaDiff.

    Args:
        folder: source tree or install target, None for the one that is installed.

    Raises:
        ValueError: not importable, or of a version whose interface is not known here.
    """
    os.environ["PADIFF_PATH_LOG"] = "ON"
    if folder is not None:
        sys.path.insert(0, str(Path(folder).resolve()))
    try:
        import padiff
    except ImportError as error:
        raise ValueError(
            f"PaDiff cannot be imported ({error}): install it into a folder with `pip install "
            "--target FOLDER --no-deps padiff==0.2.0` and pass --padiff FOLDER"
        ) from error
    if not hasattr(padiff, "auto_diff"):
        version = getattr(padiff, "__version__", "of unknown version")
        raise ValueError(f"PaDiff {version} has no auto_diff: its interface is not known here")
    return padiff


def answer(padiff: ModuleType, scene: Scene, clean: Scene, setting: str) -> Answer:
    """Run PaDiff on a scene.

    Args:
        padiff: from `load`.
        scene: with or without a fault.
        clean: the same scene without; the first way to pair the weights that passes on it is used,
            which is more help than a user has.
        setting: one of SETTINGS.

    Returns:
        CANNOT_RUN when no way runs at all.
    """
    key = clean.name, clean.seed, setting
    if key not in _WAYS:
        _WAYS[key] = _way(padiff, clean, setting)
    attempt, found = _WAYS[key]
    if scene is clean:
        return found
    if found.state != PASS:
        return Answer(CANNOT_RUN, said=found.said)
    return _attempt(padiff, scene, dict(SETTINGS[setting]), attempt)


_WAYS: dict[tuple[str, int, str], tuple[str, Answer]] = {}
"""(scene, seed, setting) -> the attempt that passes without a fault, and what was said."""


def _way(padiff: ModuleType, clean: Scene, setting: str) -> tuple[str, Answer]:
    """The first attempt that passes; else the last one with what the first ones said."""
    said, failed = "", False
    for attempt in ATTEMPTS:
        found = _attempt(padiff, clean, dict(SETTINGS[setting]), attempt)
        if found.state == PASS:
            return attempt, found
        failed |= found.state == FAIL
        said = said or f"{attempt}: {found.check} {found.said}"
    return ATTEMPTS[-1], Answer(FAIL if failed else CANNOT_RUN, said=said)


def _attempt(padiff: ModuleType, scene: Scene, setting: dict, attempt: str) -> Answer:
    printed = io.StringIO()
    with scene.planted(), contextlib.redirect_stdout(printed), _log_folder() as folder:
        sides = Sides(scene)
        layer, module = sides.paddle(scene.train), sides.torch(scene.train)
        options = {"auto_weights": attempt != "weights as loaded" and not scene.converted}
        options["steps"] = max(scene.steps, 1)
        try:
            with _modes():
                if hasattr(padiff, "create_model"):  # 0.3 and later: the reference comes first
                    passed = _later(padiff, sides, layer, module, {**options, **setting}, attempt)
                else:
                    if attempt == "layer map":
                        options["layer_map"] = padiff.LayerMap()
                        options["layer_map"].auto(layer, module)
                    given = _inputs(sides, layer, module)
                    options |= _training(sides, layer, module)
                    passed = padiff.auto_diff(layer, module, given, options=setting, **options)
        except RAISED as error:
            text = " ".join(str(error).split())[:200]
            return Answer(CANNOT_RUN, said=f"{type(error).__name__}: {text}")
        files = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.log"))]
    text = "\n".join([printed.getvalue(), *files])
    if passed:
        return Answer(PASS)
    if "Assign weight Failed" in text:
        return Answer(CANNOT_RUN, said="Assign weight Failed")
    return Answer(FAIL, _check(text), _place(text), _said(text))


def _later(
    padiff: ModuleType, sides: Sides, layer: Any, module: Any, options: dict, attempt: str
) -> bool:
    """The interface of 0.3 and later, without its training options (not verified here)."""
    options.pop("steps")
    own, theirs = _inputs(sides, layer, module)
    base, raw = padiff.create_model(module), padiff.create_model(layer)
    if attempt == "layer map":
        base.auto_layer_map("base")
        raw.auto_layer_map("raw")
    return padiff.auto_diff(base, raw, (theirs, own), **options)


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


@contextlib.contextmanager
def _modes() -> Iterator[None]:
    with (
        on_torch.default_dtype(DTYPE),
        on_paddle.default_dtype(DTYPE),
        on_torch.dropout_off(),
        on_paddle.dropout_off(),
    ):
        yield


def _inputs(sides: Sides, layer: Any, module: Any) -> tuple[dict, dict]:
    """By keyword for both models, as PaDiff passes them."""
    given = sides.plan.cast(DTYPE, DTYPE)
    found = []
    for framework, model in ((on_paddle, layer), (on_torch, module)):
        named = given if isinstance(given, Mapping) else _named(given, model)
        found.append({name: framework.tensor(value) for name, value in named.items()})
    return found[0], found[1]


def _named(given: tuple, model: Any) -> dict[str, Any]:
    names = list(inspect.signature(model.forward).parameters)
    return dict(zip(names, given, strict=False))


def _training(sides: Sides, layer: Any, module: Any) -> dict[str, Any]:
    """Loss functions and optimizers, Paddle's first, where the scene has them."""
    plan, found = sides.plan, {}
    if plan.loss is not None:
        found["loss_fn"] = (
            lambda output: on_paddle.loss_of(plan, output, DTYPE, DTYPE),
            lambda output: on_torch.loss_of(plan, output, DTYPE, DTYPE),
        )
    if plan.optimizer is not None and plan.steps:
        steppers = []
        for framework, model in ((on_paddle, layer), (on_torch, module)):
            optimizer, scheduler = framework.make_optimizer(plan, model)[:2]
            steppers.append(_stepper(framework, optimizer, scheduler, model))
        found["optimizer"] = tuple(steppers)
    return found


def _stepper(framework: Any, optimizer: Any, scheduler: Any, model: Any) -> Any:
    return lambda: framework.advance(optimizer, scheduler, model)


_STAGES = (
    (
        "forward",
        ("Diff found in `Forward", "While checking forward", "diff found at their output!"),
    ),
    ("loss", ("Diff found in loss",)),
    ("backward", ("Diff found in `Backward", "While checking backward", "model grad after")),
    ("optimizer", ("model weights after optimizer step",)),
)
"""What it prints, in the order of its stages."""


def _check(text: str) -> str:
    """Which of its stages failed."""
    found = (name for name, marks in _STAGES if any(mark in text for mark in marks))
    return next(found, "")


def _place(text: str) -> str:
    """The Paddle layer that is marked in its printed tree, without the model's own name."""
    found = _MARK.search(text.partition("Paddle Model\n")[2].partition("Torch Model\n")[0])
    if found:
        return found["path"].partition(".")[2] or "(model)"
    found = _PARAMETER.search(text)  # gradients and weights are listed by parameter
    return found["path"] if found else ""


def _said(text: str) -> str:
    found = _TYPES.search(text)
    return (found[1] if found else text.strip().rpartition("\n")[2])[:200]
