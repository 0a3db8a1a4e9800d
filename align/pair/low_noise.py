"""How far low precision alone moves a tensor: several runs of PyTorch, each another draw.

One low-precision run is a single draw: where a sum cancels or a ReLU flips, another one is as far
from float64, or ten times. So the reference also runs with weights and inputs moved by up to half a
unit of the format, and the farthest of the runs says what a tensor may be off.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from align.frameworks import on_torch
from align.judge import bounds
from align.judge.judging import noise_of
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.record import precision
from align.record.asked_plan import is_array
from align.record.nested import replace
from align.record.results import Comparison, some

DRAWS = 2
Sizes = dict[str, float]


class Scatter:
    """Distances of PyTorch's moved low-precision runs from the oracle, measured when asked for.

    Args:
        pair: in a low precision.
    """

    def __init__(self, pair: AnyPair) -> None:
        self._pair = pair

    @property
    def forward(self) -> Sizes:
        """Of the taps, by name: largest element."""
        return self._sizes[0]

    @property
    def backward(self) -> Sizes:
        """Of the gradients, by name: L2."""
        return self._sizes[1]

    @functools.cached_property
    def _sizes(self) -> tuple[Sizes, Sizes]:
        pair = self._pair
        forward: Sizes = {}
        backward: Sizes = {}
        for seed in range(DRAWS):
            model = pair.reference_model(pair.dtype, pair.plan.train)
            on_torch.load(model, shifted(on_torch.state(model), pair, seed))
            plan = copy.copy(pair.plan)
            plan.inputs = shifted(plan.cast(pair.dtype, pair.dtype), pair, seed)
            options = {"masks": pair.setup.masks}
            with runs.passed(on_torch, model, plan, pair.dtype, pair.dtype, **options) as moved:
                taps, gradients = noise_of(pair.judge, pair.oracle, moved)
            forward.update({n: max(size, forward.get(n, 0.0)) for n, size in taps.items()})
            backward.update({n: max(size, backward.get(n, 0.0)) for n, size in gradients.items()})
        return forward, backward


def shifted(arrays: Any, pair: AnyPair, seed: int) -> Any:
    """Floating arrays of a structure moved by up to half a unit of the format."""
    rng = np.random.default_rng((pair.plan.seed, seed))
    half = precision.UNIT[pair.dtype] / 2

    def one(_: str, array: Any) -> Any:
        if array.dtype.kind != "f":
            return array
        return (array * (1 + half * rng.uniform(-1, 1, array.shape))).astype(array.dtype)

    return replace(arrays, is_array, one)


def with_noise(
    found: Iterable[Comparison], noise: Mapping[str, float], factor: float, unsure: set[str]
) -> list[Comparison]:
    """Comparisons with the room of all low-precision runs of PyTorch.

    Args:
        found: judged by PyTorch's one run.
        noise: distance of the farthest moved run, by name.
        factor: how many times as far Paddle may be.
        unsure: receives the names of the tensors that no bound below 25 % can judge.

    Returns:
        The comparisons that are left, some with a wider bound.
    """
    kept = []
    for one in found:
        room = factor * noise.get(one.name, 0.0)
        lost = one.tolerance.kind == "absolute" or one.reason.startswith("PyTorch itself is")
        if lost or (room >= bounds.UNCERTAIN and one.tolerance.kind == "oracle"):
            unsure.add(one.name)
            continue
        if one.tolerance.kind == "oracle" and one.bound < room:
            rule = dataclasses.replace(one.tolerance, value=room, floor=room)
            passed = one.worst <= room
            reason = "" if passed else one.reason
            hint = "" if passed else one.hint
            one = dataclasses.replace(
                one, bound=room, tolerance=rule, passed=passed, reason=reason, hint=hint
            )
        kept.append(one)
    return kept


def left_out(unsure: set[str]) -> str:
    """One remark about the tensors that were not judged."""
    if not unsure:
        return "every tensor was judged"
    return f"PyTorch's own runs scatter too far to judge {len(unsure)}: {some(sorted(unsure))}"


def fault(found: list[Comparison], size: float) -> float:
    """What a control plants: the given share, more when even the tightest bound is wider."""
    bounds_held = [c.bound for c in found if c.tolerance.kind == "oracle"]
    return max(size, 2.0 * min(bounds_held, default=0.0))
