"""Whole runs in this process: what they leave, resuming, refusals, interruptions."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace
from unittest import mock

import pytest

from sot_paddle.checkpoint import read_tensors
from sot_paddle.train import checkpointing, outcome, run
from sot_paddle.train.model_folder import load_trained
from tests.sot_paddle.train import tiny_images
from tests.sot_paddle.train.run_output import arrays_of, assert_same_last, metrics, same_arrays

pytestmark = pytest.mark.slow

STATE = ("model.safetensors", "ema.safetensors", "optimizer.safetensors")


def test_what_a_run_leaves(images, tmp_path):
    out = tmp_path / "out"
    err = images.done(out)
    content = metrics(out)
    assert content["train"]["steps"] == 18  # three epochs of six batches of 4; 3 images left out
    assert set(content["evaluations"]) == {"6", "12", "18"}
    scores = content["evaluations"]["6"]
    assert set(scores) == {"top1", "loss", "ema_top1", "ema_loss"}
    assert content["metric"] == "ema_top1"
    best = content["best"]
    assert best["ema_top1"] == max(e["ema_top1"] for e in content["evaluations"].values())
    kept = json.loads((out / "best" / "best.json").read_text(encoding="utf-8"))
    assert (str(kept["step"]), kept["value"]) == (best["step"], best["ema_top1"])
    assert checkpointing.is_whole(out / "best")
    assert list((out / "runs").glob("vdlrecords*"))
    assert (out / "last").resolve() == out / "checkpoint-18"
    assert "16 pixels, 2 epochs and 1 of cool-down\n" in err
    assert "images/s" in err
    assert "train, 3 classes: ant (9), bee (9), cow (9)\nval, 3 classes: ant (4)" in err
    assert "left" in err
    model, config = load_trained(out)
    assert config.classes == tiny_images.CLASSES
    assert same_arrays(
        {name: t.numpy() for name, t in model.state_dict().items()},
        arrays_of(out / "best", "ema.safetensors"),
    )


@pytest.mark.parametrize(
    ("flags", "steps"),
    [
        pytest.param(("--max-steps", "8"), (4, 6), id="patches"),
        pytest.param(
            (*tiny_images.DENSE, "--max-steps", "5", "--model-ema-warmup"),
            (4,),
            id="batch statistics, warm-up of the average",
        ),
    ],
)
def test_resume_is_exact(images, tmp_path, all_states, flags, steps):
    """Weights, moving average, optimizer and state, from within an epoch and between two.

    Step 6 goes on with workers that read ahead, one of them in evaluation: they change nothing.
    """
    flags = ("--recovery-interval", "2", "--save-total-limit", "99", *flags)
    whole = tmp_path / "whole"
    images.done(whole, *flags)
    last = (whole / "last").resolve().name
    assert not same_arrays(arrays_of(whole / "checkpoint-2"), arrays_of(whole / last))
    averages = arrays_of(whole / last, "ema.safetensors")
    assert not same_arrays(averages, arrays_of(whole / last))
    for step in steps:
        out = tmp_path / f"from-{step}"
        workers = ("--workers", "2") if step == 6 else ()
        images.done(out, *flags, *workers, "--resume", str(whole / f"checkpoint-{step}"))
        assert_same_last(out, whole, STATE)
        states = [(place / "last" / "state.json").read_bytes() for place in (out, whole)]
        assert states[0] == states[1]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--amp",), "--amp needs a GPU"),
        (("--num-classes", "5"), "expected 5 classes"),
        (("--batch-size", "64"), "27 training images do not fill one batch of 64"),
        (("--set", "embed_dimm=3"), "unknown option 'embed_dimm' for sot_tiny"),
        (("--eval-metric", "top5"), "top5 needs more than five classes"),
        (("--initial-checkpoint", "nowhere"), "there is no such file or folder"),
    ],
)
def test_refusals_are_one_line_and_status_2(images, tmp_path, flags, said):
    assert said in images.refused(tmp_path / "out", *flags)
    assert not list(tmp_path.glob("out/checkpoint-*"))


def test_corrupt_images_are_fatal(images, tmp_path):
    """A damaged validation image is found at the start, not when the first epoch is over."""
    data = tiny_images.write_images(tmp_path / "data", train=4, val=2)
    (data / "val" / "ant" / "ant0.png").write_bytes(b"no image")
    assert "ant0.png" in images.refused(tmp_path / "out", data=data)
    assert not (tmp_path / "out").exists()


def test_a_continued_run_does_not_need_its_initial_checkpoint(images, tmp_path):
    """It is loaded once, its average where nothing else is asked for, and then never again."""
    begun = tmp_path / "begun"
    images.done(begun, "--max-steps", "2")

    def convert(place, model, shapes, *, ema=None):
        assert (place, ema) == (begun / "best" / "ema.safetensors", None)
        tensors, metadata = read_tensors(place)
        return SimpleNamespace(
            arrays=tensors, fresh=(), notes=("read",), metadata=metadata, averaged=None
        )

    flags = ("--initial-checkpoint", str(begun), "--drop-path", "0", "--max-steps", "2")
    flags += ("--recovery-interval", "1")
    outs = [tmp_path / name for name in ("whole", "continued")]
    for out in outs:
        err = images.done(out, *flags, convert=convert)
        assert "best/ema.safetensors, 0 start afresh" in err
    shutil.rmtree(outs[1] / "checkpoint-2")
    shutil.rmtree(begun)
    err = images.done(outs[1], *flags)
    assert "continuing from" in err
    assert_same_last(outs[0], outs[1], STATE)


@pytest.mark.parametrize(
    ("more", "behind"), [(("--set", "model_ema_warmup=false"), True), ((), False)]
)
def test_a_warm_up_lets_the_average_of_a_short_run_catch_up(images, tmp_path, more, behind):
    slow = ("--model-ema-decay", "0.9999", "--eval-metric", "loss", "--mixup", "0", "--cutmix", "0")
    err = images.done(tmp_path / "out", *slow, "--smoothing", "0", "--no-aug", *more)
    content = metrics(tmp_path / "out")
    lag = content["best"]["ema_loss"] - content["best"]["loss"]
    assert (lag > 0.02) == behind
    assert ("averages over 10000 steps, of which this run has 18" in err) != behind


@pytest.mark.parametrize(("steps", "is_short"), [(56, True), (199, True), (200, False)])
def test_a_run_shorter_than_ten_spans_of_its_average_warms_it_up(steps, is_short):
    ema = mock.Mock(decay=0.95)
    run._choose_warmup(ema, steps)
    assert ema.warmup == is_short


def test_the_best_says_how_it_was_measured_last(images, tmp_path):
    """best/ is evaluated as its config.json says; scores by other measures are forgotten."""
    out = tmp_path / "out"
    images.done(out, "--max-steps", "12")
    shutil.rmtree(out / "checkpoint-12")
    assert "continuing from" in images.done(out, "--max-steps", "12", "--crop-pct", "0.5")
    assert set(metrics(out)["evaluations"]) == {"12"}
    for crop in ("0.5", "0.6"):
        images.done(out, "--max-steps", "12", "--crop-pct", crop)
        kept = json.loads((out / "best" / "best.json").read_text(encoding="utf-8"))
        assert (str(kept["step"]), kept["value"]) == ("12", metrics(out)["best"]["ema_top1"])
        assert load_trained(out)[1].crop_pct == float(crop)
        assert checkpointing.is_whole(out / "best")


def test_bare_class_folders_train_with_a_share_for_validation(images, tmp_path):
    data = tmp_path / "mine"
    tiny_images.write_images(data, train=5, val=1)
    shutil.rmtree(data / "val")
    (data / "train").rename(tmp_path / "bare")
    err = images.done(tmp_path / "out", "--max-steps", "2", data=tmp_path / "bare")
    assert "bare has no train and val: 3 of its 15 images are for validation" in err
    assert "train, 3 classes: ant (4), bee (4), cow (4)\nval, 3 classes: ant (1)" in err


def test_of_equal_scores_the_lower_loss_is_the_best():
    task = SimpleNamespace(metric="top1", maximise=True, tie_breaker="loss")
    run = SimpleNamespace(task=task, metric="ema_top1")
    rows = ((50.0, 1.0), (50.0, 2.0), (50.0, 0.5), (40.0, 0.1), (float("nan"), 0.1))
    scores = [{"ema_top1": top1, "ema_loss": loss, "loss": 9 - loss} for top1, loss in rows]
    better = [outcome.is_better(scores[0], other, run) for other in scores]
    assert better == [False, True, False, True, True]
    task.tie_breaker = ""
    assert not outcome.is_better(scores[0], scores[1], run)
