"""No NaN and no infinity: not in sizes, not in a checkpoint, not in what a run continues from.

The options of the commands: test_owned_folder.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sot_paddle import reading
from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.train import checkpointing, ema, exact_state, trainer
from sot_paddle.train.checkpointing import first_nonfinite
from tests.sot_paddle.train import tiny_run

STEPS = ("--max_steps", "4", "--save_steps", "1", "--logging_steps", "1")
POSITIONS = "bert.embeddings.position_embeddings.weight"


def test_numbers_of_every_kind_are_looked_at():
    for kind in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        good = np.ones((2, 3), kind)
        for bad in (np.nan, np.inf, -np.inf):
            array = good.copy()
            array[1, 2] = bad
            assert first_nonfinite([("a", good), ("b", array), ("c", array)]) == "b"
        assert first_nonfinite([("a", good), ("whole", np.array([1])), ("none", good[:0])]) is None


def _poison(folder: Path, file: str, name: str | None = None, value: float = np.nan) -> str:
    """Put a number that is not finite into a checkpoint, the manifest up to date."""
    tensors, metadata = read_tensors(folder / file)
    arrays = {key: np.array(tensors[key]) for key in tensors}
    name = name or next(key for key, array in arrays.items() if array.size > 1)
    arrays[name].flat[-1] = value
    write_tensors(folder / file, arrays, metadata)
    manifest = json.loads((folder / checkpointing.MANIFEST).read_text(encoding="utf-8"))
    content = {"size": (folder / file).stat().st_size}
    content["crc32"] = reading.crc32_of(folder / file)
    manifest["files"][file] = content
    (folder / checkpointing.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    assert checkpointing.is_whole(folder)
    return name


@pytest.mark.parametrize("evaluated", [False, True])
def test_a_weight_that_is_not_finite_is_not_saved(tiny, tmp_path, monkeypatch, evaluated):
    """Its loss was finite: the step itself spoilt it, and no later step would have been tried."""
    original = trainer.ExactTrainer.after_step

    def spoil(self):
        original(self)
        if self.state.global_step == 2:  # in the third step: the counter follows
            weight = dict(self.model.named_parameters())[
                "bert.embeddings.position_embeddings.weight"
            ]
            array = weight.numpy()
            array[-1, -1] = np.inf  # a position that no sentence reaches: no loss tells of it
            weight.set_value(array)

    monkeypatch.setattr(trainer.ExactTrainer, "after_step", spoil)
    out = tmp_path / "out"
    steps = ("--eval_steps", "1") if evaluated else ("--eval_steps", "9")
    line = tiny.refused(out, *STEPS, *steps)
    assert POSITIONS in line
    assert f"last finite checkpoint: {out / 'checkpoint-2'}" in line
    assert [p.name for p in checkpointing.list_checkpoints(out)] == ["checkpoint-1", "checkpoint-2"]
    assert (out / "last").resolve() == out / "checkpoint-2"
    assert not list(out.glob(".writing*"))
    assert not (out / "metrics.json").exists()
    if evaluated:
        assert json.loads((out / "best" / "best.json").read_text())["step"] <= 2
    monkeypatch.undo()
    err = tiny.done(out, *STEPS, *steps)
    assert "continuing from" in err


def test_a_moment_that_is_not_finite_is_not_saved(tiny, tmp_path, monkeypatch):
    original, calls = exact_state.optimizer_arrays, [0]

    def spoilt(*arguments):
        arrays, calls[0] = original(*arguments), calls[0] + 1
        if calls[0] == 2:
            arrays["head.fc.weight/moment2"] = np.full_like(next(iter(arrays.values())), np.inf)
        return arrays

    monkeypatch.setattr(trainer.exact_state, "optimizer_arrays", spoilt)
    out = tmp_path / "out"
    line = tiny.refused(out, *STEPS)
    assert "head.fc.weight/moment2 (in optimizer.safetensors)" in line
    assert f"last finite checkpoint: {out / 'checkpoint-1'}" in line
    assert [path.name for path in checkpointing.list_checkpoints(out)] == ["checkpoint-1"]


def test_an_average_that_is_not_finite_is_not_saved(images, tmp_path, monkeypatch):
    original = ema.ModelEma.update

    def spoilt(self, steps):
        original(self, steps)
        average = next(tensor for tensor in self._average.values() if tensor.ndim == 1)
        average[0] = float("nan")

    monkeypatch.setattr(ema.ModelEma, "update", spoilt)
    out = tmp_path / "out"
    line = images.refused(out, "--recovery-interval", "2")
    assert "(in ema.safetensors)" in line
    assert "last finite checkpoint: none yet" in line
    assert not checkpointing.list_checkpoints(out)
    assert not (out / "best").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors"])
def test_a_checkpoint_that_is_not_finite_is_not_continued(tiny, done, file):
    """Such as an earlier version wrote: said at the start, with the one to continue from."""
    first, last = done / "checkpoint-1", done / "checkpoint-2"
    whole = (last / "model.safetensors").read_bytes()
    name = _poison(last, file)
    before = {path: path.stat().st_mtime_ns for path in last.iterdir()}
    for flags in ((), ("--resume", str(last))):
        line = tiny.refused(done, *tiny_run.STEPS, *flags)
        assert f"checkpoint-2 cannot be continued: {name} (in {file}) holds a number" in line
        assert f"last finite checkpoint: {first}" in line
    assert {path: path.stat().st_mtime_ns for path in last.iterdir()} == before
    tiny.done(done, *tiny_run.STEPS, "--resume", str(first))
    assert (last / "model.safetensors").read_bytes() == whole


def test_weights_that_are_not_finite_are_not_started_from(tiny, done, tmp_path):
    again = tmp_path / "again"
    name = _poison(done / "best", "model.safetensors")
    assert f"{done / 'best'}: {name} holds a number that is not finite" in tiny.refused(
        again, *STEPS, "--model_name_or_path", str(done / "best")
    )
    assert not again.exists()
