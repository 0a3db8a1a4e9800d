"""What a step needs of a pair, whoever wrote the records: two live models, or two dumps."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from align.judge import bounds, drift
from align.judge.bounds import Settling
from align.judge.drift import FIRST, Sample, Track, driven_by_rounding
from align.judge.judging import Judge, flags, largest_gradient
from align.judge.noise_band import NoiseBand
from align.judge.update_judging import Curve
from align.match.mapping import WeightMapping, to_paddle
from align.match.name_table import Table
from align.match.paired_names import ModuleMap, settled
from align.pair.side import METRIC, scored_output
from align.record.arrays import Arrays, BothSides, Lazy, TrainingRun
from align.record.files.dump_reading import Dump, Module
from align.record.recording import ROOT, Recording
from align.record.results import Comparison, Step, Tolerance
from sot_paddle.config import some


class Settled(Protocol):
    """What holds for every precision of a pair.

    Attributes:
        weights: the mapping of the tensors.
        modules: the mapping of the modules.
        state: the reference's tensors before anything ran.
        layers: Paddle layer -> its class.
    """

    weights: WeightMapping
    modules: ModuleMap
    state: Mapping[str, Any]
    layers: Mapping[str, str]


class Pair:
    """Both sides in one precision: `AnyPair` runs them, `DumpPair` reads what they left.

    A pass is judged by its floors (`taps`, `gradients`), then by the noise band (`settling`).

    Args:
        judge: what both sides are called on the other.
        plan: what was asked for (name, mode, steps, ...).

    Attributes:
        live: the models are here and can run again; what needs that asks first.
        chosen: the models and inputs are the suite's own, see `Settling`.
        alone: no float64 pair is compared, which would judge what this one leaves out.
        setup: what holds for every precision.
        dtype: precision.
        reference: PyTorch's pass.
        oracle: its float64 pass on the same rounded numbers, None for a pair in float64.
        ours: Paddle's pass.
        band: how far rounding alone moves what a pass of PyTorch leaves.
    """

    live: bool
    chosen: bool = False
    alone: bool = False
    setup: Settled
    reference: Recording
    oracle: Recording | None
    ours: Recording
    band: NoiseBand

    def __init__(self, judge: Judge, plan: Any) -> None:
        self.judge, self.plan, self.dtype = judge, plan, judge.dtype

    @functools.cached_property
    def mixed(self) -> bool:
        """Whether PyTorch computes in float32 in its float64 pass too."""
        return self.dtype == "float64" and self.band.lower()

    @property
    def isolated(self) -> Tolerance:
        """The rule for one layer that was fed the reference's inputs."""
        return bounds.ISOLATED["float32" if self.mixed else self.dtype]

    @property
    def pooled(self) -> bool:
        """Whether an average pool of Paddle's has a part in the gradients.

        The suite's own pool over powers of two, which float32 divides exactly.
        """
        return not self.chosen and self.ours.pooled

    @functools.cached_property
    def largest_gradient(self) -> float:
        """The largest value among the reference's gradients."""
        return largest_gradient(self.reference)

    @functools.cached_property
    def settling(self) -> Settling:
        """Judges what missed its floor in a pass."""
        return Settling(
            self.band,
            self.judge.find,
            self._scale,
            exact=self.dtype == "float64",
            chosen=self.chosen,
            steady=lambda name: not self.judge.is_gradient(name),
        )

    def _scale(self, name: str) -> float | None:
        """The size that a gradient which is zero in exact arithmetic is judged by."""
        return self.largest_gradient if self.judge.is_gradient(name) else None

    @property
    def unjudged(self) -> set[str]:
        """Taps that rounding alone decides about in this precision."""
        return self.settling.unjudged

    def note_left_out(self, step: str, settling: Settling) -> None:
        """Note what float32 leaves out of a step, and who judges it."""
        if settling.note:
            judge = "compare in float64 too" if self.alone else "float64 can"
            self.judge.note(f"{step} in {self.dtype}: {settling.note}; {judge}")

    def taps(self, ours: Recording, only: Collection[str] | None = None) -> Iterator[Comparison]:
        """Every tap by its floor, then what else the pass may have moved (running statistics)."""
        for side, run in (("PyTorch", self.reference), ("Paddle", ours)):
            others = run.calls[ROOT].others if ROOT in run.calls else ()
            if others:
                self.judge.note(f"{side} returns beside tensors, not compared: {some(others)}")
        yield from self.judge.each_tap(ours, self.reference, self.oracle, only)
        yield from self.judge.buffers(ours, self.reference, self.oracle)
        written = [path for path in ours.written if path not in self.reference.written]
        if written:
            yield flags("inputs", written)

    def gradients(self, ours: Recording) -> Iterator[Comparison]:
        """The loss and every gradient by their floors."""
        rows = [row for row in self.setup.weights.rows if row.source.trainable]
        names = {self.setup.weights.paddle_names[row.destination.name] for row in rows}
        there = {*to_paddle(self.setup.weights, self.reference.gradients), *ours.gradients}
        if names - there:
            idle = some(sorted(names - there))
            self.judge.note(f"no gradient reaches these on either side, not compared: {idle}")
        rule = bounds.backward(self.dtype, self.pooled)
        return self.judge.each_gradient(
            ours, self.reference, self.oracle, scale=self.largest_gradient, rule=rule
        )

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Paddle's pass with each fault of "forward" or "backward": what, where, the pass.

        A live pair plants it in the model and runs, a recorded one in the arrays.
        """

    def trainings(self) -> TrainingRuns:
        """The training runs of both sides."""

    def asks(self, step: Step) -> bool:
        """Whether a step is to be compared."""
        return not step.argument or bool(getattr(self.plan, step.argument))

    def both_weights(self) -> BothSides:
        """The weights that the Paddle side came with, and PyTorch's."""

    def both_scores(self) -> BothSides:
        """Both metrics on the reference's output."""

    def logged_rates(self) -> Curve | None:
        """The learning rates that each side's own schedule says, None for the optimizers'."""

    def code(self, key: str) -> str:
        """Class, file and line of a Paddle layer, by a call's key; "" when not known."""

    def layer(self, key: str) -> tuple[Any, Any, Arrays]:
        """Paddle layer, PyTorch module and the layer's own tensors, by a call's key."""

    def _paired(self, key: str) -> tuple[str, str]:
        """Names of the Paddle layer and of its partner ("" without one), by a call's key."""
        name = key.partition("#")[0]
        back = {b: a for a, b in self.setup.modules.to_paddle.items()}
        return name, back.get(name, "")


def own_tensors(name: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The tensors of a layer itself, of those of a model, by their last names; in float64."""
    prefix = "" if name == ROOT else f"{name}."
    ends = {n: n.removeprefix(prefix) for n in arrays if n.startswith(prefix)}
    return {end: arrays[n].astype(np.float64) for n, end in ends.items() if "." not in end}


def widened(arrays: Mapping[str, np.ndarray]) -> Lazy:
    """Return whole numbers as int64, others as float64, each on access; no value changes."""

    def read(name: str) -> np.ndarray:
        array = arrays[name]
        return array.astype("int64" if array.dtype.kind in "biu" else "float64")

    return Lazy({name: functools.partial(read, name) for name in arrays})


STATE = ""
"""Kind of the parameters and buffers; the moments are kinds of their own."""
Ours = tuple[TrainingRun, Track | None]
"""Paddle's run, and the sampled weights of its steps where they are known."""


@dataclass
class TrainingRuns:
    """What is known of both sides' training.

    Attributes:
        reference: PyTorch's run.
        oracle: its float64 run, for a pair in float32.
        band: how far rounding moves what a run leaves, and its sampled weights by step.
        ours: Paddle's run, to be judged in a ``with`` block; None where it is handed in. Of live
            models also that of another plan, which ends when ``enough`` says so of it.
        plain: the sampled weights of the reference's steps, None where they are not known.
        exact: those of its float64 run.
        steady: places of the samples that are judged, from `steady_elements`.
    """

    reference: TrainingRun
    oracle: TrainingRun | None
    band: NoiseBand
    ours: Callable[..., contextlib.AbstractContextManager[Ours]] | None = None
    plain: Track | None = None
    exact: Track | None = None
    steady: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def in_paddle(weights: WeightMapping, run: TrainingRun) -> dict[str, Mapping[str, np.ndarray]]:
    """Tensors and moments of a reference run in Paddle's names, each converted on access."""
    kinds = {STATE: run.state, **run.moments}
    return {kind: to_paddle(weights, arrays) for kind, arrays in kinds.items()}


def tensor_title(kind: str, name: str) -> str:
    """What a tensor of a kind is called in the report."""
    return f"{kind}/{name}" if kind else name


def steady_elements(sample: Sample, exact: TrainingRun) -> np.ndarray:
    """Places of the samples of all tensors but those that rounding drives: they would drown all.

    Args:
        sample: which elements are followed.
        exact: the most exact run of the reference.
    """
    return sample.without(driven_by_rounding(exact.moments.get(FIRST, {})))


class Names:
    """What is settled once for two dumps.

    Args:
        torch: PyTorch's dump.
        paddle: Paddle's.
        table: rows for names that differ.
        folder: where a draft of a table goes.

    Raises:
        ValueError: names that do not match.
    """

    def __init__(self, torch: Dump, paddle: Dump, table: Table, folder: Path) -> None:
        self.torch, self.paddle = torch, paddle
        paired = settled(torch.meta, paddle.meta, table, folder)
        self.weights, self.modules, self.note = paired.weights, paired.modules, paired.note
        self.state, self.paddle_state = torch.weights(), paddle.weights()
        self.paddle_modules = {module.name: module for module in paddle.meta.modules}
        self.torch_modules = {module.name: module for module in torch.meta.modules}

    def wrong_norms(self) -> list[str]:
        """PyTorch's norms that computed with other numbers than their partner's kernel does."""
        stock = set(self.paddle.meta.stock_norms)
        return [
            name
            for name, followed in self.torch.meta.norms.items()
            if name in self.modules.to_paddle
            and bool(followed) != (self.modules.to_paddle[name] in stock)
        ]


class DumpPair(Pair):
    """Both sides in one precision, read when they are asked for.

    Args:
        names: what holds for every precision.
        dtype: "float64" or "float32".
        alone: see `Pair`.
    """

    live = False

    def __init__(self, names: Names, dtype: str, alone: bool = False) -> None:
        judge = Judge(names.weights, names.modules, dtype)
        super().__init__(judge, names.torch.meta)
        self.setup, self.alone = names, alone

    @functools.cached_property
    def ours(self) -> Recording:
        """Paddle's pass."""
        return self.setup.paddle.recording(self.dtype)

    @functools.cached_property
    def reference(self) -> Recording:
        """PyTorch's pass."""
        return self.setup.torch.recording(self.dtype)

    @functools.cached_property
    def oracle(self) -> Recording | None:
        """PyTorch's float64 pass on the same rounded numbers; None for a pair in float64."""
        return self.setup.torch.oracle(self.dtype)

    @functools.cached_property
    def band(self) -> NoiseBand:
        """How far rounding alone moves what PyTorch's pass leaves, as it was measured there."""
        return NoiseBand.stored(self.setup.torch.noise(self.dtype))

    def trainings(self) -> TrainingRuns:
        """The training runs of both sides."""
        torch, dtype = self.setup.torch, self.dtype
        reference, oracle = torch.training(dtype), torch.training_oracle(dtype)
        sample = drift.Sample(self.plan.entries, self.setup.weights)
        sides = (self.setup.paddle, "weights"), (torch, "weights"), (torch, "exact")
        ours, plain, exact = (self._track(dump, kind, sample.size) for dump, kind in sides)

        @contextlib.contextmanager
        def run() -> Iterator[Ours]:
            yield self.setup.paddle.training(dtype), ours

        band = NoiseBand.stored(torch.training_noise(dtype))
        chosen = steady_elements(sample, oracle or reference)
        return TrainingRuns(reference, oracle, band, run, plain, exact, chosen)

    def _track(self, dump: Dump, kind: str, size: int) -> drift.Track | None:
        """The sampled weights of a side's steps; None when Paddle ran on weights of its own."""
        rows = dump.drift(self.dtype).get(kind)
        if rows is None:
            return None
        if rows.shape != (self.plan.steps + 1, size):
            raise ValueError(f"{self.dtype}: the drift of both dumps is not of the same elements")
        return drift.Track(rows=rows)

    def asks(self, step: Step) -> bool:
        """Whether both dumps hold what a step compares."""
        if step.name == "weights":
            return bool(self.setup.weights.rows)
        return any(self._numbers(step.name)) if step.once else super().asks(step)

    def both_weights(self) -> BothSides:
        """The tensors that the passes ran on, each read on access."""
        expected = to_paddle(self.setup.weights, self.setup.state)
        paddle_state = self.setup.paddle_state
        ours = widened({name: paddle_state[name] for name in expected if name in paddle_state})
        note = "that the passes ran on, PyTorch's after the conversion"
        return BothSides(ours, widened(expected), self._stamps(), note)

    def _stamps(self) -> dict[str, Mapping]:
        torch, paddle = self.setup.torch, self.setup.paddle
        return {"ours": paddle.meta.framework, "reference": torch.meta.framework}

    def _numbers(self, kind: str) -> list[dict[str, list[float]]]:
        """What each side computed of a metric or a schedule, Paddle first."""
        return [dump.numbers().get(kind, {}) for dump in (self.setup.paddle, self.setup.torch)]

    def both_scores(self) -> BothSides:
        """Both metrics as each side computed them."""
        ours, reference = (
            {n if n == METRIC else f"{METRIC} {n}": values[0] for n, values in side.items()}
            for side in self._numbers("metric")
        )
        rows = len(scored_output(self.reference))
        return BothSides(ours, reference, self._stamps(), rows=rows)

    def logged_rates(self) -> Curve:
        """Both schedules as each side computed them."""
        rates = [side.get("schedule", ()) for side in self._numbers("learning_rate")]
        return Curve(None, (), *(np.asarray(side, float) for side in rates), only=True)

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Paddle's pass with a fault in its arrays: what, where, the pass; see `Pair`."""
        ours = self.ours
        if step == "forward":
            taps = self.judge.taps(ours, self.reference)
            key = next((key for key, call, _ in taps if call.floating()), None)
            if key is not None:
                at = ours.calls[key].floating()[0]
                value = ours.calls[key].outputs[at][1]
                off = value + 0.01 * np.abs(value).max().astype(value.dtype)
                yield "a layer 1 % off", key, ours.with_output(key, at, off)
            return
        sizes = {n: float(np.abs(a).max()) for n, a in ours.gradients.items() if a.size}
        name = max(sizes, key=sizes.__getitem__, default="")
        if name and sizes[name] > 0:
            value = ours.gradients[name]
            poisoned = np.array(value)
            poisoned.reshape(-1)[0] = np.nan
            for title, array in (("gradient x 3", value * 3), ("one NaN", poisoned)):
                changed = {**ours.gradients, name: array}
                yield title, name, dataclasses.replace(ours, gradients=changed)

    def code(self, key: str) -> str:
        """Where to look, by a call's key."""
        module = self.setup.paddle_modules.get(key.partition("#")[0])
        return module.source if module is not None else ""

    def layer(self, key: str) -> tuple[object, object, Arrays]:
        """Stand-ins for the Paddle layer and its partner, and the layer's own tensors."""
        (name, partner), setup = self._paired(key), self.setup
        layer, module = setup.paddle_modules.get(name), setup.torch_modules.get(partner)
        return _stand_in(layer), _stand_in(module), own_tensors(name, setup.paddle_state)


def _stand_in(module: Module | None) -> object:
    """An object whose class has a module's name and which has its plain attributes."""
    if module is None:
        return None
    return type(module.kind, (SimpleNamespace,), {})(**dict(module.settings))
