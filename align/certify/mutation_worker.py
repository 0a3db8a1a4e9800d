"""One worker of a run of mutants: a copy of the tree in which one file is edited at a time.

It makes its copy, loads the frameworks and the project once and forks a process for each task. The
process of a mutant imports the project again, from the copy. So an edit of a default or of a table
is as real as one of a formula, and a mutant that ends its process ends nothing else.
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
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[2]
COPIED = ("align", "configs", "docs/examples", "sot_paddle", "sot_torch_ref")
"""What a copy of the tree holds: the code, and the files that cases read."""
COPY = ".copy-for-mutants"
"""A file that only a copy of the tree has: nothing is written where it is missing."""
MEMORY = 12 * 2**30  # bytes that a mutant may ask for
_LOADED = ("paddlenlp.transformers", "sot_torch_ref", "timm", "transformers.models.bert")
_NUMBERS = itertools.count(1)


def answers(tasks: Sequence[Mapping[str, Any]], folder: Path) -> Iterator[dict[str, Any]]:
    """Do tasks in this process's copy of the tree.

    Args:
        tasks: {"record": check} or {"file", "text", "checks"}: an edited file and the checks that
            it has to get past, each with the seconds that it takes without an edit.
        folder: of the run; the copies are made in there.

    Yields:
        ``end``: ``recorded``, or how the mutant ended; ``seconds``; and what `mutation_checks.run`
        or `mutation_checks.record` say.
    """
    checks, root = _prepared(folder)
    for task in tasks:
        if "record" in task:
            yield _forked(functools.partial(checks.record, task["record"]))
        else:
            with edited(root, task["file"], task["text"], next(_NUMBERS)):
                yield _forked(functools.partial(_run, root, task["checks"]))


def without(task: Mapping[str, Any], why: str) -> dict[str, Any]:
    """The answer to a task whose worker gave none."""
    return {"end": "crashed", "said": why, "seconds": 0.0}


@functools.cache
def _prepared(folder: Path) -> tuple[Any, Path]:
    """Make the copy and load frameworks and checks, once in a process."""
    root = copied(folder / str(os.getpid()))
    importlib.import_module("sot_paddle.runtime").ignore_import_warnings()
    for name in _LOADED:
        importlib.import_module(name)
    checks = importlib.import_module("align.certify.mutation_checks")
    gc.collect()
    gc.freeze()  # a million objects that no fork has to look through again
    return checks, root


def copied(place: Path) -> Path:
    """Copy what the checks need of the tree into a new folder; returns it."""
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name)
    (place / COPY).touch()
    return place


@contextlib.contextmanager
def edited(root: Path, file: str, text: str, number: int) -> Iterator[None]:
    """Hold another text in one file of a copy, for the length of the block.

    Args:
        root: folder of the copy.
        file: its path in there.
        text: what it holds meanwhile.
        number: of the task; another one is another time of change, so that no compiled file of an
            earlier text is taken for it.

    Raises:
        ValueError: the folder is no copy.
    """
    if not (root / COPY).is_file():
        raise ValueError(f"{root} is no copy of the tree: mutants are written into a copy only")
    path = root / file
    before, times = path.read_bytes(), path.stat()
    path.write_text(text, encoding="utf-8")
    os.utime(path, (number, number))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _run(root: Path, checks: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Run checks with the project that a copy holds; in a process of its own."""
    sys.path.insert(0, str(root))
    os.chdir(root)
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}  # of its programs
    return sys.modules["align.certify.mutation_checks"].import_afresh().run(checks)


def _forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a new process answers; how it ended when it did not answer."""
    began = perf_counter()
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        os.setsid()
        _live(writer, work)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as answer:
            said = answer.read()
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
    return found | {"seconds": perf_counter() - began}


def _live(writer: int, work: Callable[[], dict[str, Any]]) -> None:
    """The life of the forked process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    found: dict[str, Any] | None = None
    try:
        found = work()
    finally:  # nothing of this process, no exception either, gets back into the other's code
        with os.fdopen(writer, "w", encoding="utf-8") as answer:
            answer.write(json.dumps(found or _crash(*sys.exc_info())))
        os._exit(0)


def _crash(kind: Any, error: Any, trace: Any) -> dict[str, Any]:
    frame = traceback.extract_tb(trace)[-1]
    said = f"{kind.__name__}: {error}"[:300]
    return {"end": "crashed", "said": f"{said} ({Path(frame.filename).name}:{frame.lineno})"}
