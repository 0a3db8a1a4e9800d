"""Two processes compute what one computes with the doubled batch, and resume exactly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.launching import launch
from tests.sot_paddle.train import tiny_images, tiny_run
from tests.sot_paddle.train.run_output import arrays_of, metrics

pytestmark = pytest.mark.slow

TEXT = (
    *("--dtype", "float64", "--head_dropout", "0", "--hidden_dropout_prob", "0"),
    *("--attention_probs_dropout_prob", "0", "--gradient_accumulation_steps", "2"),
    *("--num_train_epochs", "2", "--save_steps", "2"),
)
EXACT = (
    *("--dtype", "float64", "--drop-path", "0", "--mixup", "0", "--cutmix", "0"),
    *("--gradient-accumulation-steps", "2", "--max-steps", "4"),
)
MASKS = (
    *("--drop-path", "0.5", "--drop", "0.2", "--recovery-interval", "2", "--max-steps", "4"),
    *("--set", "save_epochs=9"),
)
IMAGES = {
    "own": (*EXACT, *tiny_images.DENSE),
    "synchronised": (*EXACT, *tiny_images.DENSE, "--sync-bn"),
    "whole": (*EXACT, *MASKS),
    "resumed": (*EXACT, *MASKS, "--resume", "whole/checkpoint-2"),
}
"""Folder of a run of images and its flags."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of all runs, in the two processes of one launch, and of what they were told."""
    root = tmp_path_factory.mktemp("trained")
    # 26 examples, global batch 4: the last one is incomplete; accumulation carries over
    glue, model = tiny_run.write_glue(root / "glue", train=26), tiny_run.write_model(root / "model")
    pictures = tiny_images.write_images(root / "data", train=9, val=3)
    half = ("--per_gpu_train_batch_size", "2")
    runs = [("train_glue", tiny_run.command(glue, model, root / "text", *TEXT, *half))]
    for name, flags in IMAGES.items():
        runs.append(("train_image", tiny_images.command(pictures, root / name, *flags, "-b", "2")))
    (root / "runs.json").write_text(json.dumps(runs), "utf-8")
    said = launch(root, Path(__file__).with_name("two_processes.py"), str(root))
    assert "continuing from" in said
    return root


def test_text_is_that_of_one_process(tiny, trained, tmp_path) -> None:
    one, two = tmp_path / "one", trained / "text"
    tiny.done(one, *TEXT, "--data_dir", str(trained / "glue" / "RTE"))
    first, second = (arrays_of(out / "last") for out in (one, two))
    assert np.abs(first["bert.encoder.layers.0.linear1.weight"]).max() > 0.01
    assert_near(second, first, 1e-12)
    expected, shared = (metrics(out)["train"] for out in (one, two))
    assert shared["loss"] == pytest.approx(expected["loss"], rel=1e-9)  # of all processes
    assert shared["operators"] == expected["operators"]
    assert (one / "RTE.tsv").read_bytes() == (two / "RTE.tsv").read_bytes()


def assert_near(found: dict, expected: dict, bound: float) -> None:
    """Two files hold the same names, and values that are as near in float64."""
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert array.dtype == np.float64
        assert np.abs(found[key] - array).max() <= bound, key


def test_images_are_those_of_one_process(images, trained, tmp_path) -> None:
    one, two = tmp_path / "one", trained / "synchronised"
    images.done(one, *IMAGES["synchronised"], "-b", "4", data=trained / "data")
    for name in ("model.safetensors", "ema.safetensors"):
        assert_near(arrays_of(two / "last", name), arrays_of(one / "last", name), 1e-11)
    scores = [metrics(out)["evaluations"] for out in (one, two)]
    for step, expected in scores[0].items():
        assert scores[1][step] == pytest.approx(expected, rel=1e-9)


def test_statistics_of_each_process_differ_from_synchronised_ones(trained) -> None:
    """The control: as in the original, each process normalises with its own batch by default."""
    first, second = (arrays_of(trained / kind / "last") for kind in ("own", "synchronised"))
    key = next(name for name in first if name.endswith("running_var"))
    assert np.abs(first[key] - second[key]).max() > 1e-4


def test_processes_draw_masks_of_their_own_and_resume_is_exact(trained) -> None:
    """Each process has its own random state (seed + rank), and a checkpoint holds them all."""
    whole, resumed = trained / "whole", trained / "resumed"
    state = (whole / "checkpoint-2" / "state.json").read_text(encoding="utf-8")
    random = json.loads(state)["random"]
    assert len(random) == 2
    assert random[0]["paddle"] != random[1]["paddle"]
    for name in ("model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"):
        assert (resumed / "last" / name).read_bytes() == (whole / "last" / name).read_bytes()
