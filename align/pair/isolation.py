"""Inject mode: every Paddle layer is fed the reference's inputs and judged on its own.

One forward pass of the Paddle model does it. Before a paired layer runs, its arguments are replaced
by those that its partner got; when it has run, its output is compared and then replaced by its
partner's. Errors cannot accumulate, so every wrong layer is found. A container runs its own code
on its layers' right outputs: it is guilty only when that code is wrong, which shows in its output
or in what it hands to the layers inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.judge.judging import LOW, alike, compare_outputs
from align.pair.side import dropout_off, kept
from align.record.arrays import Arrays, Leaf, leaves, pair_paths, replace
from align.record.recording import ROOT, Call, CallHooks, run_model
from align.record.results import Comparison

_SWAPPED = "PyTorch hands this tensor over in the place of another argument: operands are swapped"


@dataclass
class Guilty:
    """A layer whose own code is wrong.

    Attributes:
        shown_at: the tensor that showed it: the layer's output, or the input of a layer inside.
        inputs: the reference's inputs of that call, with which formulas are tried.
        siblings: unpaired layers that ran in between and may be the place.
        note: what is known about the cause already.
    """

    place: str
    comparison: Comparison
    shown_at: str
    inputs: list[Leaf] = field(default_factory=list)
    ours: np.ndarray | None = None
    expected: np.ndarray | None = None
    siblings: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class WrongGradient:
    """A gradient that one layer's own code gets wrong.

    Attributes:
        seeds: gradients that arrive at the outputs of the same code, the reference's.
        value: the tensor whose gradient it is, None of a parameter, or when unknown.
    """

    place: str
    comparison: Comparison
    ours: np.ndarray
    expected: np.ndarray
    seeds: Sequence[np.ndarray]
    value: np.ndarray | None


@dataclass
class Frame:
    """A call that is going on, with what it was given.

    Attributes:
        reference: its partner's call, None without.
        unpaired: keys of the layers without a partner that it has called.
        misfed: who is accused in its place: it was handed an argument of another length.
    """

    key: str
    reference: Call | None
    arguments: tuple[tuple, dict]
    unpaired: list[str] = field(default_factory=list)
    misfed: Guilty | None = None

    def fault(
        self, seen: Comparison, near: list[Leaf], ours: Any, expected: Any, note: str = ""
    ) -> Guilty:
        """Accuse the code of this call of what was seen."""
        return Guilty(self.key, seen, seen.name, near, ours, expected, [*self.unpaired], note)


class Isolation(CallHooks):
    """Runs the Paddle side once in inject mode.

    Args:
        pair: a live one, with Paddle's model and a deep recording of the reference.
        names: PyTorch module -> Paddle layer, of those that are fed; None for all.
    """

    frame: type[Frame] = Frame

    def __init__(self, pair: Any, names: Mapping[str, str] | None = None) -> None:
        self.pair, self.model = pair, pair.model
        side = pair.setup.paddle.framework
        super().__init__(side, side.modules(self.model))
        self.judge, self.recording, self.rule = pair.judge, pair.deep, pair.isolated
        self.comparisons: list[Comparison] = []
        self.fed = 0  # arguments of layers that have a partner of their shape
        self.guilty: list[Guilty] = []
        names = names or self.judge.modules.to_paddle
        self._calls: dict[str, Call] = {}
        for call in self.recording.calls.values():
            if call.name in names:
                self._calls[Call(names[call.name], call.number).key] = call
        self._stack: list[Frame] = []

    def run(self) -> Isolation:
        """Feed the plan's inputs; `comparisons` and `guilty` hold the result."""
        side, dtype = self.side, self.judge.dtype
        no_drop = dropout_off(side, self.pair.plan.train)
        with kept(side, self.model), no_drop, self.hooked(), side.default_dtype(dtype):
            self.call_model()
        return self

    def call_model(self) -> None:
        """Run the model on the plan's inputs."""
        dtype = self.judge.dtype
        run_model(self.side, self.model, self.pair.plan.cast(dtype, dtype))

    def _before(self, layer: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        key, changed = self.begun(layer).key, None
        frame = self.frame(key, self._calls.get(key), (args, kwargs))
        if frame.reference is not None:
            changed = self._feed(frame, frame.reference)
        elif self._stack:
            self._stack[-1].unpaired.append(key)
        self._stack.append(frame)
        return changed

    def _feed(self, frame: Frame, reference: Call) -> tuple[tuple, dict] | None:
        """The reference's arguments in the places of ours; a difference points to the caller."""
        if not self._stack:
            return None  # the model itself
        ours, torch_floats = self._arguments(frame), floats(reference.inputs.items())
        partners = self._partners(ours, torch_floats)
        for i, (path, mine) in enumerate(ours):
            expected = partners.get(path)
            if expected is None:
                continue
            name = f"input {i} of {frame.key}" if len(ours) > 1 else f"input of {frame.key}"
            comparison = compare_outputs(name, mine, expected, None, self.rule)
            if comparison is None or comparison.passed:
                continue
            swapped = any(alike(mine, array, self.rule) for _, array in torch_floats)
            self.comparisons.append(comparison)
            maker = self._maker(mine)
            near, note = self._inside(maker, reference), _SWAPPED if swapped else ""
            fault = maker.fault(comparison, near, mine, expected, note)
            self.guilty.append(self._stack[-1].misfed or fault)
        self.fed += len(partners)
        frame.misfed = self._misfed(frame, ours, torch_floats, partners)
        return replace(
            frame.arguments,
            self.side.is_tensor,
            lambda path, t: self.side.tensor(partners[path]) if path in partners else t,
        )

    def _arguments(self, frame: Frame) -> list[Leaf]:
        """The floating arguments of a call by path."""
        tensors = leaves(frame.arguments, self.side.is_tensor)
        return floats([(path, self.side.numpy(tensor)) for path, tensor in tensors])

    def _maker(self, array: np.ndarray) -> Frame:
        """The innermost call going on that has a partner, or was not given the array itself."""
        for frame in reversed(self._stack[1:]):
            tensors = leaves(frame.arguments, self.side.is_tensor)
            arguments = (self.side.numpy(tensor) for _, tensor in tensors)
            if frame.reference or not any(np.array_equal(a, array) for a in arguments):
                return frame
        return self._stack[0]

    def _misfed(
        self, frame: Frame, ours: list[Leaf], torch_floats: list[Leaf], partners: Arrays
    ) -> Guilty | None:
        """Accuse the caller where one argument alone is of another length, or a mask hides others.

        It counts when the output is wrong as well: a port may cut elsewhere and be right.
        """
        left = [a for path, a in ours if path not in partners]
        torch_left = [
            a for _, a in torch_floats if not any(a is taken for taken in partners.values())
        ]
        note = mine = expected = None
        if len(left) == len(torch_left) == 1:
            mine, expected = left[0], torch_left[0]
            note = _length(frame.key, mine, expected)
        if not note and frame.reference:
            tensors = leaves(frame.arguments, self.side.is_tensor)
            arguments = [self.side.numpy(tensor) for _, tensor in tensors]
            mine, expected, note = unlike_masks(
                frame.key, arguments, frame.reference.inputs.values()
            )
        caller = self._caller()
        if caller is None or not note:
            return None
        if caller.misfed is not None:
            return caller.misfed  # the caller only hands on what it was given
        comparison = compare_outputs(f"input of {frame.key}", mine, expected, None, self.rule)
        return caller.fault(comparison, self._inside(caller), mine, expected, note)

    def _caller(self) -> Frame | None:
        """The innermost call going on that has a partner."""
        return next((outer for outer in reversed(self._stack) if outer.reference), None)

    def _partners(self, ours: list[Leaf], torch_floats: list[Leaf]) -> Arrays:
        """Path of our argument -> the reference's: by keyword, else in order among equal shapes.

        With as many arguments on both sides, what is passed over stays alone. With another number,
        one that is not equal to its partner gets one that it is equal to, where there is one.
        """
        by_path, partners = dict(torch_floats), {}
        is_paired_off = len(ours) == len(torch_floats)
        rest = list(torch_floats)
        for path, mine in ours:
            by_keyword = by_path.get(path) if path.startswith("1.") else None
            places = [i for i, (_, array) in enumerate(rest) if array.shape == mine.shape]
            if by_keyword is not None and by_keyword.shape == mine.shape:
                partners[path] = by_keyword
            elif places:
                at = places[0]
                partners[path] = rest[at][1]
                rest = ([] if is_paired_off else rest[:at]) + rest[at + 1 :]
        for path, mine in ours if not is_paired_off else ():
            if path in partners and not alike(mine, partners[path], self.rule):
                equal = (a for _, a in torch_floats if alike(mine, a, self.rule))
                partners[path] = next(equal, partners[path])
        return partners

    def _inside(self, frame: Frame, before: Call | None = None) -> list[Leaf]:
        """What the caller had at hand in the reference: its inputs, its layers' outputs and inputs.

        For a layer without a partner, what the layer around it had; of an argument, what was there
        before the call that gets it.
        """
        around = frame if frame.reference else self._caller()
        if around is None:
            return []
        arrays = [
            (f"input {path.partition('.')[2]}", a) for path, a in around.reference.inputs.items()
        ]
        inputs: list[Leaf] = []
        names = self.judge.modules.to_paddle
        for call in self.recording.calls.values():
            if call is before:
                break
            # the nearest call around it that has a partner
            outer_keys = (outer.key for outer in self.recording.around(call) if outer.name in names)
            if next(outer_keys, "") == around.reference.key:
                arrays += [(f"output of {call.key}", a) for a in call.outputs.values()]
                inputs += [(f"input of {call.key}", a) for a in call.inputs.values()]
        arrays += inputs
        return [(name, a) for name, a in arrays if a.dtype.kind in "fiub" and a.size]

    def _after(self, layer: Any, args: tuple, kwargs: dict, output: Any) -> Any:
        frame = self._stack.pop()
        if frame.reference is None:
            return None
        changed: dict[int, np.ndarray] = {}
        for name, torch_path, _, tensor in self._outputs(frame, frame.reference, output):
            expected, mine = frame.reference.outputs[torch_path], self.side.numpy(tensor)
            comparison = compare_outputs(name, mine, expected, None, self.rule)
            if comparison is None:
                continue
            self.comparisons.append(comparison)
            if not comparison.passed:
                fault = frame.fault(comparison, self._inside(frame), mine, expected)
                self.guilty.append(frame.misfed or fault)
            if mine.shape == expected.shape and mine.dtype == expected.dtype:
                changed[id(tensor)] = expected
        if frame.key == ROOT:
            return None
        return replace(
            output,
            self.side.is_tensor,
            lambda _, t: self.side.tensor(changed[id(t)]) if id(t) in changed else t,
        )

    def _outputs(
        self, frame: Frame, reference: Call, output: Any
    ) -> list[tuple[str, str, str, Any]]:
        """(title, PyTorch's path, our path, our tensor) of what a call returns on both sides."""
        tensors = dict(leaves(output, self.side.is_tensor))
        read = reference.outputs.__getitem__, lambda path: self.side.numpy(tensors[path])
        pairs, _, _ = pair_paths(reference.outputs, tensors, read)
        key = frame.key
        return [(f"{key}[{n}]" if n else key, a, b, tensors[b]) for n, a, b in pairs]


def _length(key: str, mine: np.ndarray, expected: np.ndarray) -> str:
    """How an argument of other lengths came about, "" when only the order of the axes differs."""
    if mine.ndim != expected.ndim or sorted(mine.shape) == sorted(expected.shape):
        return ""
    axes = [i for i, (a, b) in enumerate(zip(mine.shape, expected.shape, strict=True)) if a != b]
    text = f"{key} is given a tensor of shape {mine.shape}, in PyTorch of {expected.shape}"
    if len(axes) > 1:
        return text
    axis, counts = axes[0], (mine.shape[axes[0]], expected.shape[axes[0]])
    short, long = (np.moveaxis(a, axis, 0) for a in sorted((mine, expected), key=np.size))
    count, how = abs(counts[0] - counts[1]), "missing" if counts[0] < counts[1] else "too many"
    ends = (long[count:], "first"), (long[: len(short)], "last")
    where = next((word for part, word in ends if np.allclose(part, short)), None)
    if where is None:
        return text
    return f"{text}: the {where} {count} along axis {axis} {'is' if count == 1 else 'are'} {how}"


def unlike_masks(
    key: str, arguments: Iterable[np.ndarray], torch_arguments: Iterable[np.ndarray]
) -> tuple[np.ndarray | None, np.ndarray | None, str]:
    """Find the additive mask of a call and PyTorch's of its shape; what they hide, if it differs.

    Returns:
        (flags of Paddle's, flags of PyTorch's, the sentence), or None, None, "".
    """
    torch_masks = [a for a in torch_arguments if a.dtype.kind == "f" and is_mask(a)]
    masks = [
        a
        for a in arguments
        if len(torch_masks) == 1 and a.shape == torch_masks[0].shape and a.dtype.kind == "f"
    ]
    if len(masks) != 1 or masks[0].max(initial=0.0) > 0:
        return None, None, ""
    a, b = (1.0 * (mask <= LOW) for mask in (masks[0], torch_masks[0]))
    if np.array_equal(a, b):
        return None, None, ""
    counts = f"{a.sum():g} of {a.size} places, in PyTorch {b.sum():g}"
    return a, b, f"{key} is given a mask that hides other places: {counts}"


def floats(leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return the leaves with floating numbers, masks left out."""
    return [(path, a) for path, a in leaves if a.dtype.kind == "f" and not is_mask(a)]


def is_mask(array: np.ndarray) -> bool:
    """Zeros and very low values only: an additive attention mask."""
    low = array <= LOW
    return bool(low.any() and (low | (array == 0)).all())


def merged(guilty: list[Guilty]) -> list[Guilty]:
    """One entry for each layer, its first; further calls of the same layer add nothing."""
    first_by_layer: dict[str, Guilty] = {}
    for entry in guilty:
        first_by_layer.setdefault(entry.place.partition("#")[0], entry)
    return list(first_by_layer.values())
