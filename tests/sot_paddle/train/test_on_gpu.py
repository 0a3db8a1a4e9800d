"""Training on a GPU: mixed precision, an exact resume, nccl, memory and throughput."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
BATCH, LENGTH, STEPS, WARM_UP = 32, 128, 30, 5


@pytest.fixture
def train(tiny_folders, tiny_files, exactly):
    """Trains the tiny text model into a folder, with further flags."""

    def run(out: Path, *more: object, launch: tuple = ()) -> None:
        flags = tiny_files.command(*tiny_folders, out, "--max_steps", "12", "--save_steps", "4")
        flags.remove("--no_cuda")
        exactly(*launch, "tools/train_glue.py", *flags, *more)

    return run


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_text_in_mixed_precision(train, tmp_path, kind, level):
    train(tmp_path / "out", f"--{kind}", "--fp16_opt_level", level)


@pytest.mark.parametrize("precision", [(), ("--amp",)])
def test_images(exactly, tmp_path, precision):
    config = ("--config", "configs/digits/sot_digits.yaml", "--set", "cpu=false")
    short = ("--epochs", "3", "--cooldown-epochs", "0", "--output", tmp_path)
    exactly("tools/train_image.py", *config, *short, *precision)


def test_a_resumed_run_is_bit_identical(train, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    train(whole)
    train(resumed, "--resume", whole / "checkpoint-8")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (whole / "last" / name).read_bytes() == (resumed / "last" / name).read_bytes()


def test_nccl_on_at_most_two_gpus(train, tmp_path, gpus):
    devices = ",".join(str(index) for index in range(min(2, gpus)))
    launch = ("-m", "paddle.distributed.launch", "--log_dir", tmp_path / "log")
    train(tmp_path / "out", launch=(*launch, "--devices", devices))


@pytest.mark.parametrize("side", ["paddle", "torch"])
def test_memory_and_throughput_of_bert_base(gpus, capsys, side):
    """Prints what a training step of each framework costs; there is no bound to pass."""
    ids = np.random.RandomState(0).randint(5, 30000, (BATCH, LENGTH))
    if side == "paddle":
        import paddle as framework

        from sot_paddle import create_model

        model = create_model("bert_base_mgcrp")
        optimizer = framework.optimizer.AdamW(1e-5, parameters=model.parameters())
        clear, batch, cuda = optimizer.clear_grad, framework.to_tensor(ids), framework.device.cuda
        name = cuda.get_device_properties(0).name
    else:
        import torch as framework

        from sot_torch_ref import create_model

        framework.backends.cuda.matmul.allow_tf32 = False
        model = create_model("bert_base_mgcrp").to("cuda")
        optimizer = framework.optim.AdamW(model.parameters(), lr=1e-5)
        clear, batch, cuda = optimizer.zero_grad, framework.tensor(ids).to("cuda"), framework.cuda
        name = cuda.get_device_name(0)
    model.train()
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            cuda.synchronize()
            start = time.perf_counter()
        (model(batch) ** 2).mean().backward()
        optimizer.step()
        clear()
    cuda.synchronize()
    speed = BATCH * STEPS / (time.perf_counter() - start)
    memory = cuda.max_memory_allocated() / 2**30
    with capsys.disabled():
        print(f"\n{side}, {name}: {speed:.0f} examples/s, {memory:.2f} GiB at most (float32)")
    assert speed > 0
