"""Two recordings in, judged comparisons out: taps, gradients of taps and parameters, buffers.

Names are Paddle's, because the Paddle side is the one to mend. Taps are taken in the order in which
the reference finished them, their gradients in the order in which the reference received them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from align.anypair import bounds
from align.anypair.mapping import WeightMapping
from align.anypair.module_map import ModuleMap
from align.anypair.nested import pair_leaves
from align.anypair.recording import ROOT, Call, Recording
from align.comparator import compare_arrays, compare_mappings
from align.distance import absolute_difference, norm_of
from align.results import Comparison
from align.sides import Arrays
from align.tolerance import Tolerance

MASK = 1e30  # a value as large as this stands for minus infinity in a mask


@dataclass
class Judge:
    """What both sides are called on the other.

    Attributes:
        weights: the mapping of the tensors.
        modules: the mapping of the modules.
        dtype: precision of the pair.
        pooled: Paddle's model has an average pool.
        notes: what could not be compared and why, in plain words.
    """

    weights: WeightMapping
    modules: ModuleMap
    dtype: str
    pooled: bool = False
    notes: list[str] = field(default_factory=list)

    def taps(self, ours: Recording, reference: Recording) -> Iterator[tuple[str, Call, Call]]:
        """(Paddle's key, our call, the reference's call) in the reference's order."""
        counts, own_counts = reference.counts(), ours.counts()
        for call in reference.calls.values():
            target = self.modules.to_paddle.get(call.name)
            if target is None:
                continue
            if counts[call.name] != own_counts.get(target, 0):
                self.note(
                    f"{target}: called {own_counts.get(target, 0)} times in Paddle, "
                    f"{counts[call.name]} times in PyTorch: its calls are not compared"
                )
                continue
            own = ours.calls[Call(target, call.number).key]
            yield own.key, own, call

    def note(self, text: str) -> None:
        """Remember a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def forward(
        self,
        ours: Recording,
        reference: Recording,
        oracle: Recording | None,
        noise: Mapping[str, float] | None,
    ) -> list[Comparison]:
        """Judge every tap; both orders of trainable and tied parameters first."""
        rule = bounds.rules(bounds.FLOORS["forward", self.dtype], noise)
        found = self._structure()
        for key, own, call in self.taps(ours, reference):
            judge = None if oracle is None else dict(oracle.calls[call.key].outputs)
            pairs, left, own_left = pair_leaves(call.outputs, own.outputs)
            paths = [path for path, _ in call.outputs]
            for i, (label, b, a) in enumerate(pairs):
                name = f"{key}[{label}]" if label else key
                o = None if judge is None else judge[label if label in judge else paths[i]]
                comparison = compare_outputs(name, a, b, o, rule(name))
                if comparison is not None:
                    found.append(comparison)
            if (left or own_left) and key == ROOT:
                found.append(_missing_outputs(left, own_left))
            elif left or own_left:
                self.note(f"{key}: outputs without a partner: {', '.join([*left, *own_left])}")
        return found

    def _structure(self) -> list[Comparison]:
        tied, trained = self.weights.differing()
        return [
            _flags("tied parameters", tied),
            _flags("trainable parameters", trained),
        ]

    def backward(
        self,
        ours: Recording,
        reference: Recording,
        oracle: Recording | None,
        noise: Mapping[str, float] | None,
    ) -> list[Comparison]:
        """Judge the loss, the taps' gradients in backward order, then parameters and inputs."""
        base = bounds.FLOORS["backward", self.dtype]
        if self.pooled and self.dtype == "float64":
            base = bounds.POOLED
        order, expected, judged, own = self._gradient_taps(ours, reference, oracle)
        scale = _largest([*expected.values(), *reference.gradients.values()])
        loss = compare_arrays(
            "loss",
            ours.loss,
            reference.loss,
            bounds.rules(bounds.FLOORS["forward", self.dtype], noise)("loss"),
            oracle=None if oracle is None else oracle.loss,
            zero_scale=scale,
        )
        pairs = [(own, expected, judged, order)]
        for prefix, pick in (("", "gradients"), ("input ", "input_gradients")):
            held = [_named(getattr(r, pick), prefix) for r in (ours, reference)]
            third = None if oracle is None else _named(getattr(oracle, pick), prefix)
            if not prefix:
                held[1] = self.weights.to_paddle(held[1])
                third = None if third is None else self.weights.to_paddle(third)
            pairs.append((*held, third, None))
        found = [loss]
        for own, expected, judged, order in pairs:
            if own or expected:
                rule = bounds.gradient_rules(base, noise, expected, judged, scale, self.dtype)
                found += compare_mappings(
                    own, expected, rule, oracle=judged, order=order, zero_scale=scale
                )
        return found

    def _gradient_taps(self, ours: Recording, reference: Recording, oracle: Recording | None):
        own: Arrays = {}
        expected: Arrays = {}
        judged: Arrays = {}
        place: dict[tuple[str, str], str] = {}
        for key, mine, call in self.taps(ours, reference):
            pairs, _, _ = pair_leaves(call.outputs, mine.outputs)
            for i, (label, _, _) in enumerate(pairs):
                name = f"gradient at {key}[{label}]" if label else f"gradient at {key}"
                path = label if label in dict(call.outputs) else call.outputs[i][0]
                ours_path = label if label in dict(mine.outputs) else mine.outputs[i][0]
                if path in call.grad_outputs:
                    expected[name] = call.grad_outputs[path]
                    place[call.key, path] = name
                    if oracle is not None:
                        judged[name] = oracle.calls[call.key].grad_outputs[path]
                if ours_path in mine.grad_outputs:
                    own[name] = mine.grad_outputs[ours_path]
        absent = sorted(set(own) ^ set(expected))
        for name in absent:  # no gradient asked for on one side: says nothing when all others agree
            self.note(f"{name}: on one side only, not compared")
            own.pop(name, None), expected.pop(name, None), judged.pop(name, None)
        order = [place[at] for at in reference.backward_order if place.get(at) in expected]
        return order, expected, judged if oracle is not None else None, own

    def buffers(
        self,
        ours: Recording,
        reference: Recording,
        oracle: Recording | None,
        noise: Mapping[str, float] | None,
    ) -> list[Comparison]:
        """Judge the tensors that training mode moves without an optimizer (running statistics)."""
        names = {
            self.weights.torch_names[row.source.name]
            for row in self.weights.rows
            if row.source.buffer and row.source.dtype.startswith("float")
        }
        if not names:
            return []
        held = [
            None if r is None else self.weights.to_paddle({n: r.state[n] for n in names})
            for r in (reference, oracle)
        ]
        own = {name: ours.state[name] for name in held[0]}
        rule = bounds.rules(bounds.STATISTICS[self.dtype], noise)
        return compare_mappings(own, held[0], rule, oracle=held[1])


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
    if reference.dtype.kind in "iub" and ours.dtype.kind in "iub":
        held = (np.asarray(a).astype(np.int64) for a in (ours, reference))
        return compare_arrays(name, *held, bounds.EXACT)
    arrays = without_masks(ours, reference, oracle)
    return compare_arrays(name, *arrays[:2], rule, oracle=arrays[2], zero_scale=zero_scale)


def without_masks(*arrays: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
    """Zeros in the places where every side holds a huge value of the same sign."""
    held = [a for a in arrays if a is not None]
    if len({a.shape for a in held}) != 1 or any(a.dtype.kind != "f" for a in held):
        return arrays
    huge = [np.abs(a) > MASK for a in held]
    everywhere = np.logical_and.reduce(huge)
    for a in held[1:]:
        everywhere &= np.sign(a) == np.sign(held[0])
    if not everywhere.any():
        return arrays
    return tuple(None if a is None else np.where(everywhere, a.dtype.type(0), a) for a in arrays)


def noise_of(
    judge: Judge, plain: Recording, moved: Recording
) -> tuple[dict[str, float], dict[str, float]]:
    """How far one unit in the last place moves each tap, and each gradient, of the reference."""
    forward: dict[str, float] = {}
    backward: dict[str, float] = {"loss": _apart(moved.loss, plain.loss, "max")}
    for call in plain.calls.values():
        target = judge.modules.to_paddle.get(call.name)
        other = moved.calls.get(call.key)
        if target is None or other is None:
            continue
        key = dataclasses.replace(call, name=target).key
        for (path, a), (_, b) in zip(other.outputs, call.outputs, strict=False):
            size = _apart(a, b, "max")
            for name in (key, f"{key}[{path}]"):
                forward[name] = max(size, forward.get(name, 0.0))
        for path, b in call.grad_outputs.items():
            if path in other.grad_outputs:
                size = _apart(other.grad_outputs[path], b, "l2")
                for name in (f"gradient at {key}", f"gradient at {key}[{path}]"):
                    backward[name] = max(size, backward.get(name, 0.0))
    both = judge.weights.to_paddle(plain.gradients), judge.weights.to_paddle(moved.gradients)
    backward.update({n: _apart(both[1][n], b, "l2") for n, b in both[0].items() if n in both[1]})
    for path, b in plain.input_gradients.items():
        backward[f"input {path}"] = _apart(moved.input_gradients[path], b, "l2")
    return forward, backward


def _apart(a: np.ndarray, b: np.ndarray, norm: str) -> float:
    if a.shape != b.shape or a.size == 0 or a.dtype.kind != "f":
        return 0.0
    a, b, _ = without_masks(a, b, None)
    scale = norm_of(b, norm)
    return norm_of(absolute_difference(a, b), norm) / scale if scale > 0 else 0.0


def _named(arrays: Arrays, prefix: str) -> Arrays:
    return {f"{prefix}{name}": value for name, value in arrays.items()}


def _largest(arrays: list[np.ndarray]) -> float:
    sizes = [float(np.abs(a).max()) for a in arrays if a.size]
    return max([size for size in sizes if np.isfinite(size)], default=0.0) or 1.0


def _flags(title: str, wrong: list[str]) -> Comparison:
    """One exact comparison that names what differs."""
    name = f"({title}{': ' + ', '.join(wrong) if wrong else ''})"
    return compare_arrays(name, np.asarray([len(wrong)]), np.asarray([0]), bounds.EXACT)


def _missing_outputs(left: list[str], own_left: list[str]) -> Comparison:
    name = f"(outputs of the model: {len(left)} more in PyTorch, {len(own_left)} more in Paddle)"
    counts = np.asarray([len(own_left)]), np.asarray([len(left)])
    if len(left) == len(own_left):
        counts = np.asarray([1]), np.asarray([0])
    return compare_arrays(name, *counts, bounds.EXACT)
