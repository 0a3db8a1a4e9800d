"""One worker of a run of mutants: a copy of the tree in which one file is edited at a time.

It makes its copy, loads the frameworks once and forks a process for each task, which imports the
project from the copy. So an edit of a default or of a table is as real as one of a formula, and a
mutant that ends its process ends nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COPIED = ("align", "configs", "docs/examples", "sot_paddle", "sot_torch_ref")
"""What a copy of the tree holds: the code, and the files that cases read."""
COPY = ".copy-for-mutants"
"""A file that only a copy of the tree has: nothing is written where it is missing."""
OURS = ("sot_paddle", "align")
MEMORY = 12 * 2**30  # bytes that a mutant may ask for
PATIENCE_S, SLOWER = 20.0, 8.0  # a check may take its recorded time so often, and so much more
_SAID = 300  # characters of a message
_NUMBERS = itertools.count(1)


def answers(tasks: Sequence[Mapping[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    """Do tasks in this process's copy of the tree; see `answer`."""
    for task in tasks:
        yield answer(task, folder)


def answer(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Do one task in this process's copy of the tree.

    Args:
        task: {"record": check} or {"file", "text", "checks"}: an edited file and the checks that it
            has to get past, each with the seconds that it takes without an edit.
        folder: of the run; the copies are made in there.

    Returns:
        ``end``: ``recorded``, or how the mutant ended; ``seconds``; and what `record` or `run` say.
    """
    root = _prepared(folder)
    with edited(root, task.get("file"), task.get("text", ""), next(_NUMBERS)):
        return _forked(task, root)


@functools.cache
def _prepared(folder: Path) -> Path:
    """Make the copy and load the frameworks, once in a process."""
    root = copied(folder / str(os.getpid()))
    quiet = importlib.import_module("sot_paddle.runtime")
    quiet.quiet_imports()
    for name in ("paddlenlp.transformers", "sot_torch_ref", "timm", "transformers.models.bert"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a million objects that no fork has to look through again
    return root


def copied(place: Path) -> Path:
    """Copy what the checks need of the tree into a new folder; returns it."""
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name)
    (place / COPY).touch()
    return place


@contextlib.contextmanager
def edited(root: Path, file: str | None, text: str, number: int) -> Iterator[None]:
    """Hold another text in one file of a copy, for the length of the block.

    Args:
        root: folder of the copy.
        file: its path in there, None for no edit.
        text: what it holds meanwhile.
        number: of the task; another one is another time of change, so that no compiled file of an
            earlier text is taken for it.

    Raises:
        ValueError: the folder is no copy.
    """
    if not (root / COPY).is_file():
        raise ValueError(f"{root} is no copy of the tree: mutants are written into a copy only")
    if file is None:
        yield
        return
    path = root / file
    before, times = path.read_bytes(), path.stat()
    path.write_text(text, encoding="utf-8")
    os.utime(path, (number, number))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _forked(task: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """What a new process answers to a task; how it ended when it did not answer."""
    began = time.perf_counter()
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        os.setsid()
        _live(writer, task, root)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as answers:
            said = answers.read()
        _, status = os.waitpid(process, 0)
    finally:  # with the programs that it started, also when this is interrupted
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    if said:
        found = json.loads(said)
    elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        found = {"end": "timeout", "said": "took far longer than without the edit"}
    else:
        found = {"end": "crashed", "said": f"the process ended with status {status}"}
    return found | {"seconds": time.perf_counter() - began}


def _live(writer: int, task: Mapping[str, Any], root: Path) -> None:
    """The life of the forked process: the project is imported from the copy."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    os.chdir(root)
    sys.dont_write_bytecode = "text" in task
    os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}  # of its programs
    found: dict[str, Any] | None = None
    try:
        found = record(task["record"]) if "record" in task else run(task["checks"])
    finally:  # nothing of this process, no exception either, gets back into the other's code
        with os.fdopen(writer, "w", encoding="utf-8") as answers:
            answers.write(json.dumps(found or _crash(*sys.exc_info())))
        os._exit(0)


def _crash(kind: Any, error: Any, trace: Any) -> dict[str, Any]:
    frame = traceback.extract_tb(trace)[-1]
    said = f"{kind.__name__}: {error}"[:_SAID]
    return {"end": "crashed", "said": f"{said} ({Path(frame.filename).name}:{frame.lineno})"}


def run(checks: list[tuple[str, float]]) -> dict[str, Any]:
    """Run checks until the first failure.

    Args:
        checks: names, each with the seconds that it takes without an edit.
    """
    from align.cases.context import Context
    from align.certify.mutation_checks import failure

    context = Context()
    for ran, (name, seconds) in enumerate(checks, start=1):
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S + SLOWER * seconds)
        said = failure(name, context)
        if said:
            return {"end": "detected", "check": name, "said": said[:_SAID], "ran": ran}
    return {"end": "survived", "ran": len(checks)}


def record(name: str) -> dict[str, Any]:
    """Run one check without an edit; the lines of the mutable files that it runs.

    Args:
        name: of a check, "" for what the import of the project runs.
    """
    from align.cases.covered.measure import PRODUCT, executed

    if not name:
        with executed(PRODUCT) as lines:
            importlib.import_module("align.certify.mutation_checks")
        return {"end": "recorded", "check": "", "taken": 0.0, "lines": lines}
    from align.cases.context import Context
    from align.certify.mutation_checks import failure, mutable

    with executed(mutable(name)) as lines:
        began = time.perf_counter()
        said = failure(name, Context())
        seconds = time.perf_counter() - began
    if said:
        raise ValueError(f"{name} fails without an edit: {said}")
    return {"end": "recorded", "check": name, "taken": seconds, "lines": lines}
