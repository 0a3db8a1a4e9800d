"""Two processes compute what one computes with the doubled batch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sot_paddle.train import tiny_images
from tests.sot_paddle.train.run_output import arrays_of, launch

pytestmark = pytest.mark.slow

EXACT = (
    *("--dtype", "float64", "--drop-path", "0", "--mixup", "0", "--cutmix", "0"),
    *("--gradient-accumulation-steps", "2", "--max-steps", "6"),
)
MASKS = (
    *("--drop-path", "0.5", "--drop", "0.2", "--recovery-interval", "1", "--max-steps", "4"),
    *("--keep-states", "99", "--save-total-limit", "99"),
)
RUNS = {
    "patches": EXACT,
    "own": (*EXACT, *tiny_images.DENSE),
    "synchronised": (*EXACT, *tiny_images.DENSE, "--sync-bn"),
    "whole": (*EXACT, *MASKS),
    "resumed": (*EXACT, *MASKS, "--resume", "whole/checkpoint-2"),
}
"""Folder of a run and its flags."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The folder of the images and of `RUNS` in the two processes of one launch."""
    folder = tmp_path_factory.mktemp("trained")
    data = tiny_images.write_images(folder / "data", train=9, val=3)
    commands = [tiny_images.command(data, folder / n, *RUNS[n], "-b", "2") for n in RUNS]
    launch(folder, Path(__file__).with_name("image_runs.py"), json.dumps(commands))
    return folder


@pytest.mark.parametrize("kind", ["patches", "synchronised"])
def test_two_processes_equal_one_with_the_doubled_batch(images, trained, tmp_path, kind):
    one, two = tmp_path / "one", trained / kind
    images.done(one, *RUNS[kind], "-b", "4", data=trained / "data")
    for name in ("model.safetensors", "ema.safetensors"):
        first, second = (arrays_of(out / "last", name) for out in (one, two))
        assert set(first) == set(second)
        for key, expected in first.items():
            found = second[key]
            assert expected.dtype == np.float64
            assert np.abs(expected - found).max() <= 1e-11, (name, key)
    scores = [
        json.loads((out / "metrics.json").read_text(encoding="utf-8"))["evaluations"]
        for out in (one, two)
    ]
    for step, expected in scores[0].items():
        assert scores[1][step] == pytest.approx(expected, rel=1e-9)


def test_statistics_of_each_process_differ_from_synchronised_ones(trained):
    """The control: as in the original, each process normalises with its own batch by default."""
    first, second = (arrays_of(trained / kind / "last") for kind in ("own", "synchronised"))
    key = next(name for name in first if name.endswith("running_var"))
    assert np.abs(first[key] - second[key]).max() > 1e-4


def test_processes_draw_masks_of_their_own_and_resume_is_exact(trained):
    """Each process has its own random state (seed + rank), and a checkpoint holds them all."""
    whole, resumed = trained / "whole", trained / "resumed"
    state = (whole / "checkpoint-2" / "state.json").read_text(encoding="utf-8")
    random = json.loads(state)["random"]
    assert len(random) == 2
    assert random[0]["paddle"] != random[1]["paddle"]
    for name in ("model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"):
        assert (resumed / "last" / name).read_bytes() == (whole / "last" / name).read_bytes()
