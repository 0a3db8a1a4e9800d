"""Two dumps as one pair: the judge of `align.compare`, fed from files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from align.judge import drift
from align.judge.judging import Judge
from align.judge.noise_band import NoiseBand
from align.judge.rate_curves import Curve
from align.match.mapping import to_paddle
from align.match.name_table import Table
from align.match.paired_names import settled
from align.pair.pair import Ours, Pair, TrainingRuns, own_tensors, steady_elements, widened
from align.pair.side import METRIC, scored_output
from align.record.arrays import Arrays, BothScores, BothWeights
from align.record.files.dump_meta import Module
from align.record.files.dump_reading import Dump
from align.record.recording import Recording


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
        found = settled(torch.meta, paddle.meta, table, folder)
        self.weights, self.modules, self.note = found.weights, found.modules, found.note
        self.state, self.own_state = torch.weights(), paddle.weights()
        self.own: Mapping[str, Module] = {one.name: one for one in paddle.meta.modules}
        self.theirs: Mapping[str, Module] = {one.name: one for one in torch.meta.modules}

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

    def asks(self, step: str) -> bool:
        """Whether "weights", "metric" or "learning_rate" is to be compared."""
        if step == "weights":
            return bool(self.setup.weights.rows)
        return any(self._numbers(step))

    def both_weights(self) -> BothWeights:
        """The tensors that the passes ran on, each read on access."""
        expected = to_paddle(self.setup.weights, self.setup.state)
        own = self.setup.own_state
        ours = widened({name: own[name] for name in expected if name in own})
        note = "that the passes ran on, PyTorch's after the conversion"
        return BothWeights(ours, widened(expected), note, self._stamps())

    def _stamps(self) -> dict[str, Mapping]:
        torch, paddle = self.setup.torch, self.setup.paddle
        return {"ours": paddle.meta.framework, "reference": torch.meta.framework}

    def _numbers(self, kind: str) -> list[dict[str, list[float]]]:
        """What each side computed of a metric or a schedule, Paddle first."""
        return [dump.numbers().get(kind, {}) for dump in (self.setup.paddle, self.setup.torch)]

    def both_scores(self) -> BothScores:
        """Both metrics as each side computed them."""
        ours, reference = (
            {n if n == METRIC else f"{METRIC} {n}": values[0] for n, values in side.items()}
            for side in self._numbers("metric")
        )
        return BothScores(ours, reference, scored_output(self.reference), self._stamps())

    def logged_rates(self) -> Curve:
        """Both schedules as each side computed them."""
        held = self._numbers("learning_rate")
        ours, theirs = (np.asarray(side.get("schedule", ()), float) for side in held)
        return Curve(None, (), ours, theirs, only=True)

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
        module = self.setup.own.get(key.partition("#")[0])
        return module.source if module is not None else ""

    def layer(self, key: str) -> tuple[object, object, Arrays]:
        """Stand-ins for the Paddle layer and its partner, and the layer's own tensors."""
        (name, partner), setup = self._paired(key), self.setup
        own = own_tensors(name, setup.own_state)
        return _stand_in(setup.own.get(name)), _stand_in(setup.theirs.get(partner)), own


def _stand_in(module: Module | None) -> object:
    """An object whose class has a module's name and which has its plain attributes."""
    if module is None:
        return None
    return type(module.kind, (SimpleNamespace,), {})(**dict(module.settings))
