"""One worker of a peer: tasks as JSON lines in, answers as JSON lines out.

Started by `benchmark` as ``python -m align.certify.peers.worker TOOL [FOLDER]``, single-threaded.
What the tool and the frameworks print goes to the standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from align.certify.peers.answer import CANNOT_RUN, Answer
from align.certify.scene import Scene

ERRORS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError)
ERRORS += (OSError, RuntimeError, TypeError, ValueError)
TOOLS = ("reprod_log", "padiff_mean", "padiff_strict")


def tool_names(folder: str | None, installed: bool) -> tuple[str, ...]:
    """The tools that can be asked here.

    Args:
        folder: of PaDiff, as the user names it.
        installed: whether PaDiff can be imported without.

    Raises:
        ValueError: the folder holds no package ``padiff``.
    """
    if folder is not None and not (Path(folder) / "padiff" / "__init__.py").is_file():
        raise ValueError(
            f"--padiff {folder}: no package padiff there; expected the folder of `pip install "
            "--target FOLDER --no-deps padiff==0.2.0` or a source tree"
        )
    return TOOLS if folder is not None or installed else TOOLS[:1]


Tool = Callable[[Scene, Scene], Answer]


def tool_of(name: str, folder: str | None) -> Tool:
    """The function that asks a tool about a scene, given the same scene without the fault.

    Args:
        name: one of TOOLS.
        folder: of PaDiff.

    Raises:
        ValueError: no such tool, or it cannot be imported.
    """
    if name == "reprod_log":
        from align.certify.peers import classic

        return lambda scene, _: classic.answer(scene)
    if name not in TOOLS:
        raise ValueError(f"tool {name!r}: expected one of {', '.join(TOOLS)}")
    from align.certify.peers import padiff_run

    padiff = padiff_run.load(folder)
    setting = name.partition("_")[2]
    return lambda scene, clean: padiff_run.answer(padiff, scene, clean, setting)


def ask(tool: Tool, task: dict[str, Any]) -> Answer:
    """The tool's answer to one task; an error of the run is CANNOT_RUN with its words."""
    from align.certify import catalogue, scenes

    began = time.perf_counter()
    try:
        if "fault" in task:
            fault = catalogue.find(task["fault"])
            clean = scenes.build(fault.scene, task["seed"])
            found = tool(fault.plant(clean), clean)
        else:
            clean = scenes.build(task["scene"], task["seed"])
            found = tool(clean, clean)
    except ERRORS as error:
        text = " ".join(str(error).split())[:200]
        found = Answer(CANNOT_RUN, said=f"{type(error).__name__}: {text}")
    return dataclasses.replace(found, seconds=time.perf_counter() - began)


def main() -> int:
    """Serve until the standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints must not mix with the answers
    tool = tool_of(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
    for line in sys.stdin:
        found = ask(tool, json.loads(line))
        answers.write(json.dumps(dataclasses.asdict(found)) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
