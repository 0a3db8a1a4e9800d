"""A run whose records were damaged goes on to the same end, or says which is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sot_paddle.train import checkpointing
from sot_paddle.train.run_folder import BEST
from tests.sot_paddle.train.run_output import content_of, metrics
from tests.sot_paddle.train.tiny_run import STEPS


def _last(run: Path) -> Path:
    return checkpointing.list_checkpoints(run)[-1]


def _rewrite(folder: Path, name: str, content: object) -> None:
    """Put other content into a file of a whole folder, the manifest up to date."""
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / checkpointing.MANIFEST).unlink()
    checkpointing.close_folder(folder)


def test_a_run_goes_on_beside_a_damaged_manifest(tiny, done) -> None:
    before = metrics(done)["best"]
    manifest = _last(done) / checkpointing.MANIFEST
    files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    manifest.write_text(json.dumps({"files": dict.fromkeys(files, {})}), encoding="utf-8")
    tiny.done(done, *STEPS)
    assert metrics(done)["best"] == before


@pytest.mark.parametrize("content", [[1], {"metric": "acc"}, 5])
def test_a_damaged_best_is_named(tiny, done, content) -> None:
    _rewrite(done / BEST, "best.json", content)
    assert "best.json" in tiny.refused(done, *STEPS)


@pytest.mark.parametrize("content", ["[]", '{"step": 2', None])
def test_intact_weights_of_a_best_are_kept_beside_a_damaged_best_json(tiny, done, content) -> None:
    """The checkpoint they came from is gone: nothing else holds them."""
    step = json.loads((done / BEST / "best.json").read_bytes())["step"]
    if step != int(_last(done).name.removeprefix(checkpointing.PREFIX)):
        shutil.rmtree(done / f"{checkpointing.PREFIX}{step}")
    (done / BEST / "best.json").unlink()
    if content is not None:
        (done / BEST / "best.json").write_text(content, encoding="utf-8")
    before = content_of(done / BEST)
    (done / "metrics.json").unlink()
    line = tiny.refused(done, *STEPS)
    assert "best.json is damaged" in line
    assert f"move {done / BEST} away" in line
    assert content_of(done / BEST) == before


@pytest.mark.parametrize("content", [[1], {"step": 1}, {"step": "1", "identity": {}}])
def test_a_damaged_state_is_named(tiny, done, content) -> None:
    _rewrite(_last(done), checkpointing.STATE, content)
    assert "state.json" in tiny.refused(done, *STEPS)
