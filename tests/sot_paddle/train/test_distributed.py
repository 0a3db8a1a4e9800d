import numpy as np
import paddle
import pytest

from sot_paddle import distributed
from sot_paddle.heads.pooling import TokenBatchNorm
from tests.sot_paddle.train.run_output import ROOT, arrays_of, launch, metrics

pytestmark = pytest.mark.slow

EXACT = (
    *("--dtype", "float64", "--head_dropout", "0", "--hidden_dropout_prob", "0"),
    *("--attention_probs_dropout_prob", "0", "--gradient_accumulation_steps", "2"),
    *("--num_train_epochs", "2", "--save_steps", "2"),
)


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


def test_two_processes_equal_one_with_the_doubled_batch(tiny, tmp_path, tiny_files):
    """26 examples, global batch 4: the last one is incomplete; accumulation carries over."""
    flags = (*EXACT, "--data_dir", str(tiny_files.write_glue(tmp_path / "glue", train=26)))
    outs = [tmp_path / "one", tmp_path / "two"]
    tiny.done(outs[0], *flags, "--per_gpu_train_batch_size", "4")
    two = tiny.command(outs[1], *flags, "--per_gpu_train_batch_size", "2")
    launch(tmp_path, ROOT / "tools" / "train_glue.py", *two)
    first, second = (arrays_of(out / "last") for out in outs)
    assert set(first) == set(second)
    assert np.abs(first["bert.encoder.layers.0.linear1.weight"]).max() > 0.01
    for name in first:
        worst = np.abs(first[name] - second[name]).max()
        assert worst <= 1e-12, (name, worst)
    losses = [metrics(out)["train"]["loss"] for out in outs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)  # of all processes, not of the first
    assert (outs[0] / "RTE.tsv").read_bytes() == (outs[1] / "RTE.tsv").read_bytes()


def test_only_a_process_with_others_leaves_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(distributed.os, "_exit", left.append)
    assert distributed.leave(2) == 2
    assert left == []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    distributed.leave(130)
    assert left == [130]
