"""Stage 1 of sharding: what each process holds, the same run as without, resumed bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest

from sot_paddle.train import sharding
from sot_paddle.train.optimizer import ClipGradByGlobalNorm
from tests.sot_paddle.train.run_output import arrays_of, assert_same_last, launch
from tests.sot_paddle.train.tiny_pretraining import write_texts

FILES = ("model.safetensors", "optimizer.safetensors")
NO_GRADIENT = "k_proj.bias"  # zero in exact arithmetic: Adam divides its rounding by its own size


def test_two_processes_share_the_state_of_the_same_run(tmp_path) -> None:
    root = write_texts(tmp_path)
    said = launch(tmp_path, Path(__file__).with_name("sharded_runs.py"), str(root))
    assert "continuing from" in said
    parts = [set((root / f"held{rank}").read_text("utf-8").split()) for rank in (0, 1)]
    whole = arrays_of(root / "whole" / "last", "optimizer.safetensors")
    assert parts[0] | parts[1] == set(whole)
    assert not parts[0] & parts[1]
    sizes = [sum(whole[name].size for name in part) for part in parts]
    assert abs(sizes[0] - sizes[1]) < 0.2 * sum(sizes)
    for name in FILES:
        expected, found = (arrays_of(root / run / "last", name) for run in ("whole", "sharded"))
        assert expected.keys() == found.keys()
        for key, array in expected.items():
            if NO_GRADIENT not in key:
                gap = np.abs(found[key] - array).max()
                assert gap <= 1e-12 * np.abs(array).max(), (key, gap)
    assert_same_last(root / "sharded", root / "resumed", FILES)


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("stage2", "sharding stage2: .*group_sharded_parallel refuses the CPU.*expected stage1"),
        ("stage3", "sharding stage3: Paddle 3.3 splits gradients and weights on GPUs alone"),
        ("stage4", "sharding: expected stage1, got 'stage4'"),
    ],
)
def test_stages_that_do_not_run_are_refused(stage, said) -> None:
    with pytest.raises(ValueError, match=said):
        sharding.check_stage(stage)
    for known in ("", "stage1"):
        sharding.check_stage(known)


def test_one_process_has_nobody_to_share_with() -> None:
    sharding.begin("")
    with pytest.raises(ValueError, match="sharding stage1 needs several processes: start them"):
        sharding.begin("stage1")


def test_the_norm_is_that_of_all_processes(float64) -> None:
    parameter, grad = paddle.ones([2]), paddle.to_tensor([3.0, 4.0])
    clip = ClipGradByGlobalNorm(1.0)
    ((_, alone),) = clip([(parameter, grad)])
    clip.across = lambda squares: squares + 144.0  # another process holds a gradient of 12
    ((_, shared),) = clip([(parameter, grad)])
    np.testing.assert_allclose(alone.numpy(), [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(shared.numpy(), [3 / 13, 4 / 13], rtol=1e-6)
