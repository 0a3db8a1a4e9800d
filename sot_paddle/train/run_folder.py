"""The output folder of a run: whose it is, what is removed to start afresh, what it says.

What a folder with a model says of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle import atomic, distributed
from sot_paddle.config import some
from sot_paddle.distributed import say
from sot_paddle.reading import as_null, dumps, field_of
from sot_paddle.train import checkpointing

RUN = "run.json"
METRICS, EVALUATION = "metrics.json", "evaluation.json"
BEST = "best"
LOGS = "runs"

CONFIG, WEIGHTS, EMA = "config.json", "model.safetensors", "ema.safetensors"
"""Files of a folder with a model."""


@contextlib.contextmanager
def open_folder(options: Any, sources: Mapping[str, Path | None]) -> Iterator[Path | None]:
    """Lock the output folder and find out where the run begins.

    Nothing of an older run is removed here, see :func:`start_afresh`.

    Args:
        sources: what it reads, by flag; None for a flag that is not given.

    Yields:
        The checkpoint to continue from, the same on every process; None for a start.

    Raises:
        ValueError: another run is at work there, the folder is somebody else's, or
            ``--overwrite_output_dir`` would remove what this run reads; or see :func:`_resumable`.
        TrainingStopped: on the other processes, when the first one refused.
    """
    root = Path(options.output_dir)
    checkpoints: list[Path | None] = []
    with contextlib.ExitStack() as stack:

        def open_on_disk() -> None:
            stack.enter_context(atomic.hold(root))
            _check(root, options, sources)
            newest = checkpointing.settle(root)
            checkpoints.append(_resumable(root, options, newest))

        distributed.on_first_process(open_on_disk)
        yield distributed.gather(next(iter(checkpoints), None))[0]


def start_afresh(root: Path, prediction_files: Collection[str]) -> None:
    """Remove what an older run left, and nothing else; no link is followed.

    Everything that can be refused has to be refused before.
    """
    older = [path for path in root.iterdir() if re.fullmatch(checkpointing.ENTRIES, path.name)]
    older += [root / name for name in prediction_files]
    for path in sorted(older, key=lambda path: path.name == RUN):  # last: it says whose the rest is
        atomic.remove(path)


def check_outputs(root: Path, options: Any, prediction_files: Collection[str]) -> None:
    """Refuse to replace somebody's file in a folder that holds no run."""
    if (root / RUN).exists() or options.overwrite_output_dir:
        return
    for name in (scores_file(root, options), *prediction_files):
        if os.path.lexists(root / name):
            raise ValueError(
                f"{root / name} would be replaced, and no run of this tool wrote it: move it, or "
                "choose another --output_dir"
            )


def weights_in(root: Path) -> list[Path]:
    """The folders with weights that a training left, ``best`` first; [] for none."""
    best = root / BEST
    return [best] * best.exists() + checkpointing.list_checkpoints(root)


def scores_file(root: Path, options: Any) -> str:
    """Where a run's scores go: without training not over those of the folder's training."""
    return EVALUATION if weights_in(root) and not options.do_train else METRICS


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; numbers that JSON does not have (NaN) become null."""
    atomic.write_atomically(path, dumps(content, as_null).encode())


def config_file(content: Mapping[str, Any]) -> dict[str, bytes]:
    """What rebuilds a model, as a file of its folder."""
    return {CONFIG: (json.dumps(content, indent=1) + "\n").encode()}


def require_classes(recorded: Mapping[str, Any], classes: Sequence[str], origin: object) -> None:
    """Refuse a trained model of other classes than the data's, or of the same in another order.

    Args:
        recorded: the content of the model's config.json; one that no run wrote is not checked.
    """
    if "sot_model" not in recorded or "id2label" not in recorded:
        return
    trained = tuple(field_of(recorded, "id2label", dict, str(origin)).values())
    if trained != tuple(classes):
        there, here = (some(map(str, names)) or "none" for names in (trained, classes))
        raise ValueError(
            f"{origin} was trained on the classes {there}, the data has {here}: give data with "
            "the labels of the training (of an own table in train.tsv)"
        )


def _check(root: Path, options: Any, sources: Mapping[str, Path | None]) -> None:
    half_done = atomic.leftovers_of(checkpointing.ENTRIES)
    names = {path.name for path in root.iterdir() if not half_done.fullmatch(path.name)}
    names -= {atomic.LOCK}
    if options.overwrite_output_dir:
        named = None if options.resume == "auto" else Path(options.resume)
        _check_sources(root, {"--resume": named, **sources})
        names = {name for name in names if re.fullmatch(checkpointing.ENTRIES, name)}
    if (options.do_train or options.overwrite_output_dir) and names and RUN not in names:
        raise ValueError(
            f"{root} holds {min(names)} and holds no run of this tool: choose another --output_dir"
        )


def _check_sources(root: Path, sources: Mapping[str, Path | None]) -> None:
    """Refuse to remove what the run reads, also where a link leads there."""
    for flag, source in sources.items():
        if source is None or not source.exists():
            continue
        files = [source, *(source.iterdir() if source.is_dir() else ())]
        if any(file.resolve().is_relative_to(root.resolve()) for file in files):
            raise ValueError(
                f"{flag} {source}: --overwrite_output_dir would remove it; drop one, or choose "
                "another --output_dir"
            )


def _resumable(root: Path, options: Any, newest: Path | None) -> Path | None:
    """The checkpoint that ``--resume`` means: the newest whole one, or the one that is named."""
    if not options.do_train:
        return None
    if options.resume != "auto":
        chosen = Path(options.resume)
        if not checkpointing.is_whole(chosen, with_state=True):
            raise ValueError(
                f"--resume {chosen}: not a whole checkpoint with its training state; auto takes "
                "the newest one of --output_dir"
            )
        return chosen
    if options.overwrite_output_dir:
        return None
    for path in reversed(checkpointing.list_checkpoints(root)):
        if path == newest:
            break
        say(f"{path} is damaged or has no training state, and is passed over")
    return newest
