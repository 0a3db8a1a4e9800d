"""Two recordings in, judged comparisons out: taps, gradients of taps and parameters, buffers.

Names are Paddle's, because the Paddle side is the one to fix. Taps are taken in the order in which
the reference finished them, their gradients in the order in which the reference received them.
Comparisons are made one at a time as they are asked for: a control that looks for the first failed
one stops there, and no more than one tensor of each side is held.

Three kinds of paired layers lose their partner, with a note:

- layers whose outputs differ in structure alone (tokens flattened, the batch on another axis),
  where what follows agrees; else they stay paired and fail;
- containers that only their parameters pair, and that do other parts of the work; where what
  follows differs as well, `AnyPair.isolate` decides, with PyTorch's inputs;
- layers of which one has layers inside (a norm with an activation), where one of these returns
  what the other side's layer does.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from align.judge import bounds
from align.judge.comparator import MASK, compare_arrays, compare_mappings, peak
from align.judge.noise_band import Find, Spread, Spreads, joined
from align.match import name_table
from align.match.mapping import MappedRow, WeightMapping, to_paddle
from align.match.paired_names import ModuleMap
from align.record.arrays import pair_paths
from align.record.recording import ROOT, Call, Recording
from align.record.results import Comparison, Tolerance
from sot_paddle.config import some

OUTPUTS = "(outputs of the model)"
NEAR = 1e-3  # of the largest value: two outputs that agree so far are one
LOW = -1e3  # a score as low as this is hidden: softmax makes 0 of it
Outputs = Mapping[str, np.ndarray]
"""Tensors of an output by path."""


@dataclass
class Judge:
    """Judges a pass of Paddle by one of PyTorch, by the names that both sides have for a thing.

    Attributes:
        notes: what could not be compared and why, in plain words.
        statistics_rule: step of `bounds.TOLERANCES` by whose rule running statistics are judged.
    """

    weights: WeightMapping
    modules: ModuleMap
    dtype: str
    notes: list[str] = field(default_factory=list)
    statistics_rule: str = "statistics"
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def taps(
        self, ours: Recording, reference: Recording, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, Call, Call]]:
        """(Paddle's key, our call, the reference's call) in the reference's order."""
        counts, own_counts = reference.counts(), ours.counts()
        for call in reference.calls.values():
            target = self.modules.to_paddle.get(call.name)
            if target is None or (only is not None and target not in only):
                continue
            if counts[call.name] != own_counts.get(target, 0):
                numbers = own_counts.get(target, 0), counts[call.name]
                paddle, torch = (f"{count} time{'s' * (count != 1)}" for count in numbers)
                called = f"{target}: called {paddle} in Paddle, {torch} in PyTorch"
                self.note(f"{called}: its calls are not compared")
                continue
            paddle_call = ours.calls[Call(target, call.number).key]
            yield paddle_call.key, paddle_call, call

    def note(self, text: str) -> None:
        """Remember a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def each_tap(
        self,
        ours: Recording,
        reference: Recording,
        oracle: Recording | None,
        only: Collection[str] | None = None,
    ) -> Iterator[Comparison]:
        """Judge every tap; both orders of trainable and tied parameters first."""
        rule = bounds.TOLERANCES["forward", self.dtype]
        tied, trained = self.weights.differing()
        yield from (flags("tied parameters", tied), flags("trainable parameters", trained))
        for key, paddle_call, call in self.taps(ours, reference, only):
            judge = None if oracle is None else oracle.calls[call.key].outputs
            pairs, left, own_left = output_pairs(paddle_call, call)
            uneven = key == ROOT and are_uneven(call.outputs, paddle_call.outputs, pairs)
            if uneven:
                yield missing_outputs(call.outputs, paddle_call.outputs)
            for label, path, paddle_path in pairs:
                b, a = call.outputs[path], paddle_call.outputs[paddle_path]
                if uneven and a.shape != b.shape:
                    continue
                name = tap_name(key, label)
                o = None if judge is None else judge[path]
                self._places[name] = "taps", f"{call.key}[{path}]"
                comparison = compare_outputs(name, a, b, o, rule)
                if comparison is not None:
                    yield comparison
                elif key == ROOT:
                    self.note(f"{name}: empty on both sides, not compared")
            if (left or own_left) and not uneven:
                self.note(f"{key}: outputs without a partner: {', '.join([*left, *own_left])}")

    def each_gradient(
        self,
        ours: Recording,
        reference: Recording,
        oracle: Recording | None,
        scale: float,
        rule: Tolerance,
    ) -> Iterator[Comparison]:
        """Judge the loss, the taps' gradients in backward order, then parameters and inputs."""
        loss_rule = bounds.TOLERANCES["forward", self.dtype]
        o = None if oracle is None else oracle.loss
        yield compare_arrays(
            "loss", ours.loss, reference.loss, loss_rule, oracle=o, zero_scale=scale
        )
        taps = self._gradient_taps(ours, reference)
        for key, path in dict.fromkeys([*reference.backward_order, *taps]):
            if (key, path) not in taps:
                continue
            name, paddle_call, paddle_path = taps[key, path]
            a, b = paddle_call.grad_outputs[paddle_path], reference.calls[key].grad_outputs[path]
            o = None if oracle is None else oracle.calls[key].grad_outputs[path]
            if a.size or b.size:
                yield compare_arrays(name, a, b, rule, oracle=o, zero_scale=scale)
        b, o = (run and to_paddle(self.weights, run.gradients) for run in (reference, oracle))
        yield from compare_mappings(ours.gradients, b, rule, oracle=o, zero_scale=scale)
        a, b, o = (
            run and {f"input {path}": value for path, value in run.input_gradients.items()}
            for run in (ours, reference, oracle)
        )
        yield from compare_mappings(a, b, rule, oracle=o, zero_scale=scale)

    def _gradient_taps(
        self, ours: Recording, reference: Recording
    ) -> dict[tuple[str, str], tuple[str, Call, str]]:
        """Return the gradients at the outputs of paired layers; note those that a side lacks.

        Returns:
            PyTorch's call and path -> name, Paddle's call and path.
        """
        taps, one_sided = {}, []
        for key, paddle_call, torch_call in self.taps(ours, reference):
            for label, torch_path, paddle_path in output_pairs(paddle_call, torch_call)[0]:
                name = f"gradient at {key}[{label}]" if label else f"gradient at {key}"
                self._places[name] = "gradients at taps", f"{torch_call.key}[{torch_path}]"
                in_paddle = paddle_path in paddle_call.grad_outputs
                in_torch = torch_path in torch_call.grad_outputs
                if in_paddle and in_torch:
                    taps[torch_call.key, torch_path] = name, paddle_call, paddle_path
                elif in_paddle or in_torch:
                    one_sided.append(name)
                elif key == ROOT and torch_path in {*torch_call.floating()} - {*torch_call.padded}:
                    silent = f"output {label}".strip() + " gets no gradient from the loss"
                    self.note(f"{silent}; its backward pass is not compared")
        for name in sorted(one_sided):  # says nothing when all others agree
            self.note(f"{name}: on one side only, not compared")
        return taps

    def buffers(
        self, ours: Recording, reference: Recording, oracle: Recording | None
    ) -> list[Comparison]:
        """Judge the tensors that a pass moves without an optimizer (running statistics).

        Whole numbers, flags among them, have to be equal.
        """
        rule, state = bounds.TOLERANCES[self.statistics_rule, self.dtype], ours.state
        judged = {} if oracle is None else self.statistics(oracle)
        comparisons = (
            compare_outputs(name, 1 * state[name], 1 * array, judged.get(name), rule)
            for name, array in self.statistics(reference).items()
        )
        return [comparison for comparison in comparisons if comparison is not None]

    def statistics(self, reference: Recording) -> dict[str, np.ndarray]:
        """What is no parameter in a recording of the reference, in Paddle's names."""
        names = {name for row, name, _ in self.weights.named() if row.source.buffer}
        buffers = {name: reference.state[name] for name in names}
        return self.weights.to_paddle(buffers) if buffers else {}

    def find(self, name: str) -> Find | None:
        """What picks the spread of a comparison of a pass, from the arrays of `kinds_of`."""
        if name in self._places:
            place = self._places[name]
            return lambda spreads: spreads.get(place)
        if name == "loss" or name.startswith("input "):
            return lambda spreads: spreads.get(("inputs", name))
        return self.find_tensor("gradients", name) or self.find_tensor("state", name)

    def is_gradient(self, name: str) -> bool:
        """Whether a comparison of a pass is one of a gradient."""
        if name in self._places:
            return self._places[name][0] != "taps"
        rows = self._sources.get(name)
        return name.startswith("input ") or (rows is not None and not rows[0].source.buffer)

    def find_tensor(self, kind: str, name: str) -> Find | None:
        """Return what finds a Paddle tensor's spread: of a part of PyTorch's, or of several.

        It finds none where one of its sources has none.
        """
        rows = self._sources.get(name)
        if rows is None or (kind == "gradients" and rows[0].source.buffer):
            return None

        def find(spreads: Spreads) -> Spread | None:
            # a packed tensor has a row for each piece; of tied ones the last counts (`to_paddle`)
            pieces = []
            for row in rows if rows[0].piece is not None else rows[-1:]:
                spread = spreads.get((kind, self.weights.torch_names[row.source.name]))
                if spread is None:
                    return None
                if row.part is not None:  # a spread is known by rows: of columns, that of them all
                    is_of_rows = name_table.part_axis(row.source) == 0
                    spread = spread.part(*row.part) if is_of_rows else spread.part(0, 1)
                pieces.append(spread)
            return joined(pieces)

        return find

    @functools.cached_property
    def _sources(self) -> dict[str, list[MappedRow]]:
        """Paddle's canonical name -> the rows that lead there."""
        rows_of: dict[str, list[MappedRow]] = {}
        for row, _, name in self.weights.named():
            rows_of.setdefault(name, []).append(row)
        return rows_of


def are_uneven(reference: Outputs, ours: Outputs, pairs: Sequence[tuple[str, str, str]]) -> bool:
    """Whether two outputs hold other tensors: another number, or other shapes under other names."""
    if len(reference) != len(ours):
        return True
    named = set(reference) == set(ours)
    return not named and any(reference[p].shape != ours[q].shape for _, p, q in pairs)


def missing_outputs(reference: Outputs, ours: Outputs) -> Comparison:
    """The failed comparison of two outputs that do not hold the same tensors."""
    counts = (np.asarray([len(side)]) for side in (ours, reference))
    comparison = compare_arrays(OUTPUTS, *counts, bounds.EXACT)
    text = f"PyTorch returns {_told(reference)}, Paddle {_told(ours)}"
    hint = f"not the same tensors: pick what both return, outputs={_proposal(reference, ours)}"
    return dataclasses.replace(comparison, passed=False, reason=text, hint=hint)


def _told(side: Outputs) -> str:
    shapes = [f"{path} {array.shape}".strip() for path, array in side.items()]
    return f"{len(side)} tensor{'s' * (len(side) != 1)} ({', '.join(shapes)})"


def _proposal(reference: Outputs, ours: Outputs) -> str:
    """The first two that have the same numbers, else the same shape."""
    both = itertools.product(reference.items(), ours.items())
    same = [(a, b) for a, b in both if a[1].shape == b[1].shape]
    near = [(a, b) for a, b in same if _near(a[1], b[1])]
    if not same:
        return "(torch, paddle): a key, an index or a function for each side"
    paths = (path for path, _ in (near or same)[0])
    return str(tuple(int(path) if path.isdigit() else path or None for path in paths))


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=0, atol=NEAR * float(np.abs(a).max(initial=0.0))))


def largest_gradient(reference: Recording) -> float:
    """The largest value of all gradients of a pass, 1 when there is none above 0."""
    taps = (call.grad_outputs.values() for call in reference.calls.values())
    return largest(itertools.chain(*taps, reference.gradients.values()))


def compare_outputs(
    name: str,
    ours: np.ndarray,
    reference: np.ndarray,
    oracle: np.ndarray | None,
    rule: Tolerance,
    zero_scale: float | None = None,
) -> Comparison | None:
    """Judge one output; whole numbers exactly, equal mask values as equal, None when both empty."""
    if ours.size == 0 and ours.shape == reference.shape:
        return None
    if reference.dtype.kind + ours.dtype.kind in ("bb", "ii", "iu", "ui", "uu"):
        whole = (a.astype(np.int64) for a in (ours, reference))
        return compare_arrays(name, *whole, bounds.EXACT)
    arrays = without_masks(ours, reference, oracle)
    return compare_arrays(name, *arrays[:2], rule, oracle=arrays[2], zero_scale=zero_scale)


def alike(a: np.ndarray, b: np.ndarray, rule: Tolerance) -> bool:
    """Whether two arrays have one shape and no output out of tolerance."""
    comparison = compare_outputs("", a, b, None, rule) if a.shape == b.shape else None
    return a.shape == b.shape and (comparison is None or comparison.passed)


def without_masks(*arrays: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
    """The arrays with 0 where all are above MASK, or none above LOW and one below -MASK."""
    present = [a for a in arrays if a is not None]
    if len({a.shape for a in present}) != 1 or any(a.dtype.kind != "f" for a in present):
        return arrays
    if all(a.size == 0 or peak(a) <= MASK for a in present):
        return arrays
    masked = np.logical_and.reduce([a > MASK for a in present])
    hidden = np.logical_and.reduce([a <= LOW for a in present])
    masked |= hidden & np.logical_or.reduce([a < -MASK for a in present])
    if not masked.any():
        return arrays
    return tuple(None if a is None else np.where(masked, a.dtype.type(0), a) for a in arrays)


def largest(arrays: Iterable[np.ndarray]) -> float:
    """The largest finite peak of some arrays, 1 when there is none above 0."""
    sizes = [peak(a) for a in arrays if a.size]
    return max([size for size in sizes if np.isfinite(size)], default=0.0) or 1.0


def flags(title: str, wrong: list[str]) -> Comparison:
    """One exact comparison that names what differs."""
    name = f"({title}{': ' + ', '.join(wrong) if wrong else ''})"
    return compare_arrays(name, np.asarray([len(wrong)]), np.asarray([0]), bounds.EXACT)


EQUAL = 1e-6  # of the largest value: what is farther apart in float64 is no rounding
AGREES, FLATTENED, DIFFERS, REARRANGED, RESIZED = range(5)
"""What the outputs of a call are to its partner's, the worst of its tensors: equal; equal but for
merged axes; of one shape; of one size; of another size, or with axes of one element more or less,
by which what follows may broadcast."""


def unpair_other_structures(judge: Judge, paddle: Recording, torch: Recording) -> None:
    """Unpair layers whose outputs have other shapes, up to a layer of one shape that agrees.

    Args:
        judge: its `modules` lose the pairs and remember why.
    """
    modules, unlike, later_agrees = judge.modules, set(), False
    for _, paddle_call, torch_call in reversed(list(judge.taps(paddle, torch))):
        likeness, name = _likeness(paddle_call, torch_call), torch_call.name
        if name in modules.loose and likeness != AGREES:
            unlike.add(name)
            if later_agrees or likeness != DIFFERS:
                modules.unpair_loose(name)
        later_agrees = later_agrees or likeness == AGREES
    modules.loose = {name: modules.loose[name] for name in modules.loose if name in unlike}
    taps = [(paddle_call, torch_call) for _, paddle_call, torch_call in judge.taps(paddle, torch)]
    _unpair_composed(judge, taps, paddle, torch)
    taps = [calls for calls in taps if calls[1].name in judge.modules.to_paddle]
    if any(_shapes(*calls) for calls in taps if calls[1].name != ROOT):
        _unpair_unlike(judge, taps)
    _unpair_reordered(judge, taps)
    for note in judge.modules.unlike.values():
        judge.note(note)


def _unpair_composed(
    judge: Judge, taps: list[tuple[Call, Call]], paddle: Recording, torch: Recording
) -> None:
    """Unpair layers of which one holds layers, where one of these returns what the other does."""
    near = NEAR if judge.dtype == "float32" else EQUAL
    same: dict[str, str] = {}
    for paddle_call, torch_call in taps:
        name = torch_call.name
        if name in judge.modules.composed and _likeness(paddle_call, torch_call) != AGREES:
            inner = _same_inside(torch, torch_call, paddle_call, near)
            inner += _same_inside(paddle, paddle_call, torch_call, near)
            if inner:
                same[name] = f"{paddle_call.key} (by {inner[0]})"
    for name in same:
        judge.modules.unpair(name, "")
        judge.modules.unlike[name] = (
            "compared at a layer inside of the other side's, which goes on from there: "
            + some(list(same.values()))
        )


def _unpair_unlike(judge: Judge, taps: list[tuple[Call, Call]]) -> None:
    """Unpair the calls of other shapes that a later call, in order of the taps, proves harmless.

    A later call that agrees proves it for all before it. One that differs proves it for those of
    merged axes, if none before it was RESIZED.
    """
    waiting: list[tuple[int, Call, Call]] = []
    for paddle_call, torch_call in taps:
        likeness = _likeness(paddle_call, torch_call)
        harmless: list[tuple[int, Call, Call]] = []
        if likeness == AGREES:
            harmless, waiting = waiting, []
        elif likeness in (DIFFERS, REARRANGED) and all(kind != RESIZED for kind, _, _ in waiting):
            harmless = [row for row in waiting if row[0] == FLATTENED]
            waiting = [row for row in waiting if row[0] != FLATTENED]
        for _, paddle_unlike, torch_unlike in harmless:
            shapes = _shapes(paddle_unlike, torch_unlike)
            why = f"{shapes}, which changes nothing of what follows"
            judge.modules.unpair(torch_unlike.name, why)
        if likeness not in (AGREES, DIFFERS) and torch_call.name != ROOT:
            waiting.append((likeness, paddle_call, torch_call))


def _same_inside(record: Recording, whole: Call, other: Call, near: float) -> list[str]:
    """Calls inside of one layer that return what the other side's layer does."""
    inside = (call for call in record.calls.values() if call.name.startswith(f"{whole.name}."))
    return [call.key for call in inside if _likeness(other, call, near) == AGREES]


def _unpair_reordered(judge: Judge, taps: list[tuple[Call, Call]]) -> None:
    """Unpair layers that get the same rows in another order (experts), where the models agree."""
    near = NEAR if judge.dtype == "float32" else EQUAL
    likenesses = [_likeness(*calls, near) for calls in taps]
    agree = any(
        likeness == AGREES and torch_call.name == ROOT
        for likeness, (_, torch_call) in zip(likenesses, taps, strict=True)
    )
    names = [
        torch_call.name
        for likeness, (paddle_call, torch_call) in zip(likenesses, taps, strict=True)
        if agree and likeness == DIFFERS and _are_reordered(paddle_call, torch_call, near)
    ]
    for name in names:
        judge.modules.unpair(name, "")
        says = f"rows in another order, which changes nothing of what follows: {some(names)}"
        judge.modules.unlike[name] = says


def _are_reordered(paddle_call: Call, torch_call: Call, near: float) -> bool:
    """Whether every output of a call holds the rows of its partner's."""
    for a, b in _paired(paddle_call, torch_call):
        if a.ndim < 2:
            return False
        rows = [x.reshape(len(x), -1) for x in (a, b)]
        weights = np.random.default_rng(0).normal(size=rows[0].shape[1])
        with np.errstate(all="ignore"):
            a, b = (x[np.argsort(x @ weights)] for x in rows)
            if not np.abs(a - b).max(initial=0.0) <= near * np.abs(b).max(initial=0.0):
                return False
    return True


def output_pairs(
    paddle_call: Call, torch_call: Call
) -> tuple[list[tuple[str, str, str]], list[str], list[str]]:
    """What `pair_paths` says of the outputs of a call and its partner's."""
    torch, paddle = torch_call.outputs, paddle_call.outputs
    return pair_paths(torch, paddle, (torch.__getitem__, paddle.__getitem__))


def tap_name(key: str, label: str) -> str:
    """The name in the report of an output of a call, by its label from `output_pairs`."""
    return f"{key}[{label}]" if label else key


def _paired(paddle_call: Call, torch_call: Call) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Paddle's and PyTorch's outputs of a call, paired."""
    for _, torch_path, paddle_path in output_pairs(paddle_call, torch_call)[0]:
        yield paddle_call.outputs[paddle_path], torch_call.outputs[torch_path]


def _shapes(paddle_call: Call, torch_call: Call) -> str:
    """The shapes of the first outputs whose shapes differ, "" where none do."""
    unlike = [(a.shape, b.shape) for a, b in _paired(paddle_call, torch_call) if a.shape != b.shape]
    return "{} in Paddle, {} in PyTorch".format(*unlike[0]) if unlike else ""


def _likeness(paddle_call: Call, torch_call: Call, near: float = NEAR) -> int:
    """Say by one of AGREES to RESIZED how the outputs of two calls are alike."""
    likenesses = [AGREES]
    for a, b in _paired(paddle_call, torch_call):
        if a.shape != b.shape and (a.size != b.size or _long(a) == _long(b)):
            likenesses.append(RESIZED)
            continue
        with np.errstate(all="ignore"):
            largest_difference = np.abs(a.reshape(-1) - 1.0 * b.reshape(-1)).max(initial=0.0)
        is_near = bool(largest_difference <= near * np.abs(b).max(initial=0.0))
        if a.shape == b.shape:
            likenesses.append(AGREES if is_near else DIFFERS)
        else:
            likenesses.append(FLATTENED if is_near else REARRANGED)
    return max(likenesses)


def _long(array: np.ndarray) -> tuple[int, ...]:
    """The axes of more than one element."""
    return tuple(n for n in array.shape if n != 1)
