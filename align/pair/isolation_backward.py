"""Inject mode for the backward pass: every layer is judged on the reference's own gradients.

One forward pass of the Paddle model does it. Every paired layer gets the reference's inputs, what
it hands on is the reference's output, and each of these tensors is a leaf: the graph falls into one
piece for each call. A piece gets the reference's gradients at its ends, so errors cannot travel
from one layer to the next and every wrong layer is listed. The piece of a container is its own
code: from its inputs and the outputs of the layers inside to the inputs of the layers inside and
its output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.judging import alike, compare_outputs
from align.judge.noise_band import ONE_DIRECTION
from align.pair.any_pair import AnyPair
from align.pair.isolation import Frame, Isolation, WrongGradient, floats
from align.record.arrays import Arrays, Leaf, leaves, replace
from align.record.recording import ROOT, Call
from align.record.results import Tolerance


@dataclass
class _Piece(Frame):
    """The part of the graph that one call's own code makes.

    Attributes:
        starts: (name, leaf, the reference's gradient or None, value): what gradients must reach.
        ends: (tensor, the reference's gradient): what gradients begin at.
        open_ends: (tensor, its leaf in the layer inside): PyTorch has no gradient there.
        seeds: every gradient of the reference at an end, also where our graph is cut.
    """

    starts: list[tuple[str, Any, np.ndarray | None, np.ndarray]] = field(default_factory=list)
    ends: list[tuple[Any, np.ndarray]] = field(default_factory=list)
    open_ends: list[tuple[Any, Any]] = field(default_factory=list)
    seeds: list[np.ndarray] = field(default_factory=list)


class BackwardIsolation(Isolation):
    """Runs the Paddle side once, each call on the reference's inputs and gradients.

    Args:
        tripled: key of a call whose gradient is planted wrong.

    Attributes:
        forward_wrong: calls whose output is wrong already.
        seeds: gradients of the reference at the ends of every call.
    """

    frame = _Piece

    def __init__(self, pair: AnyPair, tripled: str = "") -> None:
        super().__init__(pair)
        self.tripled = tripled
        self.wrong: list[WrongGradient] = []
        self.seeds: dict[str, list[np.ndarray]] = {}
        self.forward_wrong: set[str] = set()
        self._totals: Arrays = {}
        self._makers: dict[str, list[str]] = {}
        self._parameters = self.side.named(pair.model)
        pooled = pair.pooled and pair.dtype == "float64" and not pair.mixed
        self._gradient_rule = bounds.POOLED if pooled else pair.isolated

    def run(self) -> BackwardIsolation:
        """Run; `comparisons` and `wrong` hold the result."""
        self.side.clear(self.model)
        super().run()
        self._judge_parameters()
        self.comparisons.reverse()
        self.wrong.reverse()
        return self

    def _feed(self, piece: _Piece, call: Call) -> tuple[tuple, dict]:
        """Leaves with the reference's inputs; our own arguments are ends of the caller's piece."""
        caller = self._caller()
        ours, torch_floats = self._arguments(piece), floats(call.inputs.items())
        partners = self._partners(ours, torch_floats)
        for path, mine in ours:  # one tensor that we give twice and PyTorch once
            equal = [a for _, a in torch_floats if alike(mine, a, self.rule)]
            if path not in partners and equal:
                partners[path] = equal[0]
        arrived = [(mine, partners[path]) for path, mine in ours if path in partners]
        if caller is not None and not all(alike(*pair, self.rule) for pair in arrived):
            self.forward_wrong.add(caller.key)  # its own code hands a wrong input on
        cut_leaves: dict[str, Any] = {}
        ended_leaders: set[str] = set()
        for path, tensor in leaves(piece.arguments, self.side.is_tensor):
            if path not in partners:
                continue
            source = next(p for p, a in torch_floats if a is partners[path])
            leader = _leader(source, torch_floats, call.grad_inputs)
            expected = call.grad_inputs.get(leader)
            cut_leaves[path] = self.side.leaf(partners[path])
            name = f"gradient at input {leader.partition('.')[2]} of {piece.key}"
            piece.starts.append((name, cut_leaves[path], expected, partners[path]))
            if caller is not None and leader not in ended_leaders:
                self._end(caller, tensor, cut_leaves[path], expected)
            if expected is not None:
                ended_leaders.add(leader)
        return replace(
            piece.arguments,
            self.side.is_tensor,
            lambda path, t: cut_leaves[path].clone() if path in cut_leaves else t,
        )

    def _end(self, caller: _Piece, tensor: Any, leaf: Any, expected: np.ndarray | None) -> None:
        """What a container hands to a layer inside is an end of its own piece."""
        if expected is not None:
            caller.seeds.append(expected)
        if not self.side.needs_gradient(tensor):
            return
        end = tensor.clone()
        if expected is None:
            caller.open_ends.append((end, leaf))
        else:
            caller.ends.append((end, expected))

    def _after(self, layer: Any, args: tuple, kwargs: dict, output: Any) -> Any:
        piece = self._stack.pop()
        call, caller = piece.reference, self._caller()
        if call is None:
            return None
        changed: dict[str, Any] = {}
        for name, path, own_path, tensor in self._outputs(piece, call, output):
            value = call.outputs[path]
            unlike = value.dtype.kind != "f" or tuple(tensor.shape) != value.shape
            if unlike or path in call.padded:
                continue
            gradient = call.grad_outputs.get(path)
            if gradient is not None:
                piece.seeds.append(gradient)
                factor = 3 if self.tripled == piece.key else 1
                if self.side.needs_gradient(tensor):
                    piece.ends.append((tensor, gradient * factor))
            if not alike(self.side.numpy(tensor), value, self.rule):
                self.forward_wrong.add(piece.key)
            leaf = changed[own_path] = self.side.leaf(value)
            if caller is not None:
                caller.starts.append((f"gradient at {name}", leaf, gradient, value))
        self._pull(piece)
        if piece.key == ROOT:
            return None
        return replace(
            output,
            self.side.is_tensor,
            lambda own_path, t: changed[own_path].clone() if own_path in changed else t,
        )

    def _pull(self, piece: _Piece) -> None:
        """Run the backward pass of one piece and judge what arrives, each name once."""
        ends = list(piece.ends)
        for tensor, leaf in piece.open_ends:
            gradient = self.side.gradient(leaf)
            if gradient is not None and gradient.any():
                ends.append((tensor, gradient))
        if ends:
            totals: dict[int, tuple[Any, np.ndarray]] = {}  # a tensor may be returned twice
            for tensor, gradient in ends:
                total = totals.get(id(tensor))
                totals[id(tensor)] = tensor, gradient if total is None else total[1] + gradient
            self.side.pull(*(list(column) for column in zip(*totals.values(), strict=True)))
        for name, parameter in self._parameters.items():
            gradient = self.side.gradient(parameter)
            if gradient is not None:
                total = self._totals.get(name)
                self._totals[name] = gradient if total is None else total + gradient
                self._makers.setdefault(name, []).append(piece.key)
        self.side.clear(self.model)
        self.seeds[piece.key] = piece.seeds
        ours: Arrays = {}
        for name, leaf, _, value in piece.starts:
            gradient = self.side.gradient(leaf)
            ours[name] = ours.get(name, 0) + (
                np.zeros_like(value) if gradient is None else gradient
            )
        for name, _, expected, value in {start[0]: start for start in piece.starts}.values():
            if expected is None and " at input " in name:
                continue  # the caller's piece answers for it
            torch_gradient = np.zeros_like(value) if expected is None else expected
            self._judge(piece.key, name, (ours[name], torch_gradient), value, piece.seeds)

    def _judge(
        self,
        place: str,
        name: str,
        sides: tuple[np.ndarray, np.ndarray],
        value: np.ndarray | None,
        seeds: list[np.ndarray],
    ) -> None:
        mine, expected = sides
        scale = float(np.max([np.abs(seed).max(initial=0) for seed in seeds], initial=0))
        if mine.shape != expected.shape or not np.isfinite(scale):
            return  # what arrives may be no number already
        if not (scale or expected.any() or mine.any()):
            return
        rule = self._rule_for(expected, seeds, scale)
        comparison = compare_outputs(name, mine, expected, None, rule, zero_scale=scale or None)
        if comparison is None:
            return
        self.comparisons.append(comparison)
        if not comparison.passed:
            self.wrong.append(WrongGradient(place, comparison, mine, expected, seeds, value))

    def _rule_for(self, expected: np.ndarray, seeds: list[np.ndarray], scale: float) -> Tolerance:
        """The rule of isolated layers, with room where large gradients cancel to a small one."""
        size = float(np.abs(expected).max(initial=0))
        terms = sum(seed.size for seed in seeds) / max(expected.size, 1)
        lost = float(np.finfo(expected.dtype).eps) * scale * max(terms, 1.0) ** 0.5
        room = ONE_DIRECTION * lost
        if not np.isfinite(size):
            return self._gradient_rule  # fails, whatever the bound
        if not size or room / size > _LARGEST:
            return Tolerance("absolute", float(f"{room:.1g}"), _CANCELS)
        if room / size <= self._gradient_rule.value:
            return self._gradient_rule
        value = float(f"{room / size:.1g}")
        return dataclasses.replace(self._gradient_rule, value=value, why=_CANCELS)

    def _judge_parameters(self) -> None:
        """The parameters' gradients, summed over the pieces that they take part in."""
        expected = self.pair.setup.weights.to_paddle(dict(self.recording.gradients))
        trained = {e.name for e in self.side.entries(self.model) if e.trainable}
        for name, gradient in expected.items():
            if name not in trained:
                continue
            makers = self._makers.get(name, [])
            owner = name.rpartition(".")[0] or ROOT
            owner_calls = [key for key in makers if key.partition("#")[0] == owner]
            place = (owner_calls or makers or [owner])[0]
            seeds = []
            for key in makers or [owner]:
                seeds += self.seeds.get(key, [])
            mine = self._totals.get(name, np.zeros_like(gradient))
            self._judge(place, name, (mine, gradient), None, seeds)


_LARGEST = 0.05  # of its own size: a gradient with a wider bound is judged absolutely
_CANCELS = (
    "large gradients cancel here: what the noise band allows a single number of which one unit in "
    "the last place of the gradients that arrive, by the root of their count, is a draw"
)


def _leader(path: str, inputs: list[Leaf], gradients: Mapping[str, Any]) -> str:
    """The path under which PyTorch counts a tensor: one that is given twice has one gradient."""
    if path in gradients:
        return path
    array = dict(inputs)[path]
    same = (p for p, a in inputs if p in gradients and a.shape == array.shape)
    return next((p for p in same if np.array_equal(dict(inputs)[p], array)), path)
