"""One side of a pair with its weights: built, run and trained in every precision.

Facts about the model and its surroundings go into a dump: modules, commit, spec, machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.judge import drift
from align.judge.drift import Track
from align.judge.noise_band import Kinds, kinds_of
from align.match.mapping import to_paddle
from align.match.name_table import Table, read_table
from align.match.paired_names import PairedNames, settled
from align.pair import runs
from align.pair.pair import measured_training, repeated
from align.pair.runs import Models, load, tensors
from align.record.arrays import Entry, TrainingRun, moved_vectors, rounded_state
from align.record.files import dump_meta
from align.record.files.dump_meta import Module
from align.record.files.dump_reading import Dump
from align.record.moved_run import MovedRun
from align.record.recording import Recording
from align.record.request import Request
from align.record.run_report import code_of, commit
from align.record.stored_arrays import Store
from sot_paddle.reading import sha256_of
from sot_paddle.runtime import environment_stamp

if TYPE_CHECKING:
    from align.frameworks.moved_roundings import MovedRoundings

Watch = Callable[[Any], None]


@dataclasses.dataclass
class DumpRequest:
    """What to dump.

    Attributes:
        side: "torch" or "paddle".
        plan: the pair.
        spec: file of the pair, None when there is none.
        deep: record the inputs of every layer too, so that a place and a cause can be named.
        names_only: run nothing: names, modules and weights, for the other side's ``other``.
        other: the other side's dump: PyTorch's, whose weights the Paddle side loads; or Paddle's,
            whose norms the PyTorch side follows.
        folder: where a draft of a table goes when names do not match.
    """

    side: str
    plan: Request
    spec: Path | None = None
    deep: bool = True
    names_only: bool = False
    other: Dump | None = None
    folder: Path = Path()


class OneSide:
    """One framework's model, its weights and its record.

    Args:
        asked: what to dump.

    Attributes:
        side: `on_torch` or `on_paddle`.
        record: what the dump says about itself.
        state: the weights, in the precision in which the model is built.
        sample: the elements whose drift is recorded, None when they cannot be known.

    Raises:
        ValueError: another request than the other side's, or names that do not match.
    """

    def __init__(self, asked: DumpRequest) -> None:
        self.is_torch = asked.side == "torch"
        self.side = importlib.import_module(f"align.frameworks.on_{asked.side}")
        self.asked, self.plan = asked, asked.plan
        self._table = read_table(self.plan.weights)
        self._models = Models(self.side, self.plan)
        self.sample: Callable[[Any, Any], np.ndarray] | None = None
        model = self._models.get(self.plan.dtypes[0], self.plan.train)
        self.entries: list[Entry] = self.side.entries(model)
        self.record = self._record(model)
        self._store = Store()
        self.state = self._store.keep(tensors(self.side, model))
        if self.is_torch:
            self._shake()
            self._choose_norms(model)
            self.sample = drift.Sample(self.entries).reference
        else:
            self._take_weights(model)
        self.record.weights = dump_meta.weights_digest(self.state)

    def _record(self, model: Any) -> dump_meta.Meta:
        spec = self.asked.spec
        return dump_meta.Meta(
            side=self.asked.side,
            framework={},
            environment=environment(spec),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            spec=told_spec(spec),
            entries=self.entries,
            modules=[module_of(name, one) for name, one in self.side.modules(model).items()],
            table=told_table(self._table),
            **dump_meta.asked(self.plan),
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
        held = self.side.modules(model)
        norms = [n for n, one in held.items() if isinstance(getattr(one, "eps", None), float)]
        if self.asked.other is None:
            chosen = {name for name in norms if has_stock_partner(held[name])}
        else:
            stock = set(self.asked.other.meta.stock_norms)
            pairs = self._paired(self.record, self.asked.other.meta).modules.to_paddle
            chosen = {a for a, b in pairs.items() if b in stock}
        self.record.norms = {name: name in chosen for name in norms}
        followed = [name for name in norms if name in chosen]
        self._models.adapt(lambda built: self.side.follow_paddle(built, followed))

    def _take_weights(self, model: Any) -> None:
        """PyTorch's weights, when its dump is given; they keep their precision."""
        self.record.stock_norms = self.side.stock_norms(model)
        other = self.asked.other
        if other is None:
            self.record.notes.append("ran on weights of its own: compare judges them first")
            return
        found = self._paired(other.meta, self.record)
        taken: Any = to_paddle(found.weights, other.weights())
        for name in taken:
            self.state.hold(name, functools.partial(taken.__getitem__, name))
        self.sample = drift.Sample(other.meta.entries, found.weights).ours
        self.record.weights_from = other.meta.weights

    def _paired(self, torch: dump_meta.Meta, paddle: dump_meta.Meta) -> PairedNames:
        other = self.asked.other
        assert other is not None
        dump_meta.same_request(self.record, other.meta, ("this spec", str(other.path)))
        return settled(torch, paddle, self._table, self.asked.folder)

    def model(self, dtype: str, rounded: str, train: bool) -> Any:
        """The model of a precision with the weights rounded to ``rounded``."""
        model = self._models.get(dtype, train)
        load(self.side, model, self.state, lambda part: rounded_state(part, dtype, rounded))
        return model

    def run(self, dtype: str, rounded: str, *, deep: bool = False) -> Recording:
        """One pass, kept."""
        model = self.model(dtype, rounded, self.plan.train)
        return runs.run(self.side, model, self.plan, dtype, rounded, deep=deep)

    @contextlib.contextmanager
    def moved_pass(self, dtype: str, asked: MovedRun) -> Iterator[Kinds]:
        """A pass of the reference with moved roundings, as `noise_band.kinds_of`."""
        moves, model = self._moved(dtype, asked, self.plan.train)
        with runs.passed(self.side, model, self.plan, dtype, dtype, moves=moves) as found:
            yield kinds_of(found)

    def _moved(self, dtype: str, asked: MovedRun, train: bool) -> tuple[MovedRoundings, Any]:
        """Moved roundings, and the model with moved weights."""
        from align.frameworks.moved_roundings import MovedRoundings  # PyTorch's side alone

        moves = MovedRoundings(asked, dtype)
        model = self._models.get(dtype, train)
        runs.load_moved(self.side, model, self.state, moves, dtype)
        return moves, model

    def train(self, dtype: str, rounded: str, watch: Watch | None = None) -> TrainingRun:
        """One training run, kept."""

        def run(first: bool) -> TrainingRun:
            given = self.side, self.model(dtype, rounded, True), self.plan, dtype, rounded
            return runs.train(*given, watch=watch if first else None)

        return repeated(self.side, run) if self.is_torch else run(True)

    @contextlib.contextmanager
    def moved_training(self, dtype: str, asked: MovedRun, steady: np.ndarray) -> Iterator[Kinds]:
        """A training of the reference with moved roundings, as `measured_training`."""
        moves, model = self._moved(dtype, asked, True)
        track = Track(functools.partial(self.sample, self.side))
        options = {"moves": moves, "watch": track.watch}
        with runs.trained(self.side, model, self.plan, dtype, dtype, **options) as found:
            yield measured_training(found, track, steady)


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


def environment(spec: Path | None) -> dict[str, Any]:
    """Packages, machine and the commits of the suite and of the spec, where they are known."""
    found = environment_stamp()
    folders = {"suite": Path(__file__).parents[1]}
    if spec is not None:
        folders["spec"] = spec.resolve().parent
    found["commit"] = {title: text for title, at in folders.items() if (text := commit(at))}
    return found


def told_spec(spec: Path | None) -> dict[str, str]:
    """Name and SHA-256 of a spec file."""
    if spec is None:
        return {}
    return {"file": spec.name, "sha256": sha256_of(spec)}


def told_table(table: Table) -> dict[str, Any] | None:
    """The rows of a table as they are written in a table file, None when there are none."""
    sections = ("rows", "modules", "ignore_torch", "ignore_paddle")
    held: Mapping[str, Any] = {name: dict(getattr(table, name)) for name in sections}
    if not any(held.values()):
        return None
    return {"map" if name == "rows" else name: rows for name, rows in held.items()}
