"""The logs of the classic checks in reprod_log's format, from one dump or from two.

A stock ReprodDiffHelper loads them. With one dump only quantities are written that are called the
same on both sides; with two, everything is named as in Paddle. Nothing is ever read back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from align.pair.dump_pair import DumpPair, Names
from align.record.arrays import Arrays, TrainingRun
from align.record.files.dump_reading import Dump
from align.record.recording import ROOT, Recording
from align.report.reprod import write_arrays, write_reprod

Checks = dict[str, Arrays]
FORWARD, LOSS, RATES = "forward_align", "loss_align", "lr_align"
METRIC = "metric_align"
BACKWARD, TRAIN = "backward_align", "train_align"


def write_side(dump: Dump, folder: Path) -> list[Path]:
    """Write `<check>_torch.npy` or `<check>_paddle.npy` of every check that a dump has.

    Args:
        dump: one side.
        folder: created when absent; beside a dump, never inside it.

    Returns:
        The paths written.
    """
    checks = _of_numbers(dump)
    for dtype in dump.meta.dtypes:
        _add(checks, dtype, _of_pass(dump.recording(dtype)))
        if dump.meta.steps:
            _add(checks, dtype, _of_training(dump.training(dtype)))
    side = dump.meta.side
    return [write_arrays(folder / f"{c}_{side}.npy", arrays) for c, arrays in checks.items()]


def write_both(names: Names, dtypes: list[str], folder: Path) -> list[Path]:
    """Write both sides' files and the log of every check.

    Args:
        names: both dumps.
        dtypes: precisions to write.
        folder: created when absent.

    Returns:
        The paths written.
    """
    sides = _of_numbers(names.torch), _of_numbers(names.paddle)
    for dtype in dtypes:
        pair = DumpPair(names, dtype)
        for checks, recording in zip(sides, (pair.reference, pair.ours), strict=True):
            _add(checks, dtype, _of_pass(recording))
        expected = names.weights.to_paddle(pair.reference.gradients)
        for checks, held in zip(sides, (expected, pair.ours.gradients), strict=True):
            shared = {f"gradient {n}": a for n, a in held.items() if n in expected}
            _add(checks, dtype, {BACKWARD: shared})
        if names.torch.meta.steps:
            for checks, dump in zip(sides, (names.torch, names.paddle), strict=True):
                _add(checks, dtype, _of_training(dump.training(dtype)))
    checks = {c: (sides[0][c], sides[1][c]) for c in sides[0] if c in sides[1]}
    return write_reprod(folder, checks)


def _add(checks: Checks, prefix: str, found: Checks) -> None:
    for check, arrays in found.items():
        held = checks.setdefault(check, {})
        held.update({f"{prefix}/{name}": np.array(array) for name, array in arrays.items()})


def _of_numbers(dump: Dump) -> Checks:
    """The metric and the schedule, when the spec has them."""
    held = dump.numbers()
    found: Checks = {}
    for check, kind in ((METRIC, "metric"), (RATES, "learning_rate")):
        if held.get(kind):
            found[check] = {name: np.asarray(values) for name, values in held[kind].items()}
    return found


def _of_pass(recording: Recording) -> Checks:
    outputs = [a for _, a in recording.calls[ROOT].outputs if a.dtype.kind == "f" and a.size]
    sizes = [np.vdot(a, a).astype("float64") for a in recording.gradients.values()]
    return {
        FORWARD: {f"output {i}": array for i, array in enumerate(outputs)},
        LOSS: {"loss": recording.loss},
        BACKWARD: {
            "norm of all gradients": np.sqrt(np.sum(sizes)),
            **{f"gradient of input {n}": a for n, a in recording.input_gradients.items()},
        },
    }


def _of_training(run: TrainingRun) -> Checks:
    return {
        RATES: {"learning_rates": np.asarray(run.learning_rates)},
        TRAIN: {"losses": np.asarray(run.losses)},
    }
