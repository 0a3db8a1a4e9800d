"""What a model says about a whole split, in its order, on one process or several.

Shape legend: M examples.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import paddle
from paddle import nn
from tqdm import tqdm

from sot_paddle import distributed
from sot_paddle.cli import NonFinite
from sot_paddle.data.splits import ShuffledSplit
from sot_paddle.functional import at_least_float32
from sot_paddle.tasks.task import Predictions

_REPORT_EVERY = 15.0  # seconds


@contextlib.contextmanager
def evaluation_mode(model: nn.Layer, *, gradients: bool = False) -> Iterator[None]:
    """Switch a model to evaluation, mostly without gradients, and back to what it was."""
    was_training = model.training
    model.eval()
    try:
        with contextlib.nullcontext() if gradients else paddle.no_grad():
            yield
    finally:
        if was_training:
            model.train()


def predict(
    model: nn.Layer,
    split: ShuffledSplit,
    *,
    autocast: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> Predictions:
    """Compute the outputs of every example, shared among the processes.

    Args:
        model: called with the batch's tensors by name, labels left out; its mode is restored.

    Returns:
        The outputs in the split's order, the same on every process.

    Raises:
        ValueError: an example cannot be read.
        NonFinite: an output is NaN or infinite.
    """
    mine = list(split.batches)[distributed.rank() :: distributed.world_size()]
    started, outputs, labels = time.monotonic(), [], []
    progress = tqdm(
        split.load(mine) if mine else (),
        "evaluating",
        total=len(mine),
        unit=" batches",
        delay=_REPORT_EVERY,
        mininterval=_REPORT_EVERY,
        disable=distributed.rank() > 0,
    )
    with evaluation_mode(model), progress:
        for batch in progress:
            inputs = dict(batch)
            labels += [inputs.pop("labels").numpy()] if "labels" in inputs else []
            with autocast():
                output = model(**inputs)
            if isinstance(output, tuple):
                output = paddle.stack(output, axis=1)  # start and end of a span: (B, 2, S)
            outputs.append(at_least_float32(output).numpy())
    indices = [int(index) for batch in mine for index in batch]
    share = (indices, outputs, labels)
    return _joined(distributed.gather(share), time.monotonic() - started)


def duration(seconds: float) -> str:
    """A span of time as people say it: "3 h 07 min", "12 min", "45 s"."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def _joined(shares: Sequence[tuple], seconds: float) -> Predictions:
    indices = np.array([index for share in shares for index in share[0]], dtype=np.int64)
    order = np.argsort(indices)
    outputs = np.concatenate([part for share in shares for part in share[1]])[order]
    labels = [part for share in shares for part in share[2]]
    indices = indices[order]
    if not np.isfinite(outputs).all():
        finite = np.isfinite(outputs.reshape(len(outputs), -1)).all(axis=1)
        bad = indices[np.flatnonzero(~finite)[0]]
        raise NonFinite(f"the model's output for example {bad} is not a finite number")
    joined = np.concatenate(labels)[order] if labels else None
    return Predictions(indices, outputs, joined, seconds)
