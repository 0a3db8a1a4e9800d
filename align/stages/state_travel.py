"""Stage: a run begun on one side is continued on the other, weights and optimizer's state moved.

PyTorch trains for the plan's steps, its state goes to Paddle, both continue; then the other way.
What comes back from a move there and back must be the same bits. A pair has one model of each side
and precision, so that one run is at work at a time; what it leaves waits in a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from align.frameworks import on_paddle, on_torch
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.bounds import Settling
from align.judge.noise_band import Kinds, NoiseBand
from align.pair import runs
from align.pair.any_pair import AnyPair
from align.pair.state_way import MappingWay
from align.record.arrays import Arrays
from align.record.moved_run import MovedRun
from align.record.results import Comparison, ControlResult, Divergence, StepResult, Tolerance
from align.record.stored_arrays import Lazy, Store
from align.stages import state_judging
from align.stages.state_judging import WEIGHTS, Expected, Snapshot, Stretch, faults
from align.weights.optimizer import optimizer_paddle, optimizer_torch_live
from align.weights.optimizer.optimizer_differences import OptimizerMismatchError
from align.weights.optimizer.optimizer_state import OptimizerState, convert

STEPS = 20
"""Steps that both sides continue for."""

EARLY = 4
"""Steps after which a planted fault is judged: most show in the first one."""

LARGEST = 20_000_000
"""Trained numbers from which `why_not` advises against it: some hundred steps would be trained."""

_BACK = state_judging.THERE_AND_BACK
_OPTIONS = Tolerance("exact", 0.0, "the optimizer that continues must have the same options")


@dataclass
class Training:
    """A run that can be interrupted.

    Attributes:
        side: `on_torch` or `on_paddle`.
        model: of that side, with its weights.
        dtype: precision.
        optimizer, schedule: as the plan's factories made them.
    """

    side: Any
    model: Any
    dtype: str
    optimizer: Any = field(init=False)
    schedule: Any = field(init=False)

    def build(self, pair: AnyPair) -> Training:
        """Make optimizer and scheduler anew; returns itself."""
        with self.side.default_dtype(self.dtype):
            self.optimizer, self.schedule = self.side.make_optimizer(pair.plan, self.model)
        return self

    def take(self) -> OptimizerState:
        """The optimizer's state now."""
        if self.side is on_torch:
            return optimizer_torch_live.take(self.optimizer, self.model, self.schedule)
        return optimizer_paddle.take(self.optimizer, self.model)

    def put(self, state: OptimizerState) -> Training:
        """Continue a state, which may be of another precision; returns itself."""
        state = state.astype(self.dtype)
        if self.side is on_torch:
            optimizer_torch_live.put(state, self.optimizer, self.model, self.schedule)
        else:
            optimizer_paddle.put(state, self.optimizer, self.model)
        return self

    def run(
        self,
        pair: AnyPair,
        steps: int,
        moves: MovedRoundings | None = None,
        begin: int | None = None,
    ) -> Stretch:
        """Train on the plan's batches, dropout off; snapshots after `EARLY` steps and at the end.

        Args:
            pair: both sides.
            steps: how many.
            moves: moves every rounding of the reference; None for none.
            begin: steps before these, by default the plan's: with which batch to go on. What goes
                on from those is compared: PyTorch's then computes with the numbers of Paddle's
                kernels, as in training.
        """
        if begin is None and self.side is on_torch and pair.follow is not None:
            pair.follow(self.optimizer, self.model)
        begin = pair.plan.steps if begin is None else begin
        side, found, store = self.side, Stretch(), Store()
        made = (
            side,
            self.model,
            pair.plan,
            self.dtype,
            pair.dtype,
            (self.optimizer, self.schedule),
        )
        with side.default_dtype(self.dtype):
            every = runs.descend(*made, steps=range(begin, begin + steps), moves=moves)
            for step, (loss, rate, found.stamp) in enumerate(every, 1):
                found.losses.append(loss)
                found.rates.append(rate)
                if step in (min(EARLY, steps), steps):
                    found.snapshots[step] = self._snapshot(store)
        return found

    def _snapshot(self, store: Store) -> Snapshot:
        state = self.take()

        def kept(arrays: Arrays) -> Lazy:
            return store.keep({n: a for n, a in arrays.items() if a.dtype.kind == "f" and a.size})

        moments = {kind: kept(arrays) for kind, arrays in state.moments.items()}
        return Snapshot(kept(self.side.state(self.model)), moments, dict(state.steps))


def why_not(pair: AnyPair) -> str:
    """Why the state of a pair's optimizers is not moved, "" when it can be."""
    try:
        reference = _fresh(pair, on_torch)
        names = set(reference.take().names)
        _fresh(pair, on_paddle).take()
    except (ValueError, AttributeError) as error:  # such as a scheduler without state_dict()
        return f"the optimizer's state is not moved: {error}"
    state = on_torch.state(reference.model)
    count = sum(state[name].size for name in names if name in state)
    if count > LARGEST:
        return (
            f"the optimizer's state is not moved: {count / 1e6:.0f} million trained numbers, "
            f"{LARGEST / 1e6:.0f} at most"
        )
    return ""


def travel(pair: AnyPair, steps: int = STEPS) -> tuple[StepResult, list[Divergence]]:
    """Move a training from PyTorch to Paddle and from Paddle to PyTorch, and continue it.

    Args:
        pair: with an optimizer and ``plan.steps`` > 0, in float64 or float32, for which `why_not`
            has nothing to say.
        steps: steps after the move.

    Returns:
        The result (step "optimizer") and where the sides part.
    """
    try:
        return _travel(pair, steps)
    except ValueError as error:
        return _refused(pair, error)


def _travel(pair: AnyPair, steps: int) -> tuple[StepResult, list[Divergence]]:
    mapping = pair.setup.weights
    weights, state, plain = _begun(pair, on_torch, steps)
    own_weights, sent = mapping.to_paddle(weights), convert(state, MappingWay(mapping))
    ours = _resumed(pair, on_paddle, own_weights, sent)
    returned = convert(ours.take(), MappingWay(mapping, "torch"))
    continued = ours.run(pair, steps)
    oracle = _oracle(pair, weights, state, steps)

    @contextlib.contextmanager
    def shaken(asked: MovedRun) -> Iterator[Kinds]:
        moves = MovedRoundings(asked, pair.dtype)
        run = _resumed(pair, on_torch, moves.arrays(weights), state)
        yield state_judging.measured(run.run(pair, steps, moves))

    band = NoiseBand(lambda: state_judging.measured(oracle or plain), shaken)
    expected = Expected(plain, band, oracle)
    settling = state_judging.settling(pair, expected)
    found = [
        *state_judging.compare(pair, continued, expected, "to Paddle"),
        *_back(pair, steps, band),
    ]
    result = StepResult(
        _case(pair),
        "optimizer",
        pair.dtype,
        [*state_judging.identical_bits(returned, state), *settling.settle(found)],
        _controls(pair, own_weights, sent, expected, settling),
        note=f"{pair.plan.steps} steps, a move with moments, counts and place in the schedule, and "
        f"{steps} steps on both sides; in both directions; dropout is off",
        series={"loss": {"paddle": continued.losses, "pytorch": plain.losses}},
        stamps={"ours": continued.stamp, "reference": plain.stamp},
    )
    return result, _divergences(pair, result.failures)


def _case(pair: AnyPair) -> str:
    return f"{pair.plan.name} (state travels)"


def _fresh(pair: AnyPair, side: Any, dtype: str = "", weights: Arrays | None = None) -> Training:
    """A run of one side with the pair's weights, or others, before its first step."""
    dtype = dtype or pair.dtype
    model = pair.our_model(True) if side is on_paddle else pair.reference_model(dtype, True)
    if weights is not None:
        side.load(model, weights)
    return Training(side, model, dtype).build(pair)


def _begun(pair: AnyPair, side: Any, steps: int) -> tuple[Arrays, OptimizerState, Stretch]:
    """Weights and state of one side after the plan's steps, and its own steps after that."""
    begun = _fresh(pair, side)
    begun.run(pair, pair.plan.steps, begin=0)
    weights, state = side.state(begun.model), begun.take()
    return weights, state, begun.run(pair, steps)


def _resumed(
    pair: AnyPair, side: Any, weights: Arrays, state: OptimizerState, dtype: str = ""
) -> Training:
    """A fresh run of one side that continues weights and state."""
    return _fresh(pair, side, dtype, weights).put(state)


def _oracle(pair: AnyPair, weights: Arrays, state: OptimizerState, steps: int) -> Stretch | None:
    """In float32, PyTorch's continuation in float64."""
    if pair.dtype == "float64":
        return None
    return _resumed(pair, on_torch, weights, state, "float64").run(pair, steps)


def _back(pair: AnyPair, steps: int, band: NoiseBand) -> Iterator[Comparison]:
    """A run begun in Paddle, continued in PyTorch and in Paddle; the band of the way there."""
    mapping = pair.setup.weights
    own_weights, own_state, continued = _begun(pair, on_paddle, steps)
    weights = mapping.to_torch(own_weights)
    state = convert(own_state, MappingWay(mapping, "torch"))
    plain = _resumed(pair, on_torch, weights, state).run(pair, steps)
    expected = Expected(plain, band, _oracle(pair, weights, state, steps))
    yield from state_judging.compare(pair, continued, expected, "to PyTorch")


def _controls(
    pair: AnyPair,
    weights: Arrays,
    state: OptimizerState,
    expected: Expected,
    settling: Settling,
) -> list[ControlResult]:
    """Faults of the move, each planted and judged by the stage's own comparison."""
    found = []
    early = min(EARLY, expected.plain.length)
    for fault in faults(pair.setup.weights, state, expected.plain.rates, early):
        run = _resumed(pair, on_paddle, *fault.plant(weights, state))
        for _ in range(fault.late):
            run.schedule.step()
        compared = state_judging.compare(pair, run.run(pair, fault.length), expected, "to Paddle")
        failed = next((c for c in settling.planted(compared) if not c.passed), None)
        detail = f"{failed.name}: {failed.reason}" if failed else "nothing failed"
        located = failed.name if failed else ""
        found.append(ControlResult(fault.name, failed is not None, detail, located))
    return found


def _refused(pair: AnyPair, error: ValueError) -> tuple[StepResult, list[Divergence]]:
    """The optimizers as they were built do not continue one another."""
    place = "optimizer"
    if isinstance(error, OptimizerMismatchError):
        names = error.differences[0].names
        rows = pair.setup.weights.rows
        trained = {row.destination.name for row in rows if row.destination.trainable}
        place = names[0] if len(names) < len(trained) else place
    reason = str(error)
    failed = Comparison.stated("(options)", _OPTIONS, reason)
    result = StepResult(_case(pair), "optimizer", pair.dtype, [failed])
    return result, [Divergence("(options)", place, "optimizer", pair.dtype, reason, reason)]


def _divergences(pair: AnyPair, failures: Sequence[Comparison]) -> list[Divergence]:
    """One record: the first difference, at a weight where most others are right."""
    if not failures:
        return []
    first, mapping = failures[0], pair.setup.weights
    titles = [c.name.partition(": ")[2] for c in failures if c.name.partition(":")[0] == _BACK]
    targets = MappingWay(mapping).targets()
    wrong = [t for title in titles for t in targets.get(title.rpartition("/")[0], ())]
    if not wrong:  # the move is right: what moved differently afterwards
        wrong = [c.name.rpartition("/")[2] for c in failures if f": {WEIGHTS}/" in c.name]
    few = wrong and len(set(wrong)) <= 0.5 * len(set(mapping.paddle_names.values()))
    place = wrong[0] if few else "optimizer"
    return [Divergence(first.name, place, "optimizer", pair.dtype, first.reason, first.hint)]
