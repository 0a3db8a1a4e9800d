"""Where a run computes: device, dtype, the other processes, random seeds."""

from __future__ import annotations

import random

import numpy as np
import paddle
from paddlenlp.utils.log import logger as paddlenlp_logger

from sot_paddle import distributed
from sot_paddle.ops.bfloat16 import choose_products


def prepare_device(
    *, dtype: str, cpu: bool, half: str = "", cpu_precision: str = "float32"
) -> None:
    """Choose device and dtype, refuse what they cannot do, join the other processes.

    Args:
        half: the flag that asked for mixed precision, "" for none.
        cpu_precision: factors of the products of linear layers, ``"float32"`` or ``"bf16"``.
    """
    paddlenlp_logger.set_level("ERROR")
    has_gpu = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    if half and (cpu or not has_gpu):
        raise ValueError(f"{half} needs a GPU and this run is on the CPU: drop {half}")
    if cpu:
        paddle.set_device("cpu")
    paddle.set_default_dtype(dtype)
    choose_products(cpu_precision)
    distributed.join()


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and Paddle."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    paddle.seed(seed)
