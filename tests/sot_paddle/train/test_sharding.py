"""Sharding: what is refused, and the norm of all processes. Runs: test_two_processes.py."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.train import sharding
from sot_paddle.train.optimizer import ClipGradByGlobalNorm


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
