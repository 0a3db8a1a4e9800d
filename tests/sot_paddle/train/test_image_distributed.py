"""Two processes compute what one computes with the doubled batch."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from tests.sot_paddle.train.run_output import arrays_of, train_in_processes

pytestmark = pytest.mark.slow

EXACT = (
    *("--dtype", "float64", "--drop-path", "0", "--mixup", "0", "--cutmix", "0"),
    *("--gradient-accumulation-steps", "2", "--max-steps", "6"),
)


def _train(tmp_path, image_files, data, out, batch, processes, *flags) -> None:
    own = image_files.command(data, out, *EXACT, *flags, "-b", str(batch))
    train_in_processes("train_image", own, tmp_path, processes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, image_files):
    """A run of a kind with so many processes, made once: its folder."""
    folder = tmp_path_factory.mktemp("trained")
    data = image_files.write_images(folder / "data", train=9, val=3)
    flags = {
        "patches": (),
        "own batch statistics": image_files.DENSE,
        "synchronised batch statistics": (*image_files.DENSE, "--sync-bn"),
    }

    @functools.cache
    def run(kind: str, processes: int) -> Path:
        out = folder / f"{kind} {processes}"
        _train(folder, image_files, data, out, 4 // processes, processes, *flags[kind])
        return out

    return run


@pytest.mark.parametrize("kind", ["patches", "synchronised batch statistics"])
def test_two_processes_equal_one_with_the_doubled_batch(trained, kind):
    one, two = trained(kind, 1), trained(kind, 2)
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
    kinds = ("own batch statistics", "synchronised batch statistics")
    first, second = (arrays_of(trained(kind, 2) / "last") for kind in kinds)
    key = next(name for name in first if name.endswith("running_var"))
    assert np.abs(first[key] - second[key]).max() > 1e-4


def test_processes_draw_masks_of_their_own_and_resume_is_exact(tmp_path, image_files):
    """Each process has its own random state (seed + rank), and a checkpoint holds them all."""
    data = image_files.write_images(tmp_path / "data", train=9, val=3)
    flags = ("--drop-path", "0.5", "--drop", "0.2", "--recovery-interval", "1")
    flags += ("--keep-states", "99", "--save-total-limit", "99", "--max-steps", "4")
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    _train(tmp_path, image_files, data, whole, 2, 2, *flags)
    middle = whole / "checkpoint-2"
    random = json.loads((middle / "state.json").read_text(encoding="utf-8"))["random"]
    assert len(random) == 2
    assert random[0]["paddle"] != random[1]["paddle"]
    _train(tmp_path, image_files, data, resumed, 2, 2, *flags, "--resume", str(middle))
    for name in ("model.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json"):
        assert (resumed / "last" / name).read_bytes() == (whole / "last" / name).read_bytes()
