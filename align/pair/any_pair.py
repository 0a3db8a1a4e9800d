"""The user's pair with the same weights on both sides, in one precision."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch, stepping_paddle, stepping_torch
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.distance import exact_in_float32, peak
from align.judge.drift import Track
from align.judge.judging import Judge
from align.judge.noise_band import Kinds, NoiseBand, kinds_of
from align.judge.rate_curves import Curve
from align.match.mapping import to_paddle
from align.match.name_table import read_table
from align.match.paired_names import ModuleMap, SideNames, pair_names
from align.pair import runs, side_records
from align.pair.isolation import Isolation
from align.pair.pair import Pair, TrainingRuns, live_training, no_scatter, own_tensors, repeated
from align.pair.runs import Models, load, tensors
from align.record.arrays import (
    Arrays,
    BothScores,
    BothWeights,
    TrainingRun,
    cast,
    moved_vectors,
    rounded_state,
)
from align.record.moved_run import MovedRun
from align.record.recording import ROOT, Recording
from align.record.request import Request
from align.record.run_report import code_of, described, origin, source_of
from align.record.stored_arrays import Store

Watch = Callable[[Any], None]
"""Called with the model before the first training step and after every one."""


class Setup:
    """What is settled once for a pair: weights, their mapping, the mapping of the modules.

    Args:
        plan: the request.
        folder: where a draft of the table goes.

    Raises:
        ValueError: names that do not match (a draft is written), or a table with mistakes.
    """

    def __init__(self, plan: Request, folder: Path = Path()) -> None:
        self.plan = plan
        self.references, self.ports = Models(on_torch, plan), Models(on_paddle, plan)
        model = self.references.get(plan.dtypes[0], plan.train)
        layer = self.ports.get(plan.dtypes[0], plan.train)
        source, own = on_torch.entries(model), on_paddle.entries(layer)
        self.entries = source
        found = pair_names(
            SideNames(source, list(on_torch.modules(model))),
            SideNames(own, list(on_paddle.modules(layer))),
            read_table(plan.weights),
            folder,
        )
        self.weights, self.table_note = found.weights, found.note
        self.modules: ModuleMap = found.modules
        self.sides = {
            "paddle": described(type(layer).__name__, source_of(layer), own),
            "torch": described(type(model).__name__, source_of(model), source),
        }
        self.origin = origin((layer, model))
        store = Store()
        self.state = store.keep(tensors(on_torch, model))
        self.moved: list[str] = []
        self.exact = self._exact()
        self.shared: dict[str, Any] = {}
        self.mends: dict[str, Any] = {}  # a framework's own fault -> (model) the block without
        if plan.shake:
            moved = moved_vectors(self.state, source, plan.seed)
            if self.exact:
                moved = cast(moved, plan.dtypes[0], "float32")
            for name, value in moved.items():
                self.state.hold(name, store.put(value))
            self.moved = list(moved)
        stock = set(on_paddle.stock_norms(layer))
        self.stock_norms = [a for a, b in self.modules.to_paddle.items() if b in stock]
        self.references.adapt(lambda built: on_torch.follow_paddle(built, self.stock_norms))

    def about(self) -> dict[str, Any]:
        """The pair, both models, seed, date, command and commits, as the report tells them."""
        return {"pair": self.plan.name, **self.sides, "seed": self.plan.seed, **self.origin}

    def _exact(self) -> bool:
        """Whether a float64 run of the reference is the float32 pair's oracle as well.

        It is where no number is rounded on the way to float32: weights of a checkpoint, inputs,
        labels. The default loss draws float64 numbers of its own.
        """
        plan = self.plan
        if plan.loss is None or not {"float64", "float32"} <= set(plan.dtypes):
            return False
        arrays = itertools.chain(plan.arrays(), self.state.values())
        return all(exact_in_float32(array) for array in arrays)


class AnyPair(Pair):
    """Both sides in one precision, run on demand, each once.

    Args:
        setup: what holds for every precision.
        dtype: "float64" or "float32"; in float32 the float64 run of the reference, on the same
            rounded weights and inputs, is the judge.

    Attributes:
        backward: whether somebody asks for gradients.
    """

    live, backward = True, True

    def __init__(self, setup: Setup, dtype: str) -> None:
        super().__init__(Judge(setup.weights, setup.modules, dtype), setup.plan)
        self.setup, self.alone = setup, "float64" not in setup.plan.dtypes
        whole = set(setup.modules.to_paddle) == {ROOT}  # no layer is compared beside the model
        self._options = {"only": {ROOT} if whole else None}

    def reference_model(self, dtype: str, train: bool) -> Any:
        """The reference with its weights; its norms follow what Paddle's kernels hold in float32.

        There is one of each precision: a second call resets it.
        """
        model = self._reference(dtype, train)
        del self.setup.references.clean[dtype]  # the caller may change it
        return model

    def _reference(self, dtype: str, train: bool) -> Any:
        """The same for those who leave the weights alone."""
        return self._loaded(on_torch, self.setup.references, dtype, train)

    def _loaded(self, side: Any, models: Models, dtype: str, train: bool) -> Any:
        model, setup = models.get(dtype, train), self.setup
        if models.clean.get(dtype) != self.dtype:
            state = setup.state if side is on_torch else to_paddle(setup.weights, setup.state)
            change = functools.partial(rounded_state, dtype=dtype, rounded=self.dtype)
            load(side, model, state, change)
            models.clean[dtype] = self.dtype
        return model

    def our_model(self, train: bool) -> Any:
        """The Paddle model with the reference's weights; there is one, a second call resets it."""
        model = self._ours(train)
        del self.setup.ports.clean[self.dtype]  # the caller may change it
        return model

    def _ours(self, train: bool) -> Any:
        return self._loaded(on_paddle, self.setup.ports, self.dtype, train)

    def _moved_reference(self, moves: MovedRoundings, train: bool) -> Any:
        """The same with moved weights."""
        model = self.setup.references.get(self.dtype, train)
        self.setup.references.clean.pop(self.dtype, None)
        runs.load_moved(on_torch, model, self.setup.state, moves, self.dtype)
        return model

    def run_reference(self, dtype: str | None = None, *, deep: bool = False) -> Recording:
        """The reference now."""
        dtype = dtype or self.dtype
        model = self._reference(dtype, self.plan.train)
        options = {"deep": deep, "backward": self.backward, **self._options}
        return runs.run(on_torch, model, self.plan, dtype, self.dtype, **options)

    @contextlib.contextmanager
    def _moved_pass(self, asked: MovedRun) -> Iterator[Kinds]:
        if not asked.number:
            no_scatter(on_torch, self.reference, self.run_reference())
        moves = MovedRoundings(asked, self.dtype)
        model = self._moved_reference(moves, self.plan.train)
        options = {"moves": moves, "backward": self.backward, **self._options}
        with runs.passed(on_torch, model, self.plan, self.dtype, self.dtype, **options) as found:
            yield kinds_of(found)

    @functools.cached_property
    def band(self) -> NoiseBand:
        """How far rounding alone moves what a pass leaves; measured when it is asked for."""
        return NoiseBand(lambda: kinds_of(self.oracle or self.reference), self._moved_pass)

    @functools.cached_property
    def reference(self) -> Recording:
        """The reference in the pair's precision."""
        return self.share("pass", repeated(on_torch, lambda _: self.run_reference()))

    @functools.cached_property
    def oracle(self) -> Recording | None:
        """The reference in float64, for a pair in float32."""
        if self.dtype == "float64":
            return None
        return self._shared("pass") or self.run_reference("float64")

    def share(self, kind: str, run: Any) -> Any:
        """Keep a float64 run for the float32 pair, where it is the same; returns it."""
        if self.dtype == "float64" and self.setup.exact:
            self.setup.shared[kind] = run
        return run

    def _shared(self, kind: str) -> Any:
        return self.setup.shared.get(kind) if self.dtype == "float32" else None

    @property
    def model(self) -> Any:
        """The Paddle model as the passes use it: whoever changes its weights puts them back."""
        return self._ours(self.plan.train)

    @functools.cached_property
    def ours(self) -> Recording:
        """The Paddle side."""
        return self.run_ours()

    def run_ours(self, *, deep: bool = False, tripled: str = "") -> Recording:
        """The Paddle side now."""
        options = {"deep": deep, "tripled": tripled, "backward": self.backward, **self._options}
        return runs.run(on_paddle, self.model, self.plan, self.dtype, self.dtype, **options)

    def pass_ours(
        self, *, tripled: str = "", backward: bool = True
    ) -> contextlib.AbstractContextManager[Recording]:
        """The Paddle side now, to be judged in a ``with`` block and not kept; see `runs.passed`.

        Args:
            tripled: see there.
            backward: see there.
        """
        options = {"tripled": tripled, "backward": backward, **self._options}
        return runs.passed(on_paddle, self.model, self.plan, self.dtype, self.dtype, **options)

    @functools.cached_property
    def deep(self) -> Recording:
        """The reference with the inputs of every call."""
        return self.run_reference(deep=True)

    def isolate(self) -> Isolation:
        """Inject mode, see `isolation`."""
        isolation = Isolation(on_paddle, self)
        with runs.dropout_off(on_paddle, self.plan.train):
            return isolation.run(self.plan)

    def train_reference(self, dtype: str, watch: Watch | None = None) -> TrainingRun:
        """Train the reference."""

        def run(first: bool) -> TrainingRun:
            given = self.reference_model(dtype, True), self.plan, dtype, self.dtype, None
            own = watch if first else None
            return runs.train(on_torch, *given, own, self.follow)

        return repeated(on_torch, run)

    def trained_once(
        self, dtype: str, pick: Callable[[Any], np.ndarray]
    ) -> tuple[TrainingRun, Track]:
        """The reference's training in a precision, and what ``pick`` takes of its steps."""
        kept = self._shared("training") if dtype == "float64" else None
        if kept is None:
            track = Track(pick)
            kept = self.train_reference(dtype, track.watch), track
        return self.share("training", kept)

    @functools.cached_property
    def follow(self) -> Callable[[Any, Any], None] | None:
        """Lets the reference's optimizer use the numbers that Paddle's kernels hold in float32."""
        model = self.setup.ports.get(self.dtype, True)
        with on_paddle.default_dtype(self.dtype):
            optimizer, _ = on_paddle.make_optimizer(self.plan, model)
        which = stepping_paddle.held_in_float32(optimizer)
        if which is None:  # a class that is not known: it is compared as it is
            return None
        limit = stepping_paddle.clipping_limit(optimizer)
        return lambda theirs, _: stepping_torch.as_paddle(theirs, which, limit)

    def trained_moved(
        self, asked: MovedRun, watch: Watch | None = None
    ) -> contextlib.AbstractContextManager[TrainingRun]:
        """The reference trained with moved roundings, to be looked at in a ``with`` block."""
        moves = MovedRoundings(asked, self.dtype)
        model, dtype = self._moved_reference(moves, True), self.dtype
        options = {"watch": watch, "follow": self.follow}
        return runs.trained(on_torch, model, self.plan, dtype, dtype, moves=moves, **options)

    def trained_ours(
        self, watch: Watch | None = None, plan: Request | None = None, **options: Any
    ) -> contextlib.AbstractContextManager[TrainingRun]:
        """Train the Paddle model for a ``with`` block that judges it; see `runs.trained`."""
        model, dtype = self.our_model(True), self.dtype
        plan = plan or self.plan
        return runs.trained(on_paddle, model, plan, dtype, dtype, watch=watch, **options)

    def trainings(self) -> TrainingRuns:
        """The training runs of both sides; Paddle's when it is asked for."""
        return live_training(self, on_torch, on_paddle)

    def asks(self, step: str) -> bool:
        """Whether "weights", "metric" or "learning_rate" is to be compared."""
        asked = {"weights": "converted", "metric": "metric", "learning_rate": "schedule_steps"}
        return bool(getattr(self.plan, asked[step]))

    def both_weights(self) -> BothWeights:
        """The weights that the user converted, read before any of the reference's is loaded."""
        return side_records.both_weights(self, on_torch, on_paddle)

    def both_scores(self) -> BothScores:
        """Both metrics on the reference's output."""
        return side_records.both_scores(self, on_torch, on_paddle)

    def logged_rates(self) -> Curve | None:
        """The rates that the user's callables return, None for those of the optimizers."""
        return side_records.logged_rates(self.plan)

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Paddle's pass with a fault in the model: what, where, the pass; see `Pair`."""
        if step == "backward":
            for key in (self._without_parameters(), ROOT):
                with self.pass_ours(tripled=key) as found:
                    if _reaches(found, self.ours, self.largest_gradient):
                        yield "gradient x 3 behind a layer", key, found
                        return
            self.judge.note("every gradient behind the output counts as 0")
            return
        with self.nudged() as name:
            if name is not None:
                with self.pass_ours(backward=False) as found:
                    yield "a weight 1 % off", name, found

    def _without_parameters(self) -> str:
        """The last paired call of a layer without parameters; else, or where gradients are left
        out, the model itself."""
        owners = {row.destination.owner for row in self.setup.weights.rows}
        order = [at for at, _ in self.ours.backward_order]
        upstream = [
            key
            for key, own, call in self.judge.taps(self.ours, self.reference)
            if call.grad_outputs and own.name != ROOT
            if not any(owner == own.name or owner.startswith(f"{own.name}.") for owner in owners)
            if key in order[:-1]
        ]
        return upstream[-1] if upstream and not self.unjudged else ROOT

    @contextlib.contextmanager
    def nudged(self) -> Iterator[str | None]:
        """One weight tensor 1 % off in the Paddle model; yields its name, None without any.

        It is the one whose move, by first order, changes the reference's loss most.
        """
        gradients = to_paddle(self.setup.weights, self.reference.gradients)
        held = tensors(on_paddle, self.model)
        effects = {
            name: abs(float(np.vdot(gradient, _one_percent(held[name]))))
            for name, gradient in gradients.items()
            if gradient.size
        }
        name = max(effects, key=effects.__getitem__, default=None)
        if name is None or not effects[name]:
            yield None
            return
        array = held[name]
        on_paddle.load(self.model, {name: array + _one_percent(array)})
        try:
            yield name
        finally:
            on_paddle.load(self.model, {name: array})

    def code(self, key: str) -> str:
        """Where to look, by a call's key."""
        return code_of(on_paddle.modules(self.model), key.partition("#")[0])

    def layer(self, key: str) -> tuple[Any, Any, Arrays]:
        """Paddle layer, PyTorch module and the layer's own tensors, by a call's key."""
        name, partner = self._paired(key)
        model = self.setup.references.get(self.dtype, self.plan.train)
        layer = on_paddle.modules(self.model).get(name)
        own = own_tensors(name, tensors(on_paddle, self.model))
        return layer, on_torch.modules(model).get(partner), own


def _one_percent(array: np.ndarray) -> np.ndarray:
    """What makes a tensor 1 % larger, and of another mean; zeros become 0.01."""
    return 0.01 * (array + (peak(array) or 1.0))


def _reaches(changed: Recording, before: Recording, largest: float) -> bool:
    """Whether gradients of the parameters or the inputs are others, and do not count as 0."""
    for kind in ("gradients", "input_gradients"):
        new, old = getattr(changed, kind), getattr(before, kind)
        size = max((float(np.abs(array).max(initial=0.0)) for array in old.values()), default=0.0)
        moves = (np.abs(array - old[name]).max(initial=0.0) for name, array in new.items())
        if any(move > max(1e-3 * size, 1e-9 * largest) for move in moves):
            return True
    return False
