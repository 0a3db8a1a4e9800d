"""What a run goes on from: no NaN and no infinity, no damaged record, no other operators."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.train import checkpointing, ema, exact_state, trainer
from sot_paddle.train.checkpointing import first_nonfinite
from tests.sot_paddle.train import tiny_run
from tests.sot_paddle.train.run_output import arrays_of, content_of, metrics

STEPS = ("--max_steps", "4", "--save_steps", "1", "--logging_steps", "1")
POSITIONS = "bert.embeddings.position_embeddings.weight"


@pytest.mark.parametrize("kind", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_numbers_of_every_kind_are_looked_at(kind):
    good = np.ones((2, 3), kind)
    for bad in (np.nan, np.inf, -np.inf):
        array = good.copy()
        array[1, 2] = bad
        assert first_nonfinite([("a", good), ("b", array), ("c", array)]) == "b"
    assert first_nonfinite([("a", good), ("whole", np.array([1])), ("none", good[:0])]) is None


def test_a_weight_that_is_not_finite_is_not_saved(tiny, tmp_path, monkeypatch):
    """Its loss was finite: the step itself spoilt it, and no later step would have been tried."""
    original = trainer.ExactTrainer.after_step

    def spoil(self):
        original(self)
        if self.state.global_step == 2:  # in the third step: the counter follows
            weight = dict(self.model.named_parameters())[POSITIONS]
            array = weight.numpy()
            array[-1, -1] = np.inf  # a position that no sentence reaches: no loss tells of it
            weight.set_value(array)

    monkeypatch.setattr(trainer.ExactTrainer, "after_step", spoil)
    out, flags = tmp_path / "out", (*STEPS, "--eval_steps", "1")
    line = tiny.refused(out, *flags)
    assert POSITIONS in line
    assert f"last finite checkpoint: {out / 'checkpoint-2'}" in line
    assert [p.name for p in checkpointing.list_checkpoints(out)] == ["checkpoint-1", "checkpoint-2"]
    assert (out / "last").resolve() == out / "checkpoint-2"
    assert not list(out.glob(".writing*"))
    assert not (out / "metrics.json").exists()
    assert json.loads((out / "best" / "best.json").read_text())["step"] <= 2
    monkeypatch.undo()
    assert "continuing from" in tiny.done(out, *flags)


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


def test_weights_that_are_not_finite_are_not_started_from(tiny, done, tmp_path):
    again, file = tmp_path / "again", done / "best" / "model.safetensors"
    arrays = arrays_of(done / "best")
    name = next(key for key, array in arrays.items() if array.size > 1)
    arrays[name].flat[-1] = np.nan
    write_tensors(file, arrays, read_tensors(file)[1])
    checkpointing.close_folder(done / "best")
    assert f"{done / 'best'}: {name} holds a number that is not finite" in tiny.refused(
        again, *STEPS, "--model_name_or_path", str(done / "best")
    )
    assert not again.exists()


# damaged records


def _last(run: Path) -> Path:
    return checkpointing.list_checkpoints(run)[-1]


def test_a_run_goes_on_beside_a_damaged_manifest(tiny, done) -> None:
    before = metrics(done)["best"]
    manifest = _last(done) / checkpointing.MANIFEST
    files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    manifest.write_text(json.dumps({"files": dict.fromkeys(files, {})}), encoding="utf-8")
    tiny.done(done, *tiny_run.STEPS)
    assert metrics(done)["best"] == before


# other operators


ACCEPTED = "--accept_other_operators"


@pytest.fixture
def interrupted(done) -> Path:
    """The folder of a run of two steps that ended after the first."""
    shutil.rmtree(done / "checkpoint-2")
    (done / "metrics.json").unlink()
    return done


@pytest.fixture
def others(monkeypatch) -> None:
    """The next run decides for the operators that the finished one did not have."""
    native = exact_state.operators_in_use() == "native"
    monkeypatch.setattr(exact_state, "runs_natively", lambda _: not native)


def test_a_run_goes_on_with_other_operators_on_demand_and_says_so(
    tiny, interrupted, others
) -> None:
    before = content_of(interrupted / "checkpoint-1")
    line = tiny.refused(interrupted, *tiny_run.STEPS)
    assert "was trained with" in line
    assert ACCEPTED in line
    assert content_of(interrupted / "checkpoint-1") == before
    first = exact_state.operators_in_use()
    said = tiny.done(interrupted, *tiny_run.STEPS, ACCEPTED)
    (second,) = {"native", "plain"} - {first}
    assert metrics(interrupted)["train"]["operators"] == {"0": second, "1": first}
    assert f"from step 1 on with {first} operators" in said


def test_a_finished_run_is_evaluated_with_any_operators(tiny, done, others) -> None:
    (done / "metrics.json").unlink()
    tiny.done(done, *tiny_run.STEPS)
    assert len(metrics(done)["train"]["operators"]) == 1
