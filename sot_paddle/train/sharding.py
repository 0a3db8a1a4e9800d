"""Stage 1 of sharding: each process holds the optimizer's state of its share of the parameters.

paddlenlp's Trainer wraps the optimizer: gradients are averaged on the process that owns a
parameter, which updates it and sends it to the others. Here is what is kept as without it:
clipping, and checkpoints that hold the whole state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import nn
from paddle.distributed import fleet
from paddle.optimizer import Optimizer

from sot_paddle import distributed
from sot_paddle.train import exact_state
from sot_paddle.train.optimizer import ClipGradByGlobalNorm


def check_stage(stage: str) -> None:
    """Refuse a stage that does not run."""
    if stage in ("stage2", "stage3"):
        raise ValueError(
            f"sharding {stage}: Paddle 3.3 splits gradients and weights on GPUs alone "
            "(group_sharded_parallel refuses the CPU), where it was not run; expected stage1"
        )
    if stage not in ("", "stage1"):
        raise ValueError(f"sharding: expected stage1, got {stage!r}")


def begin(stage: str) -> None:
    """Tell Paddle that all processes share the optimizer's state; nothing without a stage.

    PADDLE: paddlenlp's Trainer does it only where the processes have not met yet.
    """
    if not stage:
        return
    if distributed.world_size() == 1:
        raise ValueError(
            f"sharding {stage} needs several processes: start them with "
            "python -m paddle.distributed.launch --nproc_per_node N (docs/training.md)"
        )
    strategy = fleet.DistributedStrategy()
    other_degrees = dict.fromkeys(("dp_degree", "mp_degree", "pp_degree"), 1)
    strategy.hybrid_configs = {**other_degrees, "sharding_degree": distributed.world_size()}
    strategy.hybrid_configs["sharding_configs"].use_reduce_avg = False  # NCCL's alone
    fleet.init(is_collective=True, strategy=strategy)


def innermost(optimizer: Any) -> Optimizer:
    """The optimizer inside of what Paddle wraps around it."""
    while hasattr(optimizer, "_inner_opt"):
        optimizer = optimizer._inner_opt
    return optimizer


def keep_clipping(optimizer: Any, clip: nn.ClipGradBase | None) -> None:
    """Clip as without sharding, by the norm of all processes' gradients together.

    PADDLE: its wrapper clips by c / max(norm, c) in place of the optimizer's own formula.
    """
    if isinstance(clip, ClipGradByGlobalNorm):
        clip.across = distributed.sum_across_processes
    innermost(optimizer)._grad_clip = clip


def gathered(optimizer: Any, model: nn.Layer) -> tuple[dict[str, Any], dict[str, int]] | None:
    """The whole state, arrays and counters as `exact_state` names them, on every process.

    Returns:
        None where nothing is sharded.
    """
    inner = innermost(optimizer)
    if inner is optimizer:
        return None
    arrays = exact_state.optimizer_arrays(inner, model)
    counters = exact_state.optimizer_counters(inner, model)
    for some, counted in distributed.gather((arrays, counters)):
        arrays |= some
        counters |= counted
    return dict(sorted(arrays.items())), counters


def restore(
    optimizer: Any, model: nn.Layer, arrays: Mapping[str, Any], counters: Mapping[str, int]
) -> None:
    """Put this process's share of a whole state back; see `exact_state.restore_optimizer`."""
    inner = innermost(optimizer)
    if inner is optimizer:
        exact_state.restore_optimizer(optimizer, model, arrays, counters)
        return
    names = exact_state.structured_names(model)
    local_names = {names[parameter.name] for parameter in inner._parameter_list}
    exact_state.restore_optimizer(
        inner,
        model,
        {key: arrays[key] for key in arrays if key.rpartition("/")[0] in local_names},
        {name: count for name, count in counters.items() if name in local_names},
    )
