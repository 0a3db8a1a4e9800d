"""Everything besides the weights that the next training step depends on; whose run it is.

Optimizer state goes by *structured* parameter names: Paddle's own state dict uses automatic
names ("linear_4.w_0_moment1_0") that depend on how many layers the process built before, so a
second model in one process cannot be resumed from it. Random states are plain numbers (JSON),
so that reading a checkpoint never runs a pickle.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.base import core, framework

from sot_paddle import distributed
from sot_paddle.ops.dispatch import runs_natively

_MASTER = "master_weight"
_SEPARATOR = "/"


def structured_names(model: nn.Layer) -> dict[str, str]:
    """Automatic parameter name to structured name, for every parameter of a model."""
    return {parameter.name: name for name, parameter in model.named_parameters()}


def optimizer_arrays(optimizer: paddle.optimizer.Optimizer, model: nn.Layer) -> dict[str, Any]:
    """Copy every accumulator and master weight.

    Returns:
        ``"<structured name>/<accumulator>"`` to array.
    """
    names = structured_names(model)
    arrays = {
        names[automatic] + _SEPARATOR + accumulator: tensor.numpy().copy()
        for accumulator, table in optimizer._accumulators.items()
        for automatic, tensor in table.items()
    }
    for automatic, tensor in getattr(optimizer, "_master_weights", {}).items():
        arrays[names[automatic] + _SEPARATOR + _MASTER] = tensor.numpy().copy()
    return dict(sorted(arrays.items()))  # a resumed optimizer holds them in another order


def optimizer_counters(optimizer: paddle.optimizer.Optimizer, model: nn.Layer) -> dict[str, int]:
    """Step counters that an optimizer keeps beside its tensors, by structured name."""
    names = structured_names(model)
    return {names[key]: value for key, value in getattr(optimizer, "_steps", {}).items()}


def restore_optimizer(
    optimizer: paddle.optimizer.Optimizer,
    model: nn.Layer,
    arrays: Mapping[str, Any],
    counters: Mapping[str, int],
) -> None:
    """Put saved state into a fresh optimizer, whatever the automatic names are now."""
    parameters = dict(model.named_parameters())
    owners = {key.rpartition(_SEPARATOR)[0] for key in arrays}
    unknown = sorted(owners - set(parameters))
    if unknown:
        raise ValueError(
            f"the checkpoint's optimizer state is of another model: no parameter {unknown[0]!r}"
        )
    block = framework.default_main_program().global_block()
    optimizer._create_accumulators(block, [parameters[name] for name in sorted(owners)])
    masters = getattr(optimizer, "_master_weights", {})
    for key, array in arrays.items():
        owner, _, accumulator = key.rpartition(_SEPARATOR)
        table = masters if accumulator == _MASTER else optimizer._accumulators.get(accumulator, {})
        target = table.get(parameters[owner].name)
        if target is None or list(target.shape) != list(array.shape):
            raise ValueError(f"the checkpoint's optimizer state {key!r} does not fit this model")
        target.set_value(array)
    if hasattr(optimizer, "_steps"):
        optimizer._steps.clear()
        for name, value in counters.items():
            optimizer._steps[parameters[name].name] = value


def random_states() -> dict[str, Any]:
    """Python's, NumPy's and Paddle's generators (CPU and every GPU) as JSON-ready numbers."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, keys.tolist(), int(position), int(has_gauss), float(cached)],
        "paddle": [list(state.__getstate__()) for state in _states_of_devices()],
    }


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Set all generators to what :func:`random_states` returned."""
    devices = len(_states_of_devices())
    if len(states["paddle"]) != devices:
        raise ValueError(
            f"the checkpoint has random states of {len(states['paddle'])} devices, this machine "
            f"has {devices}: resume on the same kind of machine, or start afresh with "
            "--overwrite_output_dir"
        )
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    restored = []
    for saved in states["paddle"]:
        restored.append(core.GeneratorState.__new__(core.GeneratorState))
        restored[-1].__setstate__(tuple(saved))
    core.default_cpu_generator().set_state(restored[0])  # set_rng_state(.., "cpu") fails before 3.3
    paddle.set_cuda_rng_state(restored[1:])


def _states_of_devices() -> list[core.GeneratorState]:
    return [*paddle.get_rng_state("cpu"), *paddle.get_cuda_rng_state()]


@dataclass
class Progress:
    """Running sums that a resumed run continues."""

    window: list[float] = field(default_factory=list)  # losses since the last log line
    loss_sum: float = 0.0
    best_step: int = 0
    since_best: int = 0
    # metrics by step (as text, for JSON)
    evaluations: dict[str, dict[str, float]] = field(default_factory=dict)
    evaluation_data: str = ""  # fingerprint of the data they were measured on
    # `operators_in_use` by the step (as text) from which on they computed
    operators: dict[str, str] = field(default_factory=dict)


def check_identity(saved: Mapping[str, Any], current: Mapping[str, Any], where: Path) -> None:
    """Refuse to continue a run with other options or data."""
    current = json.loads(json.dumps(current))
    keys = sorted(set(saved) | set(current))
    differing = [key for key in keys if saved.get(key) != current.get(key)]
    # the head's options follow from others where these differ
    differing = [key for key in differing if key != "head_options"] or differing
    if differing:
        shown = "; ".join(
            "the training data have changed: files, rows or labels"
            if key == "train_data"  # a hash
            else f"{key}: {saved.get(key)!r} there, {current.get(key)!r} now"
            for key in differing
        )
        raise ValueError(
            f"{where} belongs to a run with other options ({shown}): repeat those options to "
            "continue it, choose another --output_dir, or start afresh with --overwrite_output_dir"
        )


def operators_in_use() -> str:
    """Which operators compute a run: ``native``, ``plain`` (Paddle's) or ``native and plain``.

    Both agree to rounding, not bit for bit. The first process compiles them, the others wait.
    """

    def compute_natively() -> bool:
        return runs_natively(paddle.zeros([1]))  # of the run's precision, where it computes

    distributed.on_first_process(compute_natively)
    names = distributed.gather("native" if compute_natively() else "plain")
    return " and ".join(sorted(set(names)))
