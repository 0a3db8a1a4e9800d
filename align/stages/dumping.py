"""`align dump`: run one side of a pair and write everything that a comparison needs.

The PyTorch dump also holds what judges the Paddle side: its float64 run on the rounded weights and
inputs, and the noise band. Nothing here imports a framework; the side is loaded when it is known.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from align.judge import drift
from align.judge.noise_band import NoiseBand, kinds_of
from align.pair import side_records
from align.pair.one_side import DumpRequest, OneSide
from align.pair.pair import differs, measured_training, no_scatter, steady_elements
from align.record.arrays import cast
from align.record.files import dump_meta, dump_reading, record_files, storage
from align.record.files.dump_reading import Dump
from align.record.recording import Recording
from align.record.request import Request, request_of

_OTHERS = ("data", "converted")
_NOT_HERE = "{} is not part of a dump: run align --spec where both frameworks are installed"


def request(
    side: str, given: Request | Mapping[str, Any], spec: Path | None = None, **options: Any
) -> DumpRequest:
    """What to dump of a pair, checked.

    Args:
        side: "torch" or "paddle".
        given: the pair, or the arguments of `align.compare` by name.
        spec: the file that it comes from.
        options: `deep`, `names_only`, `other` and `folder` of `DumpRequest`.

    Raises:
        ValueError: an argument that means nothing.
    """
    if side not in dump_meta.SIDES:
        raise ValueError(f"side {side!r}: expected one of {', '.join(dump_meta.SIDES)}")
    plan = given if isinstance(given, Request) else request_of(**given)
    other = options.get("other")
    if other is not None and other.meta.side == side:
        raise ValueError(
            f"{other.path}: is a {other.meta.title} dump, expected one of the other side"
        )
    return DumpRequest(side, plan, spec, **options)


def dump(asked: DumpRequest, out: Path) -> Dump:
    """Run one side and write its dump.

    Args:
        asked: from `request`.
        out: a folder that does not exist yet; it appears when it is complete.

    Returns:
        The dump, opened.

    Raises:
        ValueError: the folder exists, or the pair cannot be run.
    """
    with storage.new_folder(out) as folder:
        _write(OneSide(asked), folder)
    return Dump(out)


def _write(one: OneSide, folder: Path) -> None:
    """Run everything and write it."""
    record, plan = one.record, one.plan
    record.notes += plan.notes
    record.notes += [_NOT_HERE.format(name) for name in _OTHERS if getattr(plan, name)]
    storage.write_tensors(folder / dump_reading.WEIGHTS, one.state)
    labels = {} if plan.labels is None else {"labels": np.asarray(plan.labels)}
    storage.write_tensors(folder / dump_reading.LABELS, labels)
    if plan.schedule_steps and plan.schedule is None:
        record.notes.append(_NOT_HERE.format("schedule_steps without schedule"))
    for dtype in () if one.asked.names_only else plan.dtypes:
        plain = _write_passes(one, folder / dtype, dtype)
        if dtype == plan.dtypes[0]:
            storage.write_json(folder / dump_reading.NUMBERS, _numbers(one, plain))
        if plan.steps:
            _write_training(one, folder / dtype, dtype)
    record.notes = list(dict.fromkeys(record.notes))
    storage.write_json(folder / dump_reading.META, record.to_json())


def _numbers(one: OneSide, plain: Recording) -> dict[str, dict[str, list[float]]]:
    """The metric and the schedule of this side: kind -> name -> values.

    A metric alone is judged: the Paddle side's gets PyTorch's output, when its dump is there.

    Raises:
        ValueError: one that is no number.
    """
    plan, at, dtype = one.plan, 0 if one.is_torch else 1, one.plan.dtypes[0]
    found: dict[str, dict[str, list[float]]] = {}
    if plan.metric is not None:
        other = None if one.is_torch else one.asked.other
        if other is not None and dtype in other.meta.dtypes:
            plain = other.recording(dtype)
        labels = cast(np.asarray(plan.labels), dtype, dtype)
        given = side_records.scored_output(plain), labels, dtype
        held, _ = side_records.scores(one.side, plan.metric[at], *given)
        prefix = f"{side_records.METRIC} "
        found["metric"] = {name.removeprefix(prefix): [score] for name, score in held.items()}
    if plan.schedule is not None:
        rates = side_records.rates(one.side.NAME, plan.schedule[at], plan.schedule_steps)
        found["learning_rate"] = {"schedule": rates.tolist()}
    return found


def _write_passes(one: OneSide, folder: Path, dtype: str) -> Recording:
    plain = one.run(dtype, dtype)
    no_scatter(one.side, plain, one.run(dtype, dtype))
    one.record.framework = dict(plain.stamp)
    record_files.write_recording(_slim(one, _with_inputs(one, plain, dtype)), folder)
    if not one.is_torch:
        return plain
    exact = plain
    if dtype != "float64":
        exact = one.run("float64", dtype)
        record_files.write_recording(_slim(one, exact), folder / dump_reading.ORACLE)
    band = NoiseBand(lambda: kinds_of(exact), functools.partial(one.moved_pass, dtype))
    storage.write_tensors(folder / dump_reading.NOISE, band.to_store())
    return plain


def _with_inputs(one: OneSide, plain: Recording, dtype: str) -> Recording:
    """The pass with the inputs of every layer, when watching them changes nothing."""
    if not one.asked.deep:
        return plain
    deep = one.run(dtype, dtype, deep=True)
    where = differs(plain, deep)
    if where is None:
        return _merged(plain, deep)
    one.record.notes.append(
        f"{dtype}: the inputs of the layers are not recorded: watching them changes {where} "
        "(a module that writes into its input?)"
    )
    return plain


def _slim(one: OneSide, recording: Recording) -> Recording:
    """Of the state only what a pass may move: no frozen parameter."""
    kept = {entry.name for entry in one.entries if entry.buffer}
    state = {name: recording.state[name] for name in recording.state if name in kept}
    return dataclasses.replace(recording, state=state)


def _write_training(one: OneSide, folder: Path, dtype: str) -> None:
    """The run, its weights after every step, and how far rounding moves both."""
    track = None if one.sample is None else drift.Track(functools.partial(one.sample, one.side))
    run = one.train(dtype, dtype, None if track is None else track.watch)
    record_files.write_training(run, folder)
    rows = {"weights": _rows(track)} if track is not None else {}
    if one.is_torch:
        exact, exact_track = run, track
        if dtype != "float64":
            exact_track = drift.Track(functools.partial(one.sample, one.side))
            exact = one.train("float64", dtype, exact_track.watch)
            record_files.write_training(exact, folder / dump_reading.ORACLE)
            rows["exact"] = _rows(exact_track)
        steady = steady_elements(drift.Sample(one.entries), exact)
        centre = measured_training(exact, exact_track, steady)
        moved = functools.partial(one.moved_training, dtype, steady=steady)
        band = NoiseBand(lambda: centre, moved)
        storage.write_tensors(folder / dump_reading.TRAINING_NOISE, band.to_store())
    storage.write_tensors(folder / dump_reading.DRIFT, rows)


def _rows(track: drift.Track) -> np.ndarray:
    return np.stack([track[step] for step in range(len(track))])


def _merged(plain: Recording, deep: Recording) -> Recording:
    """The plain pass with the inputs of the calls, and the gradients that leave through them."""
    calls = {
        key: dataclasses.replace(
            call, inputs=deep.calls[key].inputs, grad_inputs=deep.calls[key].grad_inputs
        )
        for key, call in plain.calls.items()
    }
    return dataclasses.replace(plain, calls=calls)
