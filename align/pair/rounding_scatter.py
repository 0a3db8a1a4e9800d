"""A float32 result that failed, judged again by runs of PyTorch with every rounding moved.

One run that is moved by a unit in the last place is a single draw. Where a tensor is badly
conditioned (a batch norm over two nearly equal values) another draw is as far off, or a hundred
times. So after a failure RUNS further runs are made. A tensor that even they cannot judge is left
out of float32 with a note, and so are the gradients when the forward pass has such a tensor; the
pair in float64 judges them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from align.judge import bounds
from align.judge.judging import apart, noise_of
from align.judge.noise_band import RUNS
from align.pair import runs
from align.pair.pair import Pair
from align.record.recording import Recording
from align.record.results import Comparison, some

Sizes = dict[str, float]


class RoundingScatter:
    """What the moved runs say, once a float32 comparison has failed.

    Args:
        pair: in float64 nothing is measured, nor where no model is to run again.
        kind: 0 for taps and buffers, 1 for gradients.
    """

    def __init__(self, pair: Pair, kind: int) -> None:
        self._pair, self._kind = pair, kind
        self._sizes: Sizes = {}
        self.unsure: set[str] = set()

    def settle(self, found: list[Comparison]) -> list[Comparison]:
        """The clean comparisons, judged again when one failed in float32.

        Either rounding explains every failure, or there is a fault and none is forgiven.
        """
        measured = self._pair.live and self._pair.dtype == "float32"
        if not measured or all(one.passed for one in found):
            return found
        self._sizes = scatter(self._pair)[self._kind]
        again = list(self.judged(found))
        if all(one.passed for one in again):
            return again
        self._sizes = {}
        self.unsure.clear()
        return found

    def judged(self, found: Iterable[Comparison]) -> Iterator[Comparison]:
        """Comparisons; where the moved runs decide, the failed ones by them or not at all."""
        for one in found:
            if one.passed or not self._sizes:
                yield one
            else:
                yield from with_noise([one], self._sizes, bounds.NOISE_FACTOR, self.unsure)

    def leaves_out(self, name: str) -> bool:
        """Whether rounding alone decides about a tensor."""
        return bounds.NOISE_FACTOR * self._sizes.get(name, 0.0) >= bounds.UNCERTAIN

    @property
    def note(self) -> str:
        """What was left out, "" for nothing."""
        return left_out(self.unsure) if self.unsure else ""


def with_noise(
    found: Iterable[Comparison], noise: Mapping[str, float], factor: float, unsure: set[str]
) -> list[Comparison]:
    """Comparisons with the room of all moved runs of PyTorch.

    Args:
        found: judged by PyTorch's one run.
        noise: distance of the farthest moved run, by name.
        factor: how many times as far Paddle may be.
        unsure: receives the names of the tensors that no bound below 25 % can judge.

    Returns:
        The comparisons that are left, some with a wider bound. Another shape and a value that is
        not finite stay what they are: no rounding makes them.
    """
    kept = []
    for one in found:
        room = factor * noise.get(one.name, 0.0)
        lost = one.tolerance.kind == "absolute" or one.reason.startswith("PyTorch itself is")
        if not np.isfinite(one.worst) and not lost:
            kept.append(one)
            continue
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


def scatter(pair: Any) -> tuple[Sizes, Sizes]:
    """Root mean square distances of the moved runs from the plain one: of taps, of gradients."""
    # comparing files of two machines needs no framework
    from align.frameworks import on_torch
    from align.frameworks.moved_roundings import MovedRoundings

    plain, plan = pair.reference, pair.plan
    squares: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for seed in range(RUNS):
        model = pair.reference_model(pair.dtype, plan.train)
        options = {"noise": np.random.default_rng((plan.seed, seed)), "masks": pair.setup.masks}
        with contextlib.ExitStack() as stack:
            with MovedRoundings(seed):
                moved = stack.enter_context(
                    runs.passed(on_torch, model, plan, pair.dtype, pair.dtype, **options)
                )
            found = noise_of(pair.judge, plain, moved)
            found[0].update(_of_buffers(pair, plain, moved))
            for held, sizes in zip(squares, found, strict=True):
                for name, size in sizes.items():
                    held.setdefault(name, []).append(size)
    forward, backward = (
        {name: float(np.sqrt(np.mean(np.square(sizes)))) for name, sizes in held.items()}
        for held in squares
    )
    return forward, backward


def _of_buffers(pair: Pair, plain: Recording, moved: Recording) -> Sizes:
    """How far the moved run's running statistics are from the plain one's."""
    b, a = (pair.judge.statistics(recording) for recording in (plain, moved))
    return {name: apart(a[name], b[name], "max") for name in b}
