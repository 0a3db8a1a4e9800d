import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest

from sot_paddle import create_model
from sot_paddle.checkpoint import read_tensors
from sot_paddle.heads.pooling import TokenBatchNorm
from sot_paddle.train import distributed

ROOT = Path(__file__).resolve().parents[3]
EXACT = (
    *("--dtype", "float64", "--head_dropout", "0", "--hidden_dropout_prob", "0"),
    *("--attention_probs_dropout_prob", "0", "--gradient_accumulation_steps", "2"),
    *("--num_train_epochs", "2", "--save_steps", "2"),
)


def test_one_process_needs_no_reduction():
    x = paddle.to_tensor([1.0, 2.0])
    assert distributed.sum_across_processes(x) is x
    assert distributed.gather("a") == ["a"]
    assert distributed.mean_across_processes(3.5) == 3.5
    assert distributed.synchronise_batch_norm(create_tiny()) == 0


def create_tiny():
    return create_model(
        "bert_base_mgcrp",
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=8,
        vocab_size=9,
        q_dim=4,
        k_dim=3,
    )


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


@pytest.mark.slow
@pytest.mark.parametrize(("head", "bound"), [("plain", 1e-14), ("mgcrp", 1e-12)])
def test_two_processes_equal_one_with_the_doubled_batch(tmp_path, tiny_files, head, bound):
    """26 examples, global batch 4: the last one is incomplete; accumulation carries over."""
    data = tiny_files.write_glue(tmp_path / "glue", train=26)
    model = tiny_files.write_model(tmp_path / "model")
    tool = str(ROOT / "tools" / "train_glue.py")
    launch = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo"]
    launch += ["--log_dir", str(tmp_path / "logs")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PADDLE_")}
    outs = {"one": tmp_path / "one", "two": tmp_path / "two"}
    for name, prefix, batch in (("one", [], "4"), ("two", launch, "2")):
        flags = tiny_files.command(data, model, outs[name], *EXACT, "--head", head)
        command = [sys.executable, *prefix, tool, *flags, "--per_gpu_train_batch_size", batch]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    first, _ = read_tensors(outs["one"] / "last" / "model.safetensors")
    second, _ = read_tensors(outs["two"] / "last" / "model.safetensors")
    assert set(first) == set(second)
    start = np.abs(np.array(first["bert.encoder.layers.0.linear1.weight"])).max()
    assert start > 0.01
    for name in first:
        worst = np.abs(np.array(first[name]) - np.array(second[name])).max()
        assert worst <= bound, (name, worst)
    assert (outs["one"] / "RTE.tsv").read_bytes() == (outs["two"] / "RTE.tsv").read_bytes()


def test_only_a_process_with_others_leaves_at_once(monkeypatch):
    left = []
    monkeypatch.setattr(distributed.os, "_exit", left.append)
    assert distributed.leave(2) == 2
    assert left == []
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    distributed.leave(130)
    assert left == [130]
