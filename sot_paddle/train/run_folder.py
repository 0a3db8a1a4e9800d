"""The output folder of a run: whose it is, what is removed to start afresh, what it says."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from sot_paddle import distributed, strict_json
from sot_paddle.train import checkpointing, folder_lock, run_record

RUN = "run.json"
METRICS, EVALUATION = "metrics.json", "evaluation.json"
BEST = "best"
LOGS = "runs"
_OF_A_SEED = re.compile(r"seed-\d+")


class FolderOptions(Protocol):
    """The options of a run that decide about its folder."""

    overwrite_output_dir: bool
    do_train: bool
    resume: str


Sources = Mapping[str, Path | None]
"""What a run reads, by the flag that names it; None for a flag that is not given."""


def weights_in(root: Path) -> list[Path]:
    """The folders with weights that a training left, ``best`` first; [] for none."""
    best = root / BEST
    return [best] * best.exists() + checkpointing.list_checkpoints(root)


def scores_file(root: Path, config: FolderOptions) -> str:
    """Where a run's scores go: without training not over those of the folder's training."""
    seeds = [root / name for name in _seeds(root)] if root.is_dir() else []
    trained = any(weights_in(place) for place in (root, *seeds))
    return EVALUATION if trained and not config.do_train else METRICS


def check(
    root: Path, config: FolderOptions, sources: Sources, outputs: Collection[str] = ()
) -> None:
    """Refuse a folder that the run may not have; nothing is written or removed.

    Args:
        root: output folder of one run.
        config: its options.
        sources: what it reads.
        outputs: names of the files that it writes there beside its checkpoints (predictions).

    Raises:
        ValueError: another run is at work there; ``--overwrite_output_dir`` would remove what no
            run of this tool wrote, or what this run reads; or a file would be replaced that no
            run of this tool wrote.
    """
    folder_lock.refuse_held(root)
    _check(root, config, sources, outputs)


def _check(root: Path, config: FolderOptions, sources: Sources, outputs: Collection[str]) -> None:
    if config.overwrite_output_dir:
        _check_sources(root, {"--resume": named_checkpoint(config), **sources})
        _check_removable(root)
    elif config.do_train and _is_foreign(root):
        raise ValueError(
            f"{root} exists, is not empty and holds no run of this tool: choose another "
            "--output_dir"
        )
    elif config.do_train and root.exists() and not weights_in(root) and _seeds(root):
        raise ValueError(
            f"{root} holds runs with --seeds, whose summary is its {METRICS}: give --seeds, or "
            "choose another --output_dir"
        )
    else:
        _check_replaced(root, config, outputs)


def _prepared(root: Path, config: FolderOptions) -> Path | None:
    """Make a locked folder ready; the checkpoint to continue from, or None."""
    if config.overwrite_output_dir:
        run_record.remove_written(root)
    if not _is_without_record(root):
        run_record.begin(root)
    checkpointing.settle(root)
    if config.resume == "never" and checkpointing.list_checkpoints(root):
        raise ValueError(
            f"{root} holds a run that could be continued: drop --resume never, choose another "
            "--output_dir, or start afresh with --overwrite_output_dir"
        )
    return resumable(root, config)


@contextlib.contextmanager
def open_run(
    root: Path, config: FolderOptions, sources: Sources, outputs: Collection[str] = ()
) -> Iterator[Path | None]:
    """Lock and prepare the folder on the first process.

    ``--overwrite_output_dir`` removes the older run here: everything that can be refused has to be
    refused before.

    Args:
        root: output folder of one run; made when it is not there.
        config: its options.
        sources, outputs: see :func:`check`.

    Yields:
        The checkpoint to continue from, or None; the same on every process. The folder is locked
        inside of the block.

    Raises:
        ValueError: see :func:`check` and :func:`resumable`.
        TrainingStopped: on the other processes, when the first one refused.
    """
    found: list[Path | None] = []
    with contextlib.ExitStack() as stack:

        def open_on_disk() -> None:
            check(root, config, sources, outputs)
            stack.enter_context(folder_lock.hold(root))
            _check(root, config, sources, outputs)  # now that nobody else writes here
            found.append(_prepared(root, config))

        distributed.on_first_process(open_on_disk)
        yield distributed.gather(found[0] if found else None)[0]


def check_summary(root: Path, config: FolderOptions) -> None:
    """Refuse a folder that may not be the one around those of several seeds; nothing is changed.

    Raises:
        ValueError: another run is at work there, or it holds something else.
    """
    folder_lock.refuse_held(root)
    if not root.exists():
        return
    if not root.is_dir():
        raise ValueError(f"{root} is no folder: choose another --output_dir")
    known, seeds = run_record.read(root), _seeds(root)
    legacy = (METRICS,) if known is None and seeds else ()
    foreign = run_record.first_foreign(root, apart=(*legacy, *seeds))
    if foreign is None and known:
        foreign = min(known - {METRICS, EVALUATION}, default=None)
    if foreign is not None and (config.overwrite_output_dir or not seeds):
        raise ValueError(
            f"{root} holds {foreign}, which no run with --seeds wrote: move or delete it "
            "yourself, or choose another --output_dir"
        )


@contextlib.contextmanager
def open_summary(root: Path, config: FolderOptions) -> Iterator[None]:
    """Lock the folder around those of several seeds and make it ready for their summary.

    The folders ``seed-N`` have records of their own; nothing of them is judged or removed here.

    Raises:
        ValueError: another run is at work there, or it holds something else.
        TrainingStopped: on the other processes, when the first one refused.
    """
    with contextlib.ExitStack() as stack:

        def open_on_disk() -> None:
            check_summary(root, config)
            stack.enter_context(folder_lock.hold(root))
            if not _seeds(root) or run_record.read(root) is not None:
                run_record.begin(root)

        distributed.on_first_process(open_on_disk)
        yield


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
    """The checkpoint that ``--resume`` means: the newest whole one, or the one named.

    Raises:
        ValueError: the one named is not whole, or it holds a number that is not finite.
    """
    chosen = named_checkpoint(config)
    if chosen is None:
        chosen = checkpointing.last_whole(root)
    elif not checkpointing.is_whole(chosen) or (
        checkpointing.STATE not in checkpointing.listed_files(chosen)
    ):
        raise ValueError(
            f"--resume {chosen}: not a whole checkpoint with its training state; auto takes "
            "the newest one of --output_dir"
        )
    bad = None if chosen is None else checkpointing.nonfinite_tensor(chosen)
    if bad is not None:
        last = checkpointing.last_whole(chosen.parent, finite=True)
        way = f"continue from {last} (--resume)" if last else "start afresh"
        raise ValueError(
            f"{chosen} cannot be continued: {bad} holds a number that is not finite; last finite "
            f"checkpoint: {last or 'none'}: {way}, with a lower learning rate"
        )
    return chosen


def write_entry(root: Path, name: str, content: Any) -> None:
    """Write a JSON file into a run's folder and enter it in the folder's record."""
    run_record.note(root, [name])
    write_json(root / name, content)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; numbers that JSON does not have (NaN) become null."""
    checkpointing.write_text(path, strict_json.dumps(content, strict_json.as_null))


def named_checkpoint(config: FolderOptions) -> Path | None:
    """The checkpoint that ``--resume`` names, None for the words."""
    return None if config.resume in ("auto", "never") else Path(config.resume)


def _check_sources(root: Path, sources: Sources) -> None:
    """Refuse to remove what the run reads, also where a link leads there."""
    inside = root.resolve()
    for flag, place in sources.items():
        if place is None or not place.exists():
            continue
        files = [place, *(place.iterdir() if place.is_dir() else ())]
        if any(file.resolve().is_relative_to(inside) for file in files):
            raise ValueError(
                f"{flag} {place}: --overwrite_output_dir would remove it; drop one, or choose "
                "another --output_dir"
            )


def _check_removable(root: Path) -> None:
    """Refuse to start afresh in a folder with anything that no run of this tool wrote."""
    if not root.exists():
        return
    if not root.is_dir():
        raise ValueError(f"{root} is no folder: choose another --output_dir")
    foreign = run_record.first_foreign(root)
    if foreign is None:
        return
    why = f"which is not in {run_record.RECORD}, the list of what a run wrote there"
    if run_record.read(root) is None:
        why = f"and no {run_record.RECORD}, the list of what a run wrote there (earlier "
        why += "versions kept none)"
    raise ValueError(
        f"{root} holds {foreign}, {why}: --overwrite_output_dir removes nothing else and so "
        "nothing here; move or delete it yourself, or choose another --output_dir"
    )


def _check_replaced(root: Path, config: FolderOptions, outputs: Collection[str]) -> None:
    """Refuse to replace a file that is there and not in the record."""
    if _is_without_record(root):
        return
    known = run_record.read(root)
    trained = (BEST, checkpointing.POINTER) if config.do_train else ()
    for name in (RUN, scores_file(root, config), *trained, *outputs):
        written = any(one == name or one.startswith(f"{name}/") for one in known or ())
        if os.path.lexists(root / name) and not written:
            raise ValueError(
                f"{root / name} would be replaced, and no run of this tool wrote it: move it, or "
                "choose another --output_dir"
            )


def _seeds(root: Path) -> list[str]:
    """Names of the folders of seeds that hold nothing but a run."""
    named = [path for path in root.iterdir() if _OF_A_SEED.fullmatch(path.name)]
    return sorted(path.name for path in named if not _is_foreign(path))


def _is_without_record(root: Path) -> bool:
    """Whether a run of an earlier version is here; it goes on without a record."""
    return (root / RUN).is_file() and not (root / run_record.RECORD).exists()


def _is_foreign(root: Path) -> bool:
    if not root.exists():
        return False
    if not root.is_dir():
        return True
    if any((root / name).is_file() for name in (RUN, run_record.RECORD)):
        return False
    return run_record.first_foreign(root) is not None
