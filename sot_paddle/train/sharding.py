"""Stage 1 of sharding: each process holds the optimizer's state of its share of the parameters.

paddlenlp's Trainer wraps the optimizer: gradients are averaged on the process that owns a
parameter, which updates it and sends it to the others. Here is what is kept as without it:
clipping, and checkpoints that hold the whole state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paddle import nn
from paddle.distributed import fleet
from paddle.optimizer import Optimizer

from sot_paddle import distributed
from sot_paddle.train import exact_state
from sot_paddle.train.optimizer import ClipGradByGlobalNorm
from sot_paddle.train.trainer import ExactTrainer


def begin() -> None:
    """Tell Paddle that all processes share the optimizer's state.

    PADDLE: paddlenlp's Trainer does it only where the processes have not met yet.
    """
    if distributed.world_size() == 1:
        raise ValueError(
            "sharding stage1 needs several processes: start them with "
            "python -m paddle.distributed.launch --nproc_per_node N (docs/training.md)"
        )
    strategy = fleet.DistributedStrategy()
    other_degrees = dict.fromkeys(("dp_degree", "mp_degree", "pp_degree"), 1)
    strategy.hybrid_configs = {**other_degrees, "sharding_degree": distributed.world_size()}
    strategy.hybrid_configs["sharding_configs"].use_reduce_avg = False  # NCCL's alone
    fleet.init(is_collective=True, strategy=strategy)


class ShardedTrainer(ExactTrainer):
    """The trainer of processes that share the optimizer's state."""

    @property
    def innermost(self) -> Optimizer:
        """The optimizer inside of what Paddle wraps around it."""
        optimizer = self.optimizer
        while hasattr(optimizer, "_inner_opt"):
            optimizer = optimizer._inner_opt
        return optimizer

    def _wrap_model(self, model: nn.Layer, training: bool = True) -> nn.Layer:
        """Clip as without sharding, by the norm of all processes' gradients together.

        PADDLE: its wrapper clips by c / max(norm, c) in place of the optimizer's own formula.
        """
        clip = self.optimizer._grad_clip
        wrapped = super()._wrap_model(model, training)
        if isinstance(clip, ClipGradByGlobalNorm):
            clip.across = distributed.sum_across_processes
        self.innermost._grad_clip = clip
        return wrapped

    def _optimizer_state(self) -> tuple[Callable[[], dict[str, Any]], dict[str, int]]:
        """The whole state, arrays and counters as `exact_state` names them, on every process."""
        arrays = exact_state.optimizer_arrays(self.innermost, self.model)
        counters = exact_state.optimizer_counters(self.innermost, self.model)
        for some, counted in distributed.gather((arrays, counters)):
            arrays |= some
            counters |= counted
        return lambda: dict(sorted(arrays.items())), counters

    def _restore_optimizer(self, arrays: Mapping[str, Any], counters: Mapping[str, int]) -> None:
        """Put this process's share of a whole state back."""
        names = exact_state.structured_names(self.model)
        local_names = {names[parameter.name] for parameter in self.innermost._parameter_list}
        exact_state.restore_optimizer(
            self.innermost,
            self.model,
            {key: arrays[key] for key in arrays if key.rpartition("/")[0] in local_names},
            {name: count for name, count in counters.items() if name in local_names},
        )
