import numpy as np
import paddle
import pytest

from sot_paddle import distributed
from sot_paddle.heads.pooling import TokenBatchNorm


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


def test_batch_norm_reduces_through_its_hook():
    """Two processes with equal data, simulated: sums and counts double, statistics stay."""
    x = paddle.to_tensor(np.random.RandomState(1).randn(3, 4, 5).astype("float32"))
    plain, doubled = TokenBatchNorm(5), TokenBatchNorm(5)
    doubled.sum_across_processes = lambda total: total * 2
    assert paddle.allclose(plain(x), doubled(x), atol=1e-6)
    tripled = TokenBatchNorm(5)
    tripled.sum_across_processes = lambda total: total * 3 if total.size == 1 else total
    assert not paddle.allclose(plain(x), tripled(x), atol=1e-2)


def test_only_a_process_with_others_leaves_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(distributed.os, "_exit", left.append)
    assert distributed.leave(2) == 2
    assert left == []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    distributed.leave(130)
    assert left == [130]
