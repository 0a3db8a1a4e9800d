"""What a training command leaves: the one line that it says, and the tensors of a checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

from sot_paddle.checkpoint import read_tensors
from sot_paddle.cli import exit_status
from sot_paddle.command_line import parse
from sot_paddle.tasks.glue_options import TrainConfig
from sot_paddle.train import checkpointing, commands, run_folder

ROOT = Path(__file__).resolve().parents[3]


def in_process(name: str) -> Callable[[Sequence[str]], int]:
    """A command of `commands.COMMANDS` as a function of its words that returns its status."""
    command_line, run_config = commands.part(name, 0), commands.part(name, 1)
    return lambda words: exit_status(name, lambda: run_config(parse(command_line, words)))


@dataclass(frozen=True)
class Started:
    """A command that tests start in this process.

    Attributes:
        program: its name, with which its messages begin.
        start: run it into a folder: (exit status, what it said).
        data: what it trains on.
        command: flags for an output folder, further flags appended.
    """

    program: str
    start: Callable[..., tuple[int, str]]
    data: Path = Path()
    command: Callable[..., list[str]] = list

    def done(self, out: Path, *flags: str, **options) -> str:
        """Run to the end; what stderr said."""
        status, err = self.start(out, *flags, **options)
        assert status == 0, err
        return err

    def refused(self, out: Path, *flags: str, **options) -> str:
        """Run into a refusal: status 2, one line, which is returned."""
        status, err = self.start(out, *flags, **options)
        assert status == 2, err
        return only_line(err, self.program)

    def continued(self, folder: Path, *flags: str) -> None:
        """A run that goes on from its first checkpoint ends as one that was never interrupted.

        Args:
            folder: both runs go into it; the tensors of their last checkpoints are compared.
            flags: ``--save_steps`` and whatever makes more than one checkpoint.
        """
        whole, parts = folder / "whole", folder / "parts"
        with mock.patch.object(checkpointing, "KEPT_STATES", 9):
            self.done(whole, *flags)
        shutil.copytree(whole, parts, symlinks=True)
        first, *later = sorted(
            parts.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2])
        )
        assert later
        for path in later:
            shutil.rmtree(path)
        (parts / "metrics.json").unlink()
        assert f"continuing from {first}" in self.done(parts, *flags)
        assert metrics(parts)["last"] == metrics(whole)["last"]
        assert_same_last(parts, whole, ("model.safetensors", "optimizer.safetensors"))


def glue_config(**more: object) -> TrainConfig:
    """Options of a training, of which a folder is opened."""
    fields = {"task_name": "RTE", "data_dir": "d", "model_name_or_path": "m", "output_dir": "o"}
    return TrainConfig(**(fields | {"do_train": True} | more))


def opened(root: Path, **more: object) -> Path | None:
    """The checkpoint that a run begins at."""
    with run_folder.open_folder(glue_config(output_dir=str(root), **more), {}) as checkpoint:
        return checkpoint


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, links as the name of what they point to."""
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() or path.is_symlink()
    }


def write_file(place: Path, text: str = "mine") -> Path:
    """A file of the user's, with the folders around it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


def metrics(out: Path) -> dict:
    """What a run's metrics.json holds."""
    return json.loads((out / "metrics.json").read_text(encoding="utf-8"))


def only_line(err: str, program: str = "train_glue") -> str:
    """The one line of a refusal on stderr, where no traceback may stand."""
    lines = [line for line in err.splitlines() if line.startswith(program)]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


def arrays_of(folder: Path, name: str = "model.safetensors") -> dict[str, np.ndarray]:
    """Every tensor of a checkpoint's file."""
    tensors, _ = read_tensors(folder / name)
    return {key: np.array(tensors[key]) for key in tensors}


def same_arrays(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    """Whether two files hold the same names and values."""
    return first.keys() == second.keys() and all((first[k] == second[k]).all() for k in first)


def assert_same_last(
    first: Path, second: Path, names: tuple[str, ...] = ("model.safetensors",)
) -> None:
    """Files of two runs' last checkpoints hold the same names and values."""
    for name in names:
        held = [arrays_of(place / "last", name) for place in (first, second)]
        assert same_arrays(*held), (first, second, name)
