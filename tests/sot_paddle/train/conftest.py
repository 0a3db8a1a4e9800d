"""Tiny runs that tests start in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from sot_paddle.train import checkpointing, model_folder
from tests.sot_paddle.train import state_files, tiny_images, tiny_run
from tests.sot_paddle.train.run_output import Started, in_process


@pytest.fixture
def all_states(monkeypatch) -> None:
    """Every checkpoint keeps what resuming needs."""
    monkeypatch.setattr(checkpointing, "KEPT_STATES", 99)


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory) -> tuple[Path, Path]:
    """An RTE folder, and one with config.json and vocab.txt of a model."""
    root = tmp_path_factory.mktemp("tiny")
    return tiny_run.write_glue(root / "glue"), tiny_run.write_model(root / "model")


@pytest.fixture
def tiny(tiny_folders, capfd) -> Started:
    """The GLUE command on a tiny model."""

    def command(out: Path, *more: str) -> list[str]:
        return tiny_run.command(*tiny_folders, out, *more)

    def start(out: Path, *more: str) -> tuple[int, str]:
        capfd.readouterr()
        status = in_process("train_glue")(command(out, *more))
        return status, capfd.readouterr().err

    return Started("train_glue", start, tiny_folders[0], command)


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


@pytest.fixture
def command(capfd) -> Callable[..., Started]:
    """Make any training command on text of its name and the flags of every run."""

    def make(program: str, *shared: str) -> Started:
        def start(out: Path, *more: str) -> tuple[int, str]:
            capfd.readouterr()
            flags = ["--output_dir", str(out), "--no_cuda", *shared, *more]
            status = in_process(program)(flags)
            return status, "".join(capfd.readouterr())

        return Started(program, start)

    return make


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory) -> Path:
    return tiny_images.write_images(tmp_path_factory.mktemp("images") / "animals")


@pytest.fixture
def images(image_folder, capfd) -> Started:
    """The image command on a tiny model."""

    def start(
        out: Path, *more: str, data: Path = image_folder, convert=model_folder.read_for_model
    ) -> tuple[int, str]:
        capfd.readouterr()
        flags = tiny_images.command(data, out, *more)
        with mock.patch.object(model_folder, "read_for_model", convert):
            status = in_process("train_image")(flags)
        return status, capfd.readouterr().err

    return Started("train_image", start, image_folder)
