"""`align dump`: run one side of a pair and write everything that a comparison needs.

The PyTorch dump also holds what judges the Paddle side: its float64 run on the rounded weights and
inputs, and the noise band. Facts about the model and its surroundings go with it: modules, commit,
spec, machine. Nothing here imports a framework; the side is loaded when it is known.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from align.judge import drift
from align.judge.noise_band import NoiseBand, kinds_of
from align.match.mapping import to_paddle
from align.match.name_table import Table, read_table
from align.match.paired_names import PairedNames, settled
from align.pair.pair import METRIC, compute_rates, compute_scores, scored_output, steady_elements
from align.pair.side import Side, differs, measured_training, no_scatter, tensors
from align.record import dump_files
from align.record.arrays import Entry, Store, moved_vectors
from align.record.dump_files import Dump, Module
from align.record.recording import Recording
from align.record.request import Request
from align.record.run_report import code_of, commit
from sot_paddle import checkpoint
from sot_paddle.reading import sha256_of
from sot_paddle.runtime import environment_stamp

_OTHERS = ("data", "converted")
_NOT_HERE = "{} is not part of a dump: run align spec where both frameworks are installed"


@dataclasses.dataclass
class DumpRequest:
    """What to dump.

    Attributes:
        other: the other side's dump: PyTorch's, whose weights the Paddle side loads; or Paddle's,
            whose norms the PyTorch side follows.
    """

    side: str
    plan: Request
    spec: Path
    other: Dump | None = None


def dump(asked: DumpRequest, out: Path) -> Dump:
    """Run one side and write its dump.

    Raises:
        ValueError: the folder exists, or the pair cannot be run.
    """
    with dump_files.new_folder(out) as folder:
        DumpedSide(asked).write(folder)
    return Dump(out)


class DumpedSide:
    """One framework's model with its weights, and the record of its dump.

    Attributes:
        side: the model, run and trained in any precision.
        record: what the dump says about itself.
        state: the weights, in the precision in which the model is built.
        sample: takes the elements of a model whose drift is recorded; None for Paddle on
            weights of its own.

    Raises:
        ValueError: another request than the other side's, or names that do not match.
    """

    def __init__(self, asked: DumpRequest) -> None:
        other = asked.other
        if other is not None and other.meta.side == asked.side:
            raise ValueError(
                f"{other.path}: is a {other.meta.title} dump, expected one of the other side"
            )
        self.framework = importlib.import_module(f"align.frameworks.on_{asked.side}")
        self.asked, self.plan = asked, asked.plan
        self.side = Side(self.framework, self.plan)
        self._table = read_table(self.plan.weights)
        self.sample: Callable[[Any], np.ndarray] | None = None
        model = self.side.build(self.plan.dtypes[0], self.plan.train)
        self.entries: list[Entry] = self.framework.entries(model)
        self.record = self._record(model)
        self._store = Store()
        self.state = self._store.keep(tensors(self.framework, model))
        self.side.weights = self.state
        if self.side.is_torch:
            self._shake()
            self._choose_norms(model)
            self.sample = functools.partial(drift.Sample(self.entries).reference, self.framework)
        else:
            self._take_weights(model)
        self.record.weights = dump_files.weights_digest(self.state)

    def _record(self, model: Any) -> dump_files.Meta:
        spec, environment = self.asked.spec, environment_stamp()
        folders = {"suite": Path(__file__).parents[1], "spec": spec.resolve().parent}
        commits = {title: commit(folder) for title, folder in folders.items()}
        environment["commit"] = {title: text for title, text in commits.items() if text}
        return dump_files.Meta(
            side=self.asked.side,
            framework={},
            environment=environment,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            spec={"file": spec.name, "sha256": sha256_of(spec)},
            entries=self.entries,
            modules=[module_of(n, m) for n, m in self.framework.modules(model).items()],
            table=rows_of_table(self._table),
            **dump_files.of_request(self.plan),
        )

    def _shake(self) -> None:
        if not self.plan.shake:
            return
        moved = moved_vectors(self.state, self.entries, self.plan.seed)
        for name, value in moved.items():
            self.state.hold(name, self._store.put(value))
        self.record.moved = list(moved)

    def _choose_norms(self, model: Any) -> None:
        """Which norms compute with the numbers that Paddle's kernels hold."""
        modules = self.framework.modules(model)
        norms = [n for n, m in modules.items() if isinstance(getattr(m, "eps", None), float)]
        if self.asked.other is None:
            chosen = {name for name in norms if has_stock_partner(modules[name])}
        else:
            stock = set(self.asked.other.meta.stock_norms)
            pairs = self._paired(self.record, self.asked.other.meta).modules.to_paddle
            chosen = {a for a, b in pairs.items() if b in stock}
        self.record.norms = {name: name in chosen for name in norms}
        followed = [name for name in norms if name in chosen]
        self.side.adapt(lambda built: self.framework.follow_paddle(built, followed))

    def _take_weights(self, model: Any) -> None:
        """PyTorch's weights, when its dump is given; they keep their precision."""
        self.record.stock_norms = self.framework.stock_norms(model)
        other = self.asked.other
        if other is None:
            self.record.notes.append("ran on weights of its own: good for --against alone")
            return
        paired = self._paired(other.meta, self.record)
        taken: Any = to_paddle(paired.weights, other.weights())
        for name in taken:
            self.state.hold(name, functools.partial(taken.__getitem__, name))
        sample = drift.Sample(other.meta.entries, paired.weights)
        self.sample = functools.partial(sample.ours, self.framework)
        self.record.weights_from = other.meta.weights

    def _paired(self, torch: dump_files.Meta, paddle: dump_files.Meta) -> PairedNames:
        other = self.asked.other
        dump_files.same_request(self.record, other.meta, ("this spec", str(other.path)))
        return settled(torch, paddle, self._table)

    def write(self, folder: Path) -> None:
        """Run everything and write it."""
        record, plan = self.record, self.plan
        record.notes += plan.notes
        record.notes += [_NOT_HERE.format(name) for name in _OTHERS if getattr(plan, name)]
        checkpoint.write_tensors(folder / dump_files.WEIGHTS, self.state)
        labels = {} if plan.labels is None else {"labels": np.asarray(plan.labels)}
        checkpoint.write_tensors(folder / dump_files.LABELS, labels)
        if plan.schedule_steps and plan.schedule is None:
            record.notes.append(_NOT_HERE.format("schedule_steps without schedule"))
        for dtype in plan.dtypes:
            plain = self._write_passes(folder / dtype, dtype)
            if dtype == plan.dtypes[0]:
                dump_files.write_json(folder / dump_files.NUMBERS, self._numbers(plain))
            if plan.steps:
                self._write_training(folder / dtype, dtype)
        record.notes = list(dict.fromkeys(record.notes))
        dump_files.write_json(folder / dump_files.META, record.to_json())

    def _numbers(self, plain: Recording) -> dict[str, dict[str, list[float]]]:
        """Return the metric and the schedule of this side: kind -> name -> values.

        A metric alone is judged: the Paddle side's gets PyTorch's output, when its dump is there.

        Raises:
            ValueError: a score or a rate that is no number.
        """
        plan, dtype = self.plan, self.plan.dtypes[0]
        numbers: dict[str, dict[str, list[float]]] = {}
        if plan.metric is not None:
            other = None if self.side.is_torch else self.asked.other
            if other is not None and dtype in other.meta.dtypes:
                plain = other.recording(dtype)
            scores, _ = compute_scores(self.side, plan, scored_output(plain), dtype)
            prefix = f"{METRIC} "
            numbers["metric"] = {n.removeprefix(prefix): [score] for n, score in scores.items()}
        if plan.schedule is not None:
            numbers["learning_rate"] = {"schedule": compute_rates(self.side, plan).tolist()}
        return numbers

    def _write_passes(self, folder: Path, dtype: str) -> Recording:
        side, plan = self.side, self.plan
        plain = side.record_pass(plan, dtype, dtype)
        no_scatter(self.framework, plain, side.record_pass(plan, dtype, dtype))
        self.record.framework = dict(plain.stamp)
        dump_files.write_recording(self._slim(self._with_inputs(plain, dtype)), folder)
        if not side.is_torch:
            return plain
        exact = plain
        if dtype != "float64":
            exact = side.record_pass(plan, "float64", dtype)
            dump_files.write_recording(self._slim(exact), folder / dump_files.ORACLE)
        band = NoiseBand(
            lambda: exact, lambda asked: side.open_pass(plan, dtype, dtype, asked=asked), kinds_of
        )
        checkpoint.write_tensors(folder / dump_files.NOISE, band.to_store())
        return plain

    def _with_inputs(self, plain: Recording, dtype: str) -> Recording:
        """The pass with each call's inputs and their gradients, when watching changes nothing."""
        deep = self.side.record_pass(self.plan, dtype, dtype, deep=True)
        where = differs(plain, deep)
        if where is not None:
            self.record.notes.append(
                f"{dtype}: the inputs of the layers are not recorded: watching them changes "
                f"{where} (a module that writes into its input?)"
            )
            return plain
        calls = {
            key: dataclasses.replace(
                call, inputs=deep.calls[key].inputs, grad_inputs=deep.calls[key].grad_inputs
            )
            for key, call in plain.calls.items()
        }
        return dataclasses.replace(plain, calls=calls)

    def _slim(self, recording: Recording) -> Recording:
        """Of the state only what a pass may move: no frozen parameter."""
        kept = {entry.name for entry in self.entries if entry.buffer}
        state = {name: recording.state[name] for name in recording.state if name in kept}
        return dataclasses.replace(recording, state=state)

    def _write_training(self, folder: Path, dtype: str) -> None:
        """Write the run, its weights after every step, and how far rounding moves both."""
        side, plan = self.side, self.plan
        run = side.train(plan, dtype, dtype, self.sample)
        dump_files.write_training(run, folder)
        if not side.is_torch:
            return
        exact = run
        if dtype != "float64":
            exact = side.train(plan, "float64", dtype, self.sample)
            dump_files.write_training(exact, folder / dump_files.ORACLE)
        steady = steady_elements(drift.Sample(self.entries), exact)
        band = NoiseBand(
            lambda: exact,
            lambda asked: side.open_training(plan, dtype, dtype, asked=asked, sample=self.sample),
            functools.partial(measured_training, steady=steady),
        )
        checkpoint.write_tensors(folder / dump_files.TRAINING_NOISE, band.to_store())


NORM_FILES = ("normalization", "batchnorm", "instancenorm")
"""Modules of torch.nn.modules with the norms that Paddle's own kernels hold in float32."""
_LONGEST = 80  # characters of a setting


def module_of(name: str, module: Any) -> Module:
    """The record of one module: class, code, plain attributes."""
    kinds = (bool, int, float, str)
    settings = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, kinds) and len(str(value)) < _LONGEST
    }
    return Module(name, type(module).__name__, code_of({name: module}, name), settings)


def has_stock_partner(module: Any) -> bool:
    """Whether Paddle's own layer of this kind holds its epsilon in float32."""
    return any(
        kind.__module__.startswith("torch.nn.modules.")
        and kind.__module__.rpartition(".")[2] in NORM_FILES
        and "GroupNorm" not in kind.__name__
        for kind in type(module).__mro__
    )


def rows_of_table(table: Table) -> dict[str, Any] | None:
    """The rows of a table as they are written in a table file, None when there are none.

    Raises:
        ValueError: a function or "draft", which no file holds.
    """
    sections = ("rows", "modules", "ignore_torch", "ignore_paddle")
    if table.drafted or any(isinstance(value, tuple) for value in table.rows.values()):
        raise ValueError(
            "weights: a dump holds names and named transforms only, no function and no 'draft'"
        )
    by_section = {name: dict(getattr(table, name)) for name in sections}
    if not any(by_section.values()):
        return None
    return {"map" if name == "rows" else name: rows for name, rows in by_section.items()}
