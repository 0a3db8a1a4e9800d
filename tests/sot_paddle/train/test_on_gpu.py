"""Training on a GPU: mixed precision, an exact resume, nccl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sot_paddle.train import tiny_run

pytestmark = pytest.mark.gpu


@pytest.fixture
def train(tiny_folders, exactly):
    """Trains the tiny text model into a folder, with further flags."""

    def run(out: Path, *more: object, launch: tuple = ()) -> None:
        flags = tiny_run.command(*tiny_folders, out, "--max_steps", "12", "--save_steps", "4")
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
