"""What one process leaves out, and the stages of sharding. Two: test_two_processes.py."""

import paddle
import pytest

from sot_paddle import distributed
from sot_paddle.train import sharding


def test_one_process_needs_no_reduction(tiny_bert):
    x = paddle.to_tensor([1.0, 2.0])
    assert distributed.sum_across_processes(x) is x
    assert distributed.gather("a") == ["a"]
    assert distributed.mean_across_processes(3.5) == 3.5
    assert distributed.synchronise_batch_norm(tiny_bert()) == 0


def test_first_process_failures_are_raised():
    def fail():
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        distributed.on_first_process(fail)


def test_only_a_process_with_others_leaves_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(distributed.os, "_exit", left.append)
    assert distributed.leave(2) == 2
    assert left == []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    distributed.leave(130)
    assert left == [130]


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
