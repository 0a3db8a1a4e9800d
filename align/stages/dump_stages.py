"""The stages of a comparison apart: weights, forward, backward, training; each with its controls.

The rules are those of `align.compare`: the same judge, the same bounds. The faults are planted in
Paddle's arrays, because no model is here to plant them in.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from align.judge import bounds, drift
from align.judge.comparator import compare_arrays, compare_mappings
from align.judge.judging import each, largest
from align.judge.record_controls import controls
from align.match.renamed import to_paddle
from align.pair.dump_pair import STATE, DumpPair, Names
from align.record.arrays import TrainingRun
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, StepResult
from align.record.stored_arrays import Lazy
from align.record.tolerance import Tolerance

CONVERTED = Tolerance("exact", 0.0, "a conversion moves numbers, it computes none")


def both_weights(names: Names) -> tuple[Lazy, Lazy]:
    """Paddle's tensors and what PyTorch's become, by Paddle's names, each read on access."""
    expected = to_paddle(names.weights, names.torch.weights())
    own = names.paddle.weights()
    return _wide(own, [name for name in expected if name in own]), _wide(expected, expected)


def _wide(arrays: Mapping[str, np.ndarray], chosen: Iterable[str]) -> Lazy:
    """Some of the arrays, floating ones in float64, which changes no value."""

    def read(name: str) -> np.ndarray:
        array = arrays[name]
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    return Lazy({name: functools.partial(read, name) for name in chosen})


def weights(names: Names, case: str) -> StepResult:
    """Both dumps' tensors, PyTorch's through the mapping."""
    own, expected = both_weights(names)

    def judge(arrays: Mapping[str, np.ndarray]) -> Iterator[Comparison]:
        if not expected and not arrays:
            yield from compare_mappings({}, {}, CONVERTED)
        yield from each(arrays, expected, None, lambda *_: CONVERTED, None)

    comparisons = list(judge(own))
    return StepResult(
        case,
        "weights",
        None,
        comparisons,
        controls(judge, _weight_faults(names), comparisons),
        note="the tensors that the passes ran on, PyTorch's after the conversion",
        stamps=_stamps(names),
    )


def _weight_faults(names: Names) -> list[tuple[str, str, Lazy]]:
    """One element off in the largest tensor, and that tensor left out."""
    sizes = {row.destination.name: row.destination.shape for row in names.weights.rows}
    own, _ = both_weights(names)
    name = max(own, key=lambda n: int(np.prod(sizes.get(n, 0))), default="")
    if not name:
        return []
    turned = np.array(own[name])
    turned.reshape(-1)[-1] += 1
    (wrong, _), (rest, _) = both_weights(names), both_weights(names)
    wrong.hold(name, lambda: turned)
    rest.leave(name)
    return [("the last element of a tensor off by one", name, wrong), ("left out", name, rest)]


def _stamps(names: Names) -> dict:
    return {"ours": names.paddle.meta.framework, "reference": names.torch.meta.framework}


def forward(pair: DumpPair, case: str) -> StepResult:
    """Every tap in execution order; running statistics in training mode."""

    def judge(ours: Recording) -> Iterator[Comparison]:
        sides = (ours, pair.reference, pair.oracle, pair.noise[0])
        yield from pair.judge.each_tap(*sides)
        if pair.names.torch.meta.train:
            yield from pair.judge.buffers(*sides)

    comparisons = list(judge(pair.ours))
    return StepResult(
        case,
        "forward",
        pair.dtype,
        comparisons,
        controls(judge, _tap_faults(pair, comparisons), comparisons),
        note="; ".join(pair.judge.notes),
        stamps={"ours": pair.ours.stamp, "reference": pair.reference.stamp},
    )


def _tap_faults(pair: DumpPair, comparisons: list[Comparison]) -> list[tuple[str, str, Recording]]:
    """What known tools let through, in the model's output; and the first layer's output 1 % off."""
    recording = pair.ours
    at, value = _first_float(recording.calls[ROOT])
    sizes = [c.bound * c.scale for c in comparisons if c.name.startswith(ROOT)]
    room = max([size for size in sizes if np.isfinite(size)], default=0.0)
    bumped, poisoned = np.array(value), np.array(value)
    bumped.reshape(-1)[value.size // 2] += max(20 * room, 1e-6 * float(np.abs(value).max()) or 1.0)
    poisoned.reshape(-1)[0] = np.nan
    made = {
        "one element off by 20 bounds": bumped,
        "one NaN": poisoned,
        "an extra axis that would broadcast": value[None],
    }
    faults = [(name, ROOT, _with_output(recording, ROOT, at, a)) for name, a in made.items()]
    for key, call, _ in pair.judge.taps(recording, pair.reference):
        if any(a.dtype.kind == "f" and a.size for _, a in call.outputs):
            at, value = _first_float(call)
            off = value + 0.01 * np.abs(value).max().astype(value.dtype)
            faults.append(("a layer 1 % off", key, _with_output(recording, key, at, off)))
            break
    return faults


def _first_float(call: Call) -> tuple[int, np.ndarray]:
    held = [(i, a) for i, (_, a) in enumerate(call.outputs) if a.dtype.kind == "f" and a.size]
    if not held:
        raise ValueError(f"{call.key}: has no floating output to compare")
    return held[0]


def _with_output(recording: Recording, key: str, at: int, array: np.ndarray) -> Recording:
    call = recording.calls[key]
    outputs = list(call.outputs)
    outputs[at] = (outputs[at][0], array)
    changed = {**recording.calls, key: dataclasses.replace(call, outputs=outputs)}
    return dataclasses.replace(recording, calls=changed)


def backward(pair: DumpPair, case: str) -> StepResult:
    """The loss, every tap's gradient in backward order, parameters' and inputs' gradients."""

    def judge(ours: Recording) -> Iterator[Comparison]:
        return pair.judge.each_gradient(ours, pair.reference, pair.oracle, pair.noise[1])

    comparisons = list(judge(pair.ours))
    larger = pair.ours.loss * 1.001
    larger = larger if larger != pair.ours.loss else larger + 1e-3
    loss = dataclasses.replace(pair.ours, loss=np.asarray(larger, pair.ours.loss.dtype))
    faults = [("loss 0.1 % too large", "loss", loss), *_gradient_faults(pair.ours)]
    return StepResult(
        case,
        "backward",
        pair.dtype,
        comparisons,
        controls(judge, faults, comparisons),
        stamps={"ours": pair.ours.stamp, "reference": pair.reference.stamp},
    )


def _gradient_faults(ours: Recording) -> list[tuple[str, str, Recording]]:
    """The largest gradient of a parameter times three, and one element of it not a number."""
    sizes = {n: float(np.abs(a).max()) for n, a in ours.gradients.items() if a.size}
    name = max(sizes, key=lambda n: sizes[n], default="")
    if not name or not sizes[name] > 0:
        return []
    value = ours.gradients[name]
    poisoned = np.array(value)
    poisoned.reshape(-1)[0] = np.nan
    made = {"gradient x 3": value * 3, "one NaN": poisoned}
    return [
        (title, name, dataclasses.replace(ours, gradients={**ours.gradients, name: array}))
        for title, array in made.items()
    ]


def training(pair: DumpPair, case: str) -> StepResult:
    """Losses, rates, drift of the weights, final tensors and moments after the steps."""
    judge = _Training(pair)
    ours = judge.ours
    comparisons = list(judge(ours))
    reference = judge.reference
    rates = {"paddle": ours.learning_rates, "pytorch": reference.learning_rates}
    series = {"loss": {"paddle": ours.losses, "pytorch": reference.losses}, "learning_rate": rates}
    if judge.found:
        limits = {"noise band": judge.ahead, "allowed": drift.allowed(judge.ahead, judge.base)}
        series["drift"] = {"paddle": judge.found, **limits}
    return StepResult(
        case,
        "training",
        pair.dtype,
        comparisons,
        controls(judge, _training_faults(ours), comparisons),
        note=f"noise band of the losses: {judge.band['losses']:.1e} of their size over "
        f"{len(ours.losses)} steps",
        series=series,
        stamps={"ours": ours.stamp, "reference": reference.stamp},
    )


def _training_faults(ours: TrainingRun) -> list[tuple[str, str, TrainingRun]]:
    """One tensor 1 % off at the end, and rates one step late (a constant rate 0.1 % off)."""
    changed, late = copy.copy(ours), copy.copy(ours)
    name = max(ours.state, key=lambda n: ours.state[n].size, default="")
    if name:
        changed.state = {**ours.state, name: ours.state[name] * 1.01 + 0.01}
    rates = ours.learning_rates
    shifted = [rates[0], *rates[:-1]]
    late.learning_rates = [rate * 1.001 for rate in rates] if shifted == rates else shifted
    return [
        ("one tensor 1 % off at the end", name, changed),
        ("rates one step late, or 0.1 % off", "learning rates", late),
    ]


class _Training:
    """Compares a run of the Paddle side with the reference, by the rules of training."""

    def __init__(self, pair: DumpPair) -> None:
        self.ours, self.reference, self._oracle = pair.training()
        self.band = pair.band(self.reference)
        self.found, self.ahead = pair.drift()
        self.base = bounds.training(pair.dtype, pair.names.pooled, len(self.reference.losses))
        self._pair, self._expected = pair, pair.kinds(self.reference)
        self._judged = {} if self._oracle is None else pair.kinds(self._oracle)
        rows = pair.names.weights.rows
        self._moving = {row.destination.name for row in rows if row.source.buffer}

    def __call__(self, run: TrainingRun) -> Iterator[Comparison]:
        """Rates, losses, drift, then every tensor, one at a time."""
        own, expected = run.learning_rates, self.reference.learning_rates
        yield compare_arrays("learning rates", np.asarray(own), np.asarray(expected), bounds.RATE)
        yield self._losses(run)
        if self.found:
            yield drift.judge(self.found, self.ahead, self.base)
        kinds = {STATE: run.state, **run.moments}
        for kind in dict.fromkeys([*self._expected, *kinds]):
            yield from self._tensors(kind, kinds.get(kind, {}))

    def _losses(self, run: TrainingRun) -> Comparison:
        oracle = None if self._oracle is None else np.asarray(self._oracle.losses)
        sides = np.asarray(run.losses), np.asarray(self.reference.losses)
        return compare_arrays("losses", *sides, self._rule("losses"), oracle=oracle)

    def _tensors(self, kind: str, own: Mapping[str, np.ndarray]) -> Iterator[Comparison]:
        expected, judged = self._expected.get(kind, {}), self._judged.get(kind, {})
        empty = {row.destination.name for row in self._pair.names.weights.rows}
        empty = {name for name in empty if name in expected and not expected[name].size}
        scale = largest(expected.values()) if kind else None
        names = [*expected, *(name for name in own if kind and name not in expected)]
        for name in names:
            if name in empty:
                continue
            title = f"{kind}/{name}" if kind else name
            a, b, o = ({title: s[name]} if name in s else {} for s in (own, expected, judged))
            third = None if self._oracle is None else {n: v.astype("float64") for n, v in o.items()}
            rule = self._rule(title)
            if kind:
                given = (self.base, self.band, b, third, scale, self._pair.dtype)
                rule = bounds.gradient_rules(*given)(title)
            yield from compare_mappings(a, b, rule, oracle=third, zero_scale=scale)

    def _rule(self, name: str) -> Tolerance:
        """The training rule; running statistics have their own."""
        own = bounds.STATISTICS[self._pair.dtype]
        return bounds.rules(own if name in self._moving else self.base, self.band)(name)
