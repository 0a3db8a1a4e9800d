"""A run whose records were damaged goes on to the same end, or says which is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sot_paddle.train import checkpointing
from sot_paddle.train.run_folder import BEST


def _last(run: Path) -> Path:
    return checkpointing.list_checkpoints(run)[-1]


def _without_sizes(run: Path) -> None:
    manifest = _last(run) / checkpointing.MANIFEST
    files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    manifest.write_text(json.dumps({"files": dict.fromkeys(files, {})}), encoding="utf-8")


def _rewritten(folder: Callable[[Path], Path], name: str, content: object) -> Callable:
    """Puts other content into a file of a whole folder, the manifest up to date."""

    def change(run: Path) -> None:
        (folder(run) / name).write_text(json.dumps(content), encoding="utf-8")
        (folder(run) / checkpointing.MANIFEST).unlink()
        checkpointing.close_folder(folder(run))

    return change


@pytest.fixture(scope="module")
def trained(tiny_folders, tiny_files, tmp_path_factory) -> Path:
    from sot_paddle.train.text_command import run_command

    root = tmp_path_factory.mktemp("trained")
    flags = tiny_files.command(*tiny_folders, root / "out", "--save_steps", "3")
    assert run_command(flags, tiny_files.no_conversion) == 0
    return root


def test_a_run_goes_on_beside_a_damaged_manifest(tiny, trained, tmp_path) -> None:
    out = Path(shutil.copytree(trained / "out", tmp_path / "out", symlinks=True))
    before = json.loads((out / "metrics.json").read_text(encoding="utf-8"))["best"]
    _without_sizes(out)
    tiny.done(out, "--save_steps", "3")
    assert json.loads((out / "metrics.json").read_text(encoding="utf-8"))["best"] == before


@pytest.mark.parametrize("content", [[1], {"metric": "acc"}, 5])
def test_a_damaged_best_is_named(tiny, trained, tmp_path, content) -> None:
    out = Path(shutil.copytree(trained / "out", tmp_path / "out", symlinks=True))
    _rewritten(lambda run: run / BEST, "best.json", content)(out)
    assert "best.json" in tiny.refused(out, "--save_steps", "3")


@pytest.mark.parametrize("content", [[1], {"step": 1}, {"step": "1", "identity": {}}])
def test_a_damaged_state_is_named(tiny, trained, tmp_path, content) -> None:
    out = Path(shutil.copytree(trained / "out", tmp_path / "out", symlinks=True))
    _rewritten(_last, checkpointing.STATE, content)(out)
    assert "state.json" in tiny.refused(out, "--save_steps", "3")
