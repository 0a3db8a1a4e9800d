"""``python -m align dump`` and ``python -m align compare``: both sides on different machines.

`dump` runs one side of a pair and writes everything that a comparison needs. The PyTorch dump also
holds what judges the Paddle side: its float64 run on the rounded weights and inputs, and the noise
band. Facts about the model and its surroundings go with it: modules, commit, spec, machine. Two
dumps in, the verdict out: for that no framework is needed or loaded; to dump, the side's own is.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from align.commands.spec import in_one_line, read_spec
from align.commands.steps import Outcome, begin, take_once, take_precision
from align.judge import drift
from align.judge.noise_band import NoiseBand, kinds_of
from align.match.mapping import to_paddle
from align.match.name_table import Table, read_table
from align.match.paired_names import PairedNames, settled, table_of
from align.pair.dumped_pair import DumpPair, Names
from align.pair.pair import METRIC, compute_rates, compute_scores, scored_output, steady_elements
from align.pair.side import Side, first_difference, measured_training, refuse_scatter, tensors
from align.record import dump_files
from align.record.arrays import Entry, Store, moved_vectors
from align.record.dump_files import Dump, Module, same_request
from align.record.recording import MovedRun, Recording, TrainingRun
from align.record.request import Request
from align.record.run_report import SIDES, Report, code_of, commit, described, origin
from align.report.report_html import check_writable, write_asked
from align.report.reprod import write_both
from sot_paddle import checkpoint
from sot_paddle.config import some
from sot_paddle.reading import sha256_of
from sot_paddle.runtime import environment_stamp

_OTHERS = ("data", "converted")
_NOT_HERE = "{} is not part of a dump: run align spec where both frameworks are installed"


def run_dump(options: argparse.Namespace) -> int:
    """Run ``dump`` with its options; return the exit status."""
    wrong = {"torch": "weights", "paddle": "against"}[options.side]
    if getattr(options, wrong):
        raise ValueError(f"--{wrong} belongs to the other side, see --help")
    spec, out = Path(options.spec), Path(options.out)
    plan = read_spec(spec)
    dtype = tuple(dict.fromkeys(options.dtype)) or plan.dtype
    plan = dataclasses.replace(plan, dtype=dtype)
    folder = options.weights or options.against
    other = None if folder is None else Dump(folder)
    with in_one_line(spec):
        written = dump(options.side, plan, spec, out, other)
    meta, files = written.meta, written.files
    size = sum(row["size"] for row in files.values()) / 2**20
    ran = f" {meta.framework['version']} on {meta.framework['device']}" if meta.framework else ""
    print(
        f"{meta.title}{ran}: {meta.name}, {', '.join(meta.dtypes)}, {len(meta.entries)} tensors, "
        f"{len(meta.modules)} modules, {meta.steps} training steps"
    )
    print(f"{written.path}: {len(files)} files, {size:.1f} MiB, weights {meta.weights[:12]}")
    for note in meta.notes:
        print(f"note: {note}")
    return 0


def dump(side: str, plan: Request, spec: Path, out: Path, other: Dump | None = None) -> Dump:
    """Run one side and write its dump.

    Args:
        other: the other side's dump: PyTorch's, whose weights the Paddle side loads; or Paddle's,
            whose norms the PyTorch side follows.

    Raises:
        ValueError: the folder exists, or the pair cannot be run.
    """
    with dump_files.new_folder(out) as folder:
        DumpedSide(side, plan, spec, other).write(folder)
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

    def __init__(self, side: str, plan: Request, spec: Path, other: Dump | None) -> None:
        if other is not None and other.meta.side == side:
            raise ValueError(
                f"{other.path}: is a {other.meta.title} dump, expected one of the other side"
            )
        self.framework = importlib.import_module(f"align.frameworks.on_{side}")
        self.plan, self.other, self._table = plan, other, read_table(plan.weights)
        self.side = Side(self.framework, plan)
        self.sample: Callable[[Any], np.ndarray] | None = None
        model = self.side.build(plan.dtypes[0], plan.train)
        self.entries: list[Entry] = self.framework.entries(model)
        self.record = self._record(side, spec, model)
        store = Store()
        self.state = store.keep(tensors(self.framework, model))
        self.side.weights = self.state
        if self.side.is_torch:
            moved = moved_vectors(self.state, self.entries, plan.seed) if plan.shake else {}
            for name, value in moved.items():
                self.state.hold(name, store.put(value))
            self.record.moved = list(moved)
            self._follow_norms(model)
            self.sample = functools.partial(drift.Sample(self.entries).reference, self.framework)
        else:
            self._take_weights(model)
        self.record.weights = dump_files.weights_digest(self.state)

    def _record(self, side: str, spec: Path, model: Any) -> dump_files.Meta:
        environment = environment_stamp()
        folders = {"suite": Path(__file__).parents[1], "spec": spec.resolve().parent}
        commits = {title: commit(folder) for title, folder in folders.items()}
        environment["commit"] = {title: text for title, text in commits.items() if text}
        return dump_files.Meta(
            side=side,
            framework={},
            environment=environment,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            spec={"file": spec.name, "sha256": sha256_of(spec)},
            entries=self.entries,
            modules=[module_of(n, m) for n, m in self.framework.modules(model).items()],
            table=rows_of_table(self._table),
            **dump_files.of_request(self.plan),
        )

    def _follow_norms(self, model: Any) -> None:
        """Let norms whose partners are Paddle's own compute with the numbers of their kernels."""
        modules = self.framework.modules(model)
        norms = [n for n, m in modules.items() if isinstance(getattr(m, "eps", None), float)]
        if self.other is None:
            followed = [name for name in norms if has_stock_partner(modules[name])]
        else:
            partners = self._paired_names(self.record, self.other.meta).modules.to_paddle
            stock = self.other.meta.stock_norms
            followed = [name for name in norms if partners.get(name) in stock]
        self.record.norms = {name: name in followed for name in norms}
        self.side.adapt(lambda built: self.framework.follow_paddle(built, followed))

    def _take_weights(self, model: Any) -> None:
        """PyTorch's weights, when its dump is given; they keep their precision."""
        self.record.stock_norms = self.framework.stock_norms(model)
        other = self.other
        if other is None:
            self.record.notes.append("ran on weights of its own: good for --against alone")
            return
        names = self._paired_names(other.meta, self.record)
        taken = to_paddle(names.weights, other.weights())
        for name in taken:
            self.state.hold(name, functools.partial(taken.__getitem__, name))
        sample = drift.Sample(other.meta.entries, names.weights)
        self.sample = functools.partial(sample.ours, self.framework)
        self.record.weights_from = other.meta.weights

    def _paired_names(self, torch: dump_files.Meta, paddle: dump_files.Meta) -> PairedNames:
        """Pair this side's names with the other dump's; refuse a dump of another request."""
        same_request(self.record, self.other.meta, ("this spec", str(self.other.path)))
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
            other = None if self.side.is_torch else self.other
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
        refuse_scatter(self.framework, plain, side.record_pass(plan, dtype, dtype))
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
        where = first_difference(plain, deep)
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
        prepare = self.framework.as_stock_port  # what Paddle's optimizer rounds is in the band, too

        def moved(asked: MovedRun) -> AbstractContextManager[TrainingRun]:
            return side.open_training(
                plan, dtype, dtype, asked=asked, sample=self.sample, prepare=prepare
            )

        measure = functools.partial(measured_training, steady=steady)
        band = NoiseBand(lambda: exact, moved, measure)
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


def run_compare(options: argparse.Namespace) -> int:
    """Run ``compare`` with its options; return the exit status."""
    first, second = Dump(options.first), Dump(options.second)
    dtypes = common(first, second, options.dtype)
    check_writable([options.out, options.reprod], [options.json, options.junit])
    names = pair_up(first, second)
    outcome = judge(names, dtypes)
    print(outcome)
    if options.reprod:
        written = write_both(names, dtypes, outcome.report.results, Path(options.reprod))
        print(f"reprod_log: {len(written)} files in {options.reprod}")
    write_asked(outcome.report, options.out, options.json, options.junit)
    return outcome.exit_code


def pair_up(first: Dump, second: Dump) -> Names:
    """Pair the names of two dumps that belong together, by the table that they were made with.

    Raises:
        ValueError: the dumps do not belong together; says why.
    """
    torch, paddle = _sides(first, second)
    same_request(torch.meta, paddle.meta, (str(torch.path), str(paddle.path)))
    source = paddle.meta.weights_from
    if source != torch.meta.weights:
        ran_on = f"the weights {source[:12]}" if source else "weights of its own"
        raise ValueError(
            f"{paddle.path} was run on {ran_on}, {torch.path} holds "
            f"{torch.meta.weights[:12]}: dump the Paddle side again with --weights {torch.path}"
        )
    return Names(torch, paddle, table_of(torch.meta, paddle.meta))


def _sides(first: Dump, second: Dump) -> tuple[Dump, Dump]:
    by_side = {dump.meta.side: dump for dump in (first, second)}
    if len(by_side) != len(SIDES):
        raise ValueError(
            f"{first.path} and {second.path} were both made by {first.meta.title}: comparing a "
            "framework with itself proves nothing; dump the other side"
        )
    return by_side["torch"], by_side["paddle"]


def common(first: Dump, second: Dump, wanted: Sequence[str] = ()) -> list[str]:
    """Precisions that both dumps have, or those asked for.

    Raises:
        ValueError: there is none, or one that was asked for is missing.
    """
    sides = _sides(first, second)
    torch, paddle = (dump.meta.dtypes for dump in sides)
    both = [dtype for dtype in torch if dtype in paddle]
    missing = [f"{dtype} is not" for dtype in wanted if dtype not in both]
    if missing or not both:
        precisions = ", ".join(f"{dump.path} has {', '.join(dump.meta.dtypes)}" for dump in sides)
        what = missing[0] if both else "no precision is"
        raise ValueError(f"{what} in both dumps: {precisions}")
    return [dtype for dtype in both if not wanted or dtype in wanted]


def judge(names: Names, dtypes: Sequence[str]) -> Outcome:
    """Judge Paddle's dump by PyTorch's."""
    torch, paddle = names.torch.meta, names.paddle.meta
    notes = [f"{torch.title}: {note}" for note in torch.notes]
    notes += [f"{paddle.title}: {note}" for note in paddle.notes]
    notes += filter(None, [names.note])
    outcome = begin(names, _report(torch, paddle), notes, torch.moved, "SHAKE = False")
    if torch.spec.get("sha256") != paddle.spec.get("sha256"):
        outcome.notes.append("the two spec files are not the same; inputs and request are")
    extra = sorted(set(torch.dtypes) ^ set(paddle.dtypes))
    if extra:
        outcome.notes.append(f"in one dump only, not compared: {', '.join(extra)}")
    wrong = names.wrong_norms()
    if wrong:
        outcome.notes.append(
            f"{some(wrong)}: these norms of PyTorch and their partners hold epsilon in different "
            f"precision; dump PyTorch again with --against {names.paddle.path} to rule that out"
        )
    float32_alone = "float64" not in dtypes
    take_once(DumpPair(names, dtypes[0], float32_alone), outcome)
    for dtype in dtypes:
        take_precision(DumpPair(names, dtype, float32_alone), outcome)
    outcome.notes[:] = dict.fromkeys(outcome.notes)
    return outcome


def _report(torch: dump_files.Meta, paddle: dump_files.Meta) -> Report:
    """An empty report: both dumps as they tell it, and where, when and how they are compared."""
    environment, about = {}, {"pair": torch.name}
    for meta in (torch, paddle):
        environment[meta.title] = {
            **meta.framework,
            "created": meta.created,
            "seed": meta.seed,
            "spec": f"{meta.spec.get('file', 'none')} {meta.spec.get('sha256', '')[:12]}",
            **meta.environment,
        }
        for module in meta.modules[:1]:
            about[meta.side] = described(module.kind, module.source, meta.entries)
    environment["compared on"] = environment_stamp()
    return Report(environment, about={**about, "seed": torch.seed, **origin()})
