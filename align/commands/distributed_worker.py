"""One process of a data-parallel run of a spec's Paddle layer: ``distributed_worker.py FOLDER``.

Started by ``paddle.distributed.launch``. It trains as a user would, ``paddle.DataParallel`` around
the layer, each process on its slice of the batch; the first process writes what comes out. A spec
may say otherwise with ``parallel(layer)``, which returns the layer to call, or that and a function
without arguments that runs between the backward pass and the optimizer's step.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import sot_paddle  # noqa: E402, F401 (tunes the CPU before Paddle is loaded)

# isort: split
import paddle  # noqa: E402
import paddle.distributed as dist  # noqa: E402

from align.commands.spec import USER_ERRORS, read_spec  # noqa: E402
from align.frameworks import on_paddle  # noqa: E402
from align.pair import runs  # noqa: E402
from align.record import batch_slices  # noqa: E402
from align.record.batch_slices import Shares  # noqa: E402
from align.record.request import Request  # noqa: E402
from sot_paddle import distributed  # noqa: E402
from sot_paddle.checkpoint import read_tensors, write_tensors  # noqa: E402
from sot_paddle.reading import read_json  # noqa: E402

FAILED = "align: error: "
OTHER_DATA = (
    "the spec gives this process other inputs, labels or batches than it gave the comparison: draw "
    "them from a fixed seed"
)
Nothing = Callable[[], Any]


def run(folder: Path) -> None:
    """Train this process's share and, on the first one, write the result.

    Args:
        folder: holds ``request.json`` and ``weights.safetensors``.
    """
    request = read_json(folder / "request.json")
    path, dtype = Path(request["spec"]), request["dtype"]
    given = dataclasses.replace(read_spec(path), steps=request["steps"], seed=request["seed"])
    plan = batch_slices.plan_of(given, dtype)
    if batch_slices.told(plan) != request["fed"]:
        raise ValueError(OTHER_DATA)
    distributed.join()
    layer = on_paddle.prepare(plan, dtype, True)
    runs.load(on_paddle, layer, read_tensors(folder / "weights.safetensors")[0], None)
    caller, synchronise = _parallel(path, layer)
    own = batch_slices.cut(plan, dist.get_world_size(), dist.get_rank())
    losses, rates, stamp = _train(own, dtype, layer, caller, synchronise, folder)
    apart = _apart(layer)
    every = distributed.gather(losses)
    if dist.get_rank() == 0:
        write_tensors(folder / batch_slices.STATE, runs.tensors(on_paddle, layer))
        stamp = {**stamp, "processes": dist.get_world_size()}
        Shares(every, rates, apart, stamp=stamp).write_record(folder)
    dist.barrier()


def _parallel(path: Path, layer: paddle.nn.Layer) -> tuple[Any, Nothing]:
    """What to call, and what synchronises the gradients after the backward pass."""
    own = getattr(sys.modules[f"align_spec_{path.stem}"], "parallel", paddle.DataParallel)
    made = own(layer)
    return made if isinstance(made, tuple) else (made, lambda: None)


def _train(
    plan: Request, dtype: str, layer: Any, caller: Any, synchronise: Nothing, folder: Path
) -> tuple[list[float], list[float], dict[str, Any]]:
    """Losses, rates and the stamp of this process's steps; its first gradients are written."""
    losses: list[float] = []
    rates: list[float] = []
    stamps: list[dict[str, Any]] = []

    def between(step: int) -> None:
        synchronise()
        if step == 0 and dist.get_rank() == 0:
            write_tensors(folder / batch_slices.GRADIENTS, runs.gradients(on_paddle, layer))

    with on_paddle.default_dtype(dtype):
        made = (on_paddle, layer, plan, dtype, dtype, on_paddle.make_optimizer(plan, layer))
        every = runs.descend(*made, caller=caller, between=between)
        for loss, rate, stamp in every:
            losses.append(loss)
            rates.append(rate)
            stamps.append(dict(stamp))
    return losses, rates, stamps[-1]


def _apart(layer: Any) -> dict[str, float]:
    """Parameter -> largest difference between the first process's and any other's."""
    trained = {id(parameter) for parameter in layer.parameters() if not parameter.stop_gradient}
    own: dict[str, float] = {}
    for name, tensor in on_paddle.named(layer).items():
        if id(tensor) not in trained:
            continue
        first = tensor.detach().reshape([-1]).clone()
        dist.broadcast(first, src=0)
        own[name] = float((tensor.detach().reshape([-1]) - first).abs().max()) if first.size else 0
    every = distributed.gather(own)
    return {name: max(one[name] for one in every) for name in own}


def main() -> int:
    """Run; a user's error is one line in this process's log."""
    try:
        run(Path(sys.argv[1]))
    except USER_ERRORS as error:
        text = " ".join(str(error).split())
        print(f"{FAILED}{type(error).__name__}: {text[:500]}", file=sys.stderr, flush=True)
        return distributed.leave(1)
    return distributed.leave(0)


if __name__ == "__main__":
    sys.exit(main())
