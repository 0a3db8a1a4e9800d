"""A tiny GLUE run that tests start in this process."""

from __future__ import annotations

import shutil
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from sot_paddle.train import model_folder
from tests.sot_paddle.train import state_files, tiny_images, tiny_run
from tests.sot_paddle.train.run_output import Started, in_process


@dataclass(frozen=True)
class Tiny(Started):
    """Data, model and command of a tiny run.

    Attributes:
        data: RTE folder.
        model: folder with config.json and vocab.txt.
        command: flags for an output folder, further flags appended.
        start: run the command in this process: (exit status, what stderr said).
    """

    data: Path
    model: Path
    command: Callable[..., list[str]]
    start: Callable[..., tuple[int, str]]
    program = "train_glue"


@pytest.fixture(scope="session")
def tiny_files() -> types.ModuleType:
    return tiny_run


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory, tiny_files) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("tiny")
    return tiny_files.write_glue(root / "glue"), tiny_files.write_model(root / "model")


@pytest.fixture
def tiny(tiny_folders, tiny_files, capfd):
    data, model = tiny_folders

    def command(out: Path, *more: str) -> list[str]:
        return tiny_files.command(data, model, out, *more)

    def start(out: Path, *more: str) -> tuple[int, str]:
        capfd.readouterr()
        status = in_process("train_glue")(command(out, *more))
        return status, capfd.readouterr().err

    return Tiny(data, model, command, start)


@pytest.fixture(scope="session")
def finished(tiny_folders, tmp_path_factory) -> Path:
    """The folder of a finished run of `tiny_run.STEPS`; not to be changed."""
    out = tmp_path_factory.mktemp("finished") / "out"
    flags = tiny_run.command(*tiny_folders, out, *tiny_run.STEPS)
    assert in_process("train_glue")(flags) == 0
    return out


@pytest.fixture
def done(finished, tmp_path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(finished, tmp_path / "out", symlinks=True))


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> Path:
    """The folder of a tiny language model with weights."""
    return state_files.write_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@dataclass(frozen=True)
class Command(Started):
    """Any training command on text.

    Attributes:
        program: its name.
        start: run it in this process: (exit status, what it said).
    """

    program: str
    start: Callable[..., tuple[int, str]]


@pytest.fixture
def command(capfd):
    """Make a `Command` of its name, its function and the flags of every run."""

    def make(program: str, run: Callable[..., int], *shared: str) -> Command:
        def start(out: Path, *more: str) -> tuple[int, str]:
            capfd.readouterr()
            flags = ["--output_dir", str(out), "--no_cuda", *shared, *more]
            status = run(flags)
            return status, "".join(capfd.readouterr())

        return Command(program, start)

    return make


@dataclass(frozen=True)
class TinyImages(Started):
    """Data and command of a tiny image run.

    Attributes:
        data: folder with train/ and val/.
        files: the module that makes data and commands.
        start: run the command in this process: (exit status, what stderr said).
    """

    data: Path
    files: types.ModuleType
    start: Callable[..., tuple[int, str]]
    program = "train_image"


@pytest.fixture(scope="session")
def image_files() -> types.ModuleType:
    return tiny_images


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory, image_files) -> Path:
    return image_files.write_images(tmp_path_factory.mktemp("images") / "animals")


@pytest.fixture
def images(image_folder, image_files, capfd):
    def start(
        out: Path, *more: str, data: Path = image_folder, convert=model_folder.read_for_model
    ) -> tuple[int, str]:
        capfd.readouterr()
        flags = image_files.command(data, out, *more)
        with mock.patch.object(model_folder, "read_for_model", convert):
            status = in_process("train_image")(flags)
        return status, capfd.readouterr().err

    return TinyImages(image_folder, image_files, start)
