"""What a run goes on from: bit for bit, no NaN, no damaged record, no other operators."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from sot_paddle import reading
from sot_paddle.checkpoint import read_tensors, write_tensors
from sot_paddle.cli import NonFinite
from sot_paddle.train import checkpointing, ema, exact_state, trainer
from sot_paddle.train.checkpointing import TensorFile
from sot_paddle.train.exact_state import check_identity
from tests.sot_paddle.train import tiny_run
from tests.sot_paddle.train.run_output import (
    arrays_of,
    assert_same_last,
    in_process,
    metrics,
    same_arrays,
)

RUN = ("--num_train_epochs", "2")
STEPS = ("--max_steps", "4", "--save_steps", "1", "--logging_steps", "1")
POSITIONS = "bert.embeddings.position_embeddings.weight"


@pytest.mark.parametrize(
    ("accumulation", "steps"),
    [
        pytest.param(1, (3, 6), id="six steps an epoch"),
        pytest.param(4, (1,), id="two micro-batches carried over"),
        pytest.param(9, (1,), id="accumulation longer than the epoch"),
    ],
)
def test_resume_is_exact_from_any_step_of_any_epoch(
    tiny, tmp_path, all_states, accumulation, steps
):
    flags = (*RUN, "--gradient_accumulation_steps", str(accumulation))
    flags += ("--save_steps", str(steps[0]))
    whole = tmp_path / "whole"
    tiny.done(whole, *flags)
    last = (whole / "last").resolve().name
    assert not same_arrays(arrays_of(whole / f"checkpoint-{steps[0]}"), arrays_of(whole / last))
    for step in steps:
        out = tmp_path / f"from-{step}"
        tiny.done(out, *flags, "--resume", str(whole / f"checkpoint-{step}"))
        assert (out / "last").resolve().name == last
        assert_same_last(out, whole, ("model.safetensors", "optimizer.safetensors"))
        states = [
            json.loads((folder / "last" / "state.json").read_text(encoding="utf-8"))
            for folder in (out, whole)
        ]
        assert states[0] == states[1]


def test_dynamic_padding_and_plain_head_resume_too(tiny, tmp_path):
    flags = (
        *RUN,
        "--save_steps",
        "8",
        "--padding",
        "longest",
        "--head",
        "plain",
        "--optimizer",
        "adamw",
    )
    flags += ("--lr_scheduler", "cosine", "--warmup_steps", "3", "--weight_decay", "0.01")
    tiny.done(tmp_path / "whole", *flags)
    middle = str(tmp_path / "whole" / "checkpoint-8")
    tiny.done(tmp_path / "out", *flags, "--resume", middle)
    assert_same_last(tmp_path / "out", tmp_path / "whole")


def test_accumulation_equals_the_bigger_batch(tiny, tmp_path):
    """Without dropout, plain head, 20 of 22 examples in whole batches: equal to rounding."""
    exact = ("--dtype", "float64", "--hidden_dropout_prob", "0", "--head", "plain")
    exact += ("--attention_probs_dropout_prob", "0", "--max_steps", "5", "--save_steps", "5")
    for name, batch, count in (("big", "4", "1"), ("small", "1", "4")):
        flags = ("--per_gpu_train_batch_size", batch, "--gradient_accumulation_steps", count)
        tiny.done(tmp_path / name, *exact, *flags)
    big, small = (arrays_of(tmp_path / name / "last") for name in ("big", "small"))
    assert max(np.abs(big[key] - small[key]).max() for key in big) < 1e-13


def test_a_batch_larger_than_the_data_is_reported_as_what_it_holds(tiny, tmp_path):
    flags = ("--max_steps", "2", "--per_gpu_train_batch_size", "64")
    said = tiny.done(tmp_path / "one", *flags)
    assert "2 steps of 22 x 1 examples" in said
    assert metrics(tmp_path / "one")["train"]["examples_per_step"] == 22
    tiny.done(tmp_path / "six", "--max_steps", "1", "--gradient_accumulation_steps", "64")
    assert metrics(tmp_path / "six")["train"]["examples_per_step"] == 22  # five of 4, one of 2


def test_frozen_encoder(tiny, tmp_path):
    flags = ("--max_steps", "2", "--save_steps", "1", "--freeze_encoder")
    tiny.done(tmp_path / "out", *flags)
    first, second = (arrays_of(tmp_path / "out" / f"checkpoint-{n}") for n in (1, 2))
    moved = {key for key in first if (first[key] != second[key]).any()}
    assert "head.word_fc.weight" in moved
    assert not [key for key in moved if key.startswith("bert.")]


def test_identity_names_every_difference():
    saved = {"seed": 1, "task_name": "RTE", "same": [1, 2]}
    current = {"seed": 2, "task_name": "CoLA", "same": (1, 2)}
    with pytest.raises(ValueError, match="seed: 1 there, 2 now; task_name: 'RTE' there, 'CoLA'"):
        check_identity(saved, current, Path("checkpoint-1"))
    check_identity(saved, saved, Path("checkpoint-1"))
    before, now = ({"head": {"fusion": fusion, "wr_dim": 4}} for fusion in (None, "concat"))
    with pytest.raises(ValueError, match=r"\(head: {'fusion': None, .* there, {'fusion': 'concat'"):
        check_identity(before, now, Path("checkpoint-1"))


def test_other_data_are_refused(tiny, done, tmp_path):
    data = tmp_path / "RTE"
    data.mkdir()
    for path in tiny.data.iterdir():
        text = path.read_text(encoding="utf-8")
        (data / path.name).write_text(text.replace("cat", "dog"), encoding="utf-8")
    assert "(the training data have changed: files" in tiny.refused(
        done, *tiny_run.STEPS, "--data_dir", str(data)
    )


def test_a_checkpoint_of_another_run_is_refused_before_anything_changes(tiny, done, tmp_path):
    """Even the run that --overwrite_output_dir starts afresh was gone then."""
    flags = ("--resume", str(done / "last"), "--learning_rate", "1e-4")
    assert "learning_rate" in tiny.refused(tmp_path / "new", *flags)
    alone = [flag for flag in tiny.command(tmp_path / "new") if flag != "--do_train"]
    assert in_process("train_glue")(alone) == 2  # nothing is there to evaluate
    assert not (tmp_path / "new").exists()
    tiny.done(tmp_path / "old", *tiny_run.STEPS)
    before = metrics(tmp_path / "old")
    tiny.refused(tmp_path / "old", *flags, "--overwrite_output_dir")
    assert metrics(tmp_path / "old") == before


# only finite numbers


@pytest.mark.parametrize("kind", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_numbers_of_every_kind_are_looked_at(tmp_path, kind):
    good = np.ones((2, 3), kind)
    for bad in (np.nan, np.inf, -np.inf):
        array = good.copy()
        array[1, 2] = bad
        file = TensorFile({"a": good, "b": array, "c": array})
        with pytest.raises(NonFinite, match=r"b \(in w\.safetensors\) holds a number"):
            checkpointing.write_folder(tmp_path / "best", [("w.safetensors", file)])
    whole = TensorFile({"a": good, "whole": np.array([1]), "none": good[:0]})
    checkpointing.write_folder(tmp_path / "best", [("w.safetensors", whole)])
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_weight_that_is_not_finite_is_not_saved(tiny, tmp_path, monkeypatch):
    """Its loss was finite: the step itself spoilt it, and no later step would have been tried."""
    original = trainer.ExactTrainer.on_optimizer_end

    def spoil(self, *arguments, **options):
        original(self, *arguments, **options)
        if self.state.global_step == 2:  # in the third step: the counter follows
            weight = dict(self.model.named_parameters())[POSITIONS]
            array = weight.numpy()
            array[-1, -1] = np.inf  # a position that no sentence reaches: no loss tells of it
            weight.set_value(array)

    monkeypatch.setattr(trainer.ExactTrainer, "on_optimizer_end", spoil)
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
    reading.write_manifest(done / "best")
    assert f"{done / 'best'}: {name} holds a number that is not finite" in tiny.refused(
        again, *STEPS, "--model_name_or_path", str(done / "best")
    )
    assert not again.exists()


# other operators


def test_a_run_goes_on_with_other_operators_and_says_so(tiny, done, monkeypatch) -> None:
    shutil.rmtree(done / "checkpoint-2")
    (done / "metrics.json").unlink()
    first = exact_state.operators_in_use()
    monkeypatch.setattr(exact_state, "runs_natively", lambda _: first == "plain")
    second = exact_state.operators_in_use()
    said = tiny.done(done, *tiny_run.STEPS)
    assert f"was trained with {first} operators, this run goes on with {second} ones" in said
    assert metrics(done)["train"]["operators"] == {"0": first, "1": second}
