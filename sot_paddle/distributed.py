"""Data parallelism: what differs between one process and several.

``paddle.distributed.launch`` starts the processes, the Trainer averages the gradients; here is
what they leave out: reductions that gradients flow through, synchronised batch statistics, and
results collected in dataset order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.autograd import PyLayer

from sot_paddle.cli import TrainingStopped


def world_size() -> int:
    """Processes of this run."""
    return dist.get_world_size()


def rank() -> int:
    """Index of this process, 0 when there is only one."""
    return dist.get_rank()


def say(text: str) -> None:
    """Print a progress line on the first process."""
    if rank() == 0:
        print(text, file=sys.stderr, flush=True)


class _SumAcrossProcesses(PyLayer):
    """``y = sum_r x_r`` on every process; hence ``dL/dx_r = sum_s dL_s/dy``."""

    @staticmethod
    def forward(ctx, x: paddle.Tensor) -> paddle.Tensor:
        return _all_reduce(x)

    @staticmethod
    def backward(ctx, gradient: paddle.Tensor) -> paddle.Tensor:
        return _all_reduce(gradient)


def _all_reduce(x: paddle.Tensor) -> paddle.Tensor:
    total = x.detach().reshape([-1]).clone()  # a copy, and never 0-dimensional
    dist.all_reduce(total)
    return total.reshape(x.shape)


def sum_across_processes(x: paddle.Tensor) -> paddle.Tensor:
    """Sum of a tensor over all processes, differentiable.

    The loss of a data-parallel run is the mean of the processes' losses. Each process computes
    the gradient of its own loss, and the Trainer averages: a statistic that is shared must
    therefore gather the gradients of *all* the losses on its way back, which is again a sum.

    Returns:
        The sum, same shape; ``x`` itself in a single process.
    """
    if world_size() == 1:
        return x
    return _SumAcrossProcesses.apply(x)


def synchronise_batch_norm(model: nn.Layer) -> int:
    """Make every batch normalisation of a model use the statistics of all processes.

    It reaches the layers of this project that have a ``sum_across_processes`` hook.

    PADDLE: SyncBatchNorm has no CPU kernel; the layer's sums are reduced instead.

    Returns:
        Number of layers changed (0 in a single process).
    """
    if world_size() == 1:
        return 0
    layers = [layer for layer in model.sublayers() if hasattr(layer, "sum_across_processes")]
    for layer in layers:
        layer.sum_across_processes = sum_across_processes
    return len(layers)


def share_buffers(model: nn.Layer) -> None:
    """Overwrite the buffers of every process (running statistics, tables) with the first one's.

    The first process's are those that are saved; with them all processes evaluate one model.
    """
    if world_size() == 1:
        return
    for buffer in model.buffers():
        dist.broadcast(buffer, src=0)


def gather(item: Any) -> list[Any]:
    """One Python object of each process, by rank."""
    if world_size() == 1:
        return [item]
    items: list[Any] = []
    dist.all_gather_object(items, item)
    return items


def join() -> None:
    """Meet the other processes of the run, if there are any."""
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        dist.init_parallel_env()


def mean_across_processes(value: float) -> float:
    """Mean of a number over all processes."""
    values = gather(value)
    return sum(values) / len(values)


def leave(status: int) -> int:
    """End this process at once where there are several; hand the status on where there is one.

    PADDLE: a process that takes gloo down while the interpreter exits may abort without a word
    when its peer has gone already, and the launcher then calls a finished run failed. All that
    this run writes is on the disk by now.
    """
    if world_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def on_first_process(action: Callable[[], None]) -> None:
    """Run something once, on the first process; the others wait, and fail if it failed.

    Raises:
        TrainingStopped: on the other processes, when the first one's action raised.
    """
    if world_size() == 1:
        action()
        return
    failure: BaseException | None = None
    if rank() == 0:
        try:
            action()
        except (OSError, ValueError, RuntimeError) as error:
            failure = error
    failed = gather(failure is not None)
    if failure is not None:
        raise failure
    if any(failed):
        raise TrainingStopped("the first process failed; see its message")
