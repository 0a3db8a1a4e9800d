"""The user's pair with the same weights on both sides, in one precision."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from align.frameworks import on_paddle, on_torch
from align.judge.comparator import peak, pieces
from align.judge.drift import Sample
from align.judge.judging import Judge
from align.judge.noise_band import NoiseBand, kinds_of
from align.judge.update_judging import Curve
from align.match.mapping import to_paddle
from align.match.name_table import read_table
from align.match.paired_names import ModuleMap, SideNames, pair_names
from align.pair.isolation import Isolation
from align.pair.pair import (
    BothSides,
    Pair,
    TrainingRuns,
    compute_rates,
    compute_scores,
    own_tensors,
    scored_output,
    steady_elements,
)
from align.pair.side import (
    Sampler,
    Side,
    kept,
    measured_training,
    refuse_scatter,
    repeated,
    tensors,
)
from align.record.arrays import Arrays, Store, cast, moved_vectors
from align.record.recording import ROOT, MovedRun, Recording, TrainingRun
from align.record.request import Request
from align.record.run_report import code_of, described, origin, source_of


class Setup:
    """What is settled once for a pair: weights, their mapping, the mapping of the modules.

    Attributes:
        about: the pair, both models, seed, date, command and commits, as the report tells them.

    Raises:
        ValueError: names that do not match (a draft is written), or a table with mistakes.
    """

    def __init__(self, plan: Request, folder: Path = Path()) -> None:
        self.plan = plan
        self.torch, self.paddle = Side(on_torch, plan), Side(on_paddle, plan)
        model = self.torch.build(plan.dtypes[0], plan.train)
        layer = self.paddle.build(plan.dtypes[0], plan.train)
        torch_entries, paddle_entries = on_torch.entries(model), on_paddle.entries(layer)
        self.entries = torch_entries
        pairing = pair_names(
            SideNames(torch_entries, list(on_torch.modules(model))),
            SideNames(paddle_entries, list(on_paddle.modules(layer))),
            read_table(plan.weights),
            folder,
        )
        self.weights, self.table_note = pairing.weights, pairing.note
        self.modules: ModuleMap = pairing.modules
        self.about = {
            "pair": plan.name,
            "paddle": described(type(layer).__name__, source_of(layer), paddle_entries),
            "torch": described(type(model).__name__, source_of(model), torch_entries),
            "seed": plan.seed,
            **origin(),
        }
        store = Store()
        self.state = store.keep(tensors(on_torch, model))
        self.moved: list[str] = []
        # a float64 run of the reference is the float32 pair's oracle, too, where no number is
        # rounded on the way to float32; the default loss draws float64 numbers of its own
        in_both = plan.loss is not None and {"float64", "float32"} <= set(plan.dtypes)
        arrays = itertools.chain(plan.arrays(), self.state.values())
        self.shares_float64 = in_both and all(exact_in_float32(array) for array in arrays)
        self.float64_runs: dict[str, Any] = {}
        self.mends: dict[str, Any] = {}  # a framework's own fault -> (model) a block without it
        if plan.shake:
            moved = moved_vectors(self.state, torch_entries, plan.seed)
            if self.shares_float64:
                moved = cast(moved, plan.dtypes[0], "float32")
            for name, value in moved.items():
                self.state.hold(name, store.put(value))
            self.moved = list(moved)
        stock = set(on_paddle.stock_norms(layer))
        self.stock_norms = [a for a, b in self.modules.to_paddle.items() if b in stock]
        self.torch.adapt(lambda built: on_torch.follow_paddle(built, self.stock_norms))
        self.torch.weights = self.state
        paired = self.weights.partners()
        fixed = {entry.name for entry in torch_entries if not entry.trainable}
        self.torch.constants = fixed - set(paired)
        self.paddle.weights = to_paddle(self.weights, self.state)


class AnyPair(Pair):
    """Both sides in one precision, run on demand, each once.

    Args:
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
        self._only = {ROOT} if whole else None

    def reference_model(self, dtype: str, train: bool) -> Any:
        """Return PyTorch's model of a precision with the pair's weights; a caller may change it."""
        return self.setup.torch.model(dtype, self.dtype, train)

    def our_model(self, train: bool) -> Any:
        """Return the Paddle model with PyTorch's weights; a caller may change it."""
        return self.setup.paddle.model(self.dtype, self.dtype, train)

    @property
    def model(self) -> Any:
        """The Paddle model as the passes use it: whoever changes its weights puts them back."""
        return self.setup.paddle.model(self.dtype, self.dtype, self.plan.train, will_change=False)

    def run_reference(self, dtype: str | None = None, *, deep: bool = False) -> Recording:
        """Run PyTorch's model now and return the pass, kept."""
        dtype, side = dtype or self.dtype, self.setup.torch
        return side.record_pass(self.plan, dtype, self.dtype, deep=deep, **self._recorded)

    def pass_ours(self, **options: Any) -> contextlib.AbstractContextManager[Recording]:
        """Run the Paddle model for a ``with`` block that judges the pass; see `Side.open_pass`."""
        plan, dtype = self.plan, self.dtype
        return self.setup.paddle.open_pass(plan, dtype, dtype, only=self._only, **options)

    @property
    def _recorded(self) -> dict[str, Any]:
        return {"backward": self.backward, "only": self._only}

    def _moved_pass(self, asked: MovedRun) -> contextlib.AbstractContextManager[Recording]:
        if not asked.number:  # before the first of them
            refuse_scatter(on_torch, self.reference, self.run_reference())
        side, dtype = self.setup.torch, self.dtype
        return side.open_pass(self.plan, dtype, dtype, asked=asked, **self._recorded)

    @functools.cached_property
    def band(self) -> NoiseBand:
        """How far rounding alone moves what a pass leaves; measured when it is asked for."""
        return NoiseBand(lambda: self.oracle or self.reference, self._moved_pass, kinds_of)

    @functools.cached_property
    def reference(self) -> Recording:
        """The reference in the pair's precision."""
        return self._share("pass", repeated(on_torch, self.run_reference))

    @functools.cached_property
    def oracle(self) -> Recording | None:
        """The reference in float64, for a pair in float32."""
        if self.dtype == "float64":
            return None
        return self._shared("pass") or self.run_reference("float64")

    def _share(self, kind: str, run: Any) -> Any:
        """Keep a run of the float64 pair for the float32 pair, where it is the same; returns it."""
        if self.dtype == "float64" and self.setup.shares_float64:
            self.setup.float64_runs[kind] = run
        return run

    def _shared(self, kind: str) -> Any:
        """The run of the float64 pair, None where the float32 pair has to make it itself."""
        return self.setup.float64_runs.get(kind) if self.dtype == "float32" else None

    @functools.cached_property
    def ours(self) -> Recording:
        """The Paddle side."""
        return self.setup.paddle.record_pass(self.plan, self.dtype, self.dtype, **self._recorded)

    @functools.cached_property
    def deep(self) -> Recording:
        """The reference with the inputs of every call."""
        return self.run_reference(deep=True)

    def isolate(self) -> Isolation:
        """Inject mode, see `isolation`."""
        if self.judge.modules.loose:
            self._pair_containers()
        return Isolation(self).run()

    def _pair_containers(self) -> None:
        """Pair the loose containers that do the same part of the work, unpair the others.

        One does when it returns what its partner does on the same inputs, or when the layer around
        it is right with what the partner returned.
        """
        modules = self.judge.modules
        fed = {**modules.to_paddle, **modules.loose}
        run = Isolation(self, fed).run()
        wrong = {guilty.place.partition("#")[0] for guilty in run.guilty}
        for name, target in modules.loose.items():
            outputs = [c for c in run.comparisons if re.split(r"[#\[]", c.name)[0] == target]
            around = [outer for outer in fed.values() if target.startswith(f"{outer}.")]
            is_right_around = max(around, key=len, default=ROOT) not in wrong
            is_judged = bool(outputs) and all(np.isfinite(c.worst) for c in outputs)  # of one shape
            if is_judged and (is_right_around or all(c.passed for c in outputs)):
                modules.to_paddle[name] = target
                note = modules.unlike.pop(name, "")
                self.judge.notes[:] = [text for text in self.judge.notes if text != note]
            else:
                modules.unpair_loose(name)
                self.judge.note(modules.unlike[name])
        modules.loose = {}

    def train_reference(self, dtype: str, sample: Sampler) -> TrainingRun:
        """The reference's training in a precision, with what ``sample`` takes of its weights."""
        run = self._shared("training") if dtype == "float64" else None
        if run is None:
            run = self.setup.torch.train(self.plan, dtype, self.dtype, sample, self._as_paddle)
        return self._share("training", run)

    @functools.cached_property
    def _as_paddle(self) -> Callable[[Any, Any], None]:
        """Lets the reference's optimizer use the numbers of Paddle's kernels, where they are known.

        A training is compared with it: no setting is rounded that may be held as it is.
        """
        model = self.setup.paddle.build(self.dtype, True)
        with on_paddle.default_dtype(self.dtype):
            optimizer, _ = on_paddle.make_optimizer(self.plan, model)
        which, limit = on_paddle.kernel_numbers(optimizer)
        return lambda torch_optimizer, _: on_torch.as_paddle(torch_optimizer, which or (), limit)

    def trainings(self) -> TrainingRuns:
        """Train PyTorch's model, also in float64; moved and Paddle's runs wait to be asked for."""
        torch, sample = self.setup.torch, Sample(self.setup.entries, self.setup.weights)
        pick = functools.partial(sample.reference, on_torch)
        reference, oracle = self.train_reference(self.dtype, pick), None
        if self.dtype == "float32":
            oracle = self.train_reference("float64", pick)
        centre = oracle or reference
        steady = steady_elements(sample, centre)

        def ours(plan: Request | None = None) -> contextlib.AbstractContextManager[TrainingRun]:
            return self.setup.paddle.open_training(
                plan or self.plan,
                self.dtype,
                self.dtype,
                sample=functools.partial(sample.ours, on_paddle),
            )

        def moved(asked: MovedRun) -> contextlib.AbstractContextManager[TrainingRun]:
            return torch.open_training(
                self.plan, self.dtype, self.dtype, asked=asked, sample=pick, prepare=self._as_paddle
            )

        measure = functools.partial(measured_training, steady=steady)
        band = NoiseBand(lambda: centre, moved, measure)
        return TrainingRuns(reference, oracle, band, ours, steady)

    def both_weights(self) -> BothSides:
        """The weights that the user converted, read before any of PyTorch's is loaded."""
        models = []
        for side in (self.setup.torch, self.setup.paddle):
            model = side.of_pair((self.plan.torch_module, self.plan.paddle_layer))
            # an instance is read as it is, one that is built in the precision of stored weights
            dtype = "float64" if hasattr(model, "state_dict") else "float32"
            models.append(side.framework.prepare(self.plan, dtype, self.plan.train))
        expected = self.setup.weights.to_paddle(on_torch.state(models[0]))
        ours = {n: array for n, array in on_paddle.state(models[1]).items() if n in expected}
        stamps = {}
        if expected:
            stamps = {
                "reference": on_torch.stamp(next(iter(models[0].state_dict().values()))),
                "ours": on_paddle.stamp(next(iter(models[1].state_dict().values()))),
            }
        sides = (
            {n: a.astype("int64" if a.dtype.kind in "biu" else "float64") for n, a in side.items()}
            for side in (ours, expected)
        )
        return BothSides(*sides, stamps)

    def both_scores(self) -> BothSides:
        """Both metrics on PyTorch's output and the user's labels."""
        output = scored_output(self.reference)
        ours, our_stamp = compute_scores(self.setup.paddle, self.plan, output, self.dtype)
        reference, their_stamp = compute_scores(self.setup.torch, self.plan, output, self.dtype)
        stamps = {"ours": our_stamp, "reference": their_stamp}
        return BothSides(ours, reference, stamps)

    def logged_rates(self) -> Curve | None:
        """The rates that the user's callables return, None for those of the optimizers."""
        if self.plan.schedule is None:
            return None
        setup = self.setup
        rates = (compute_rates(side, self.plan) for side in (setup.paddle, setup.torch))
        return Curve(None, (), *rates, only=True)

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Paddle's pass with each fault of "forward" or "backward", planted in the model."""
        if step == "backward":
            for key in (self._without_parameters(), ROOT):
                with self.pass_ours(tripled=key) as recording:
                    if _reaches(recording, self.ours, self.largest_gradient):
                        yield "gradient x 3 behind a layer", key, recording
                        return
            self.judge.note("every gradient behind the output counts as 0")
            return
        with self.nudged() as name:
            if name is not None:
                with self.pass_ours(backward=False) as recording:
                    yield "a weight 1 % off", name, recording

    def _without_parameters(self) -> str:
        """The last paired call of a layer without parameters, ROOT where none has to be right."""
        owners = {row.destination.owner for row in self.setup.weights.rows}
        order = [at for at, _ in self.ours.backward_order]
        upstream = []
        for key, paddle_call, torch_call in self.judge.taps(self.ours, self.reference):
            name = paddle_call.name
            if not torch_call.grad_outputs or name == ROOT or key not in order[:-1]:
                continue
            if not any(owner == name or owner.startswith(f"{name}.") for owner in owners):
                upstream.append(key)
        return upstream[-1] if upstream and not self.unjudged else ROOT

    @contextlib.contextmanager
    def nudged(self) -> Iterator[str | None]:
        """One weight tensor 1 % off in the Paddle model; yields its name, None without any.

        It is the one whose move, by first order, changes the reference's loss most.
        """
        gradients = to_paddle(self.setup.weights, self.reference.gradients)
        live = on_paddle.named(self.model)
        effects = {
            name: abs(float(np.vdot(gradient, _one_percent(on_paddle.view(live[name])))))
            for name, gradient in gradients.items()
            if gradient.size
        }
        name = max(effects, key=effects.__getitem__, default=None)
        if name is None or not effects[name]:
            yield None
            return
        with kept(on_paddle, self.model, {name: live[name]}) as before:
            on_paddle.load(self.model, {name: before[name] + _one_percent(before[name])})
            yield name

    def code(self, key: str) -> str:
        """Class, file and line of a Paddle layer, by a call's key; "" when not known."""
        return code_of(on_paddle.modules(self.model), key.partition("#")[0])

    def layer(self, key: str) -> tuple[Any, Any, Arrays]:
        """Paddle layer, PyTorch module and the layer's own tensors, by a call's key."""
        name, partner = self._paired(key)
        model = self.setup.torch.build(self.dtype, self.plan.train)
        layer = on_paddle.modules(self.model).get(name)
        arrays = own_tensors(name, tensors(on_paddle, self.model))
        return layer, on_torch.modules(model).get(partner), arrays


def exact_in_float32(array: np.ndarray) -> bool:
    """Whether float32 holds every number of an array; whole numbers are not looked at."""
    if array.dtype.kind != "f":
        return True
    with np.errstate(over="ignore"):
        return all(
            np.array_equal(piece, piece.astype(np.float32), equal_nan=True)
            for piece in pieces(array)
        )


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
