"""The output folder of a run: whose it is, what is removed to start afresh, what it says."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any, Protocol

from sot_paddle.train import checkpointing, distributed

RUN = "run.json"
METRICS = "metrics.json"
BEST = "best"
LOGS = "runs"


class FolderOptions(Protocol):
    """The options of a run that decide about its folder."""

    overwrite_output_dir: bool
    do_train: bool
    resume: str


def prepare(root: Path, config: FolderOptions) -> Path | None:
    """Make the folder ready and find what to continue.

    Args:
        root: output folder of one run.
        config: its options.

    Returns:
        The checkpoint to continue from, or None.

    Raises:
        ValueError: the folder holds something else, or the checkpoint asked for is not whole.
    """
    if config.overwrite_output_dir:
        if config.resume not in ("auto", "never") and _inside(Path(config.resume), root):
            raise ValueError(
                f"--resume {config.resume}: --overwrite_output_dir would remove it; drop one"
            )
        _clear(root)
    elif config.do_train and _is_foreign(root):
        raise ValueError(
            f"{root} exists, is not empty and holds no run of this tool: choose another "
            "--output_dir, or give --overwrite_output_dir to write into it"
        )
    root.mkdir(parents=True, exist_ok=True)
    checkpointing.settle(root)
    if config.resume == "never" and checkpointing.list_checkpoints(root):
        raise ValueError(
            f"{root} holds a run that could be continued: drop --resume never, choose another "
            "--output_dir, or start afresh with --overwrite_output_dir"
        )
    return resumable(root, config)


def open_run(root: Path, config: FolderOptions, record: dict[str, Any]) -> Path | None:
    """Prepare the folder on the first process and write who uses it.

    Args:
        root: output folder of one run.
        config: its options.
        record: what run.json holds.

    Returns:
        The checkpoint to continue from, or None; the same on every process.

    Raises:
        ValueError: see :func:`prepare`.
        TrainingStopped: on the other processes, when the first one refused.
    """
    found: list[Path | None] = []

    def open_on_disk() -> None:
        found.append(prepare(root, config))
        write_json(root / RUN, record)

    distributed.on_first_process(open_on_disk)
    return distributed.gather(found[0] if found else None)[0]


def will_continue(root: Path, config: FolderOptions) -> bool:
    """Whether :func:`open_run` is going to find a checkpoint; nothing is written or removed.

    A checkpoint that a kill left half in place counts as none here and is repaired there: what
    is prepared for a new run then goes unused.

    Raises:
        ValueError: the checkpoint asked for is not whole.
    """
    if config.overwrite_output_dir and config.resume in ("auto", "never"):
        return False
    return resumable(root, config) is not None


def resumable(root: Path, config: FolderOptions) -> Path | None:
    """The checkpoint that ``--resume`` means: the newest whole one, or the one named."""
    if config.resume not in ("auto", "never"):
        chosen = Path(config.resume)
        whole = checkpointing.is_whole(chosen)
        if not whole or checkpointing.STATE not in checkpointing.listed_files(chosen):
            raise ValueError(
                f"--resume {chosen}: not a whole checkpoint with its training state; auto takes "
                "the newest one of --output_dir"
            )
        return chosen
    return checkpointing.last_whole(root, checkpointing.STATE)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; numbers that JSON does not have (NaN) become null."""
    text = json.dumps(_strict(content), indent=1, allow_nan=False)
    checkpointing.write_text(path, text + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, None when it is not there."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _strict(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_strict(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _inside(place: Path, root: Path) -> bool:
    return place.resolve().is_relative_to(root.resolve())


def _is_foreign(root: Path) -> bool:
    if not root.exists():
        return False
    if not root.is_dir():
        return True
    return any(root.iterdir()) and not (root / RUN).is_file()


def _clear(root: Path) -> None:
    """Remove what an earlier run of this tool wrote, and nothing else."""
    if not root.is_dir():
        return
    checkpointing.settle(root)
    for folder in [*checkpointing.list_checkpoints(root), root / BEST, root / LOGS]:
        shutil.rmtree(folder, ignore_errors=True)
    for name in (RUN, METRICS, checkpointing.POINTER):
        (root / name).unlink(missing_ok=True)
