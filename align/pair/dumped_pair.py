"""Two dumps of a pair, read in the place of two live models, and the layers that are wrong in them.

No model runs here. Both sides recorded what every layer was given: a layer is wrong when it was
given the right and returned the wrong, and nothing inside it did; then its own code is.
`align.pair.isolation` and `align.pair.isolation_backward` find the same by feeding a live model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from types import SimpleNamespace

import numpy as np

from align.judge import bounds, drift
from align.judge.judging import Judge, alike, compare_outputs, largest
from align.judge.noise_band import NoiseBand
from align.judge.update_judging import Curve
from align.match.mapping import to_paddle
from align.match.name_table import Table
from align.match.paired_names import settled
from align.pair.isolation import Guilty, WrongGradient, is_mask, unlike_masks
from align.pair.pair import METRIC, BothSides, Pair, TrainingRuns, own_tensors, steady_elements
from align.pair.side import Run
from align.record.arrays import Arrays, Leaf
from align.record.dump_files import NOISE, ORACLE, TRAINING_NOISE, Dump, Module
from align.record.recording import Call, Recording
from align.record.results import Comparison, Step, Tolerance


class Names:
    """What is settled once for two dumps.

    Raises:
        ValueError: names that do not match.
    """

    def __init__(self, torch: Dump, paddle: Dump, table: Table) -> None:
        self.torch, self.paddle = torch, paddle
        paired = settled(torch.meta, paddle.meta, table)
        self.weights, self.modules, self.note = paired.weights, paired.modules, paired.note
        self.state, self.paddle_state = torch.weights(), paddle.weights()
        self.paddle_modules = {module.name: module for module in paddle.meta.modules}
        self.torch_modules = {module.name: module for module in torch.meta.modules}

    def wrong_norms(self) -> list[str]:
        """PyTorch's norms that computed with other numbers than their partner's kernel does."""
        stock = set(self.paddle.meta.stock_norms)
        return [
            name
            for name, followed in self.torch.meta.norms.items()
            if name in self.modules.to_paddle
            and bool(followed) != (self.modules.to_paddle[name] in stock)
        ]


class DumpPair(Pair):
    """Both sides in one precision, read when they are asked for."""

    live = False

    def __init__(self, names: Names, dtype: str, alone: bool = False) -> None:
        judge = Judge(names.weights, names.modules, dtype)
        super().__init__(judge, names.torch.meta)
        self.setup, self.alone = names, alone

    @functools.cached_property
    def ours(self) -> Recording:
        """Paddle's pass."""
        return self.setup.paddle.recording(self.dtype)

    @functools.cached_property
    def reference(self) -> Recording:
        """PyTorch's pass."""
        return self.setup.torch.recording(self.dtype)

    @functools.cached_property
    def oracle(self) -> Recording | None:
        """PyTorch's float64 pass on the same rounded numbers; None for a pair in float64."""
        return self._oracle(self.setup.torch.recording)

    def _oracle(self, read: Callable[[str], Run]) -> Run | None:
        return None if self.dtype == "float64" else read(f"{self.dtype}/{ORACLE}")

    @functools.cached_property
    def band(self) -> NoiseBand:
        """How far rounding alone moves what PyTorch's pass leaves, as it was measured there."""
        return NoiseBand.stored(self.setup.torch.tensors(f"{self.dtype}/{NOISE}"))

    def trainings(self) -> TrainingRuns:
        """The training runs of both sides.

        Raises:
            ValueError: the drift of both dumps is not of the same elements.
        """
        torch, dtype = self.setup.torch, self.dtype
        reference, oracle = torch.training(dtype), self._oracle(torch.training)
        ours = self.setup.paddle.training(dtype)
        sample = drift.Sample(self.plan.entries, self.setup.weights)
        shape = self.plan.steps + 1, sample.size
        if any(np.shape(run.samples) != shape for run in (ours, reference)):
            raise ValueError(f"{dtype}: the drift of both dumps is not of the same elements")
        band = NoiseBand.stored(torch.tensors(f"{dtype}/{TRAINING_NOISE}"))
        opened = functools.partial(contextlib.nullcontext, ours)
        steady = steady_elements(sample, oracle or reference)
        return TrainingRuns(reference, oracle, band, opened, steady)

    def asks(self, step: Step) -> bool:
        """Whether a step is to be compared; what needs no precision, where a dump holds it."""
        return any(self._numbers(step.name)) if step.once else super().asks(step)

    def _numbers(self, kind: str) -> list[dict[str, list[float]]]:
        """What each side computed of a metric or a schedule, Paddle first."""
        return [dump.numbers().get(kind, {}) for dump in (self.setup.paddle, self.setup.torch)]

    def both_scores(self) -> BothSides:
        """Both metrics as each side computed them."""
        ours, reference = (
            {n if n == METRIC else f"{METRIC} {n}": values[0] for n, values in side.items()}
            for side in self._numbers("metric")
        )
        torch, paddle = self.setup.torch, self.setup.paddle
        stamps = {"ours": paddle.meta.framework, "reference": torch.meta.framework}
        return BothSides(ours, reference, stamps)

    def logged_rates(self) -> Curve:
        """Both schedules as each side computed them."""
        rates = [side.get("schedule", ()) for side in self._numbers("learning_rate")]
        return Curve(None, (), *(np.asarray(side, float) for side in rates), only=True)

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Paddle's pass with each fault of "forward" or "backward", planted in its arrays."""
        ours = self.ours
        if step == "forward":
            taps = self.judge.taps(ours, self.reference)
            key = next((key for key, call, _ in taps if call.floating()), None)
            if key is not None:
                at = ours.calls[key].floating()[0]
                value = ours.calls[key].outputs[at]
                off = value + 0.01 * np.abs(value).max().astype(value.dtype)
                yield "a layer 1 % off", key, ours.with_output(key, at, off)
            return
        sizes = {n: float(np.abs(a).max()) for n, a in ours.gradients.items() if a.size}
        name = max(sizes, key=sizes.__getitem__, default="")
        if name and sizes[name] > 0:
            value = ours.gradients[name]
            poisoned = np.array(value)
            poisoned.reshape(-1)[0] = np.nan
            for title, array in (("gradient x 3", value * 3), ("one NaN", poisoned)):
                changed = {**ours.gradients, name: array}
                yield title, name, dataclasses.replace(ours, gradients=changed)

    def code(self, key: str) -> str:
        """Where to look, by a call's key."""
        module = self.setup.paddle_modules.get(key.partition("#")[0])
        return module.source if module is not None else ""

    def layer(self, key: str) -> tuple[object, object, Arrays]:
        """Stand-ins for the Paddle layer and its partner, and the layer's own tensors."""
        (name, partner), setup = self._paired(key), self.setup
        layer, module = setup.paddle_modules.get(name), setup.torch_modules.get(partner)
        return _stand_in(layer), _stand_in(module), own_tensors(name, setup.paddle_state)


def _stand_in(module: Module | None) -> object:
    """An object whose class has a module's name and which has its plain attributes."""
    if module is None:
        return None
    return type(module.kind, (SimpleNamespace,), {})(**dict(module.settings))


Gradients = list[tuple[np.ndarray, np.ndarray]]
ROUGH = Tolerance("scaled", 1e-3, "to find a place in float32, not to judge it")


def wrong_output(pair: DumpPair, failed: Collection[Comparison]) -> list[Guilty]:
    """Find the first call that was given the right and returned the wrong, none deeper.

    Around a call that failed by less than its rule for one layer alone no call is accused: it may
    only add up what comes from inside.
    """
    rule, names = bounds.ISOLATED[pair.dtype], {c.name for c in failed}
    nearly_right: list[str] = []
    for key, paddle_call, torch_call in pair.judge.taps(pair.ours, pair.reference):
        taps = {key, *(f"{key}[{path}]" for path in (*paddle_call.outputs, *torch_call.outputs))}
        recorded = paddle_call.inputs and torch_call.inputs and taps & names
        if not (recorded and _same_inputs(paddle_call, torch_call, rule)):
            continue
        if any(_is_inside(inner, key, pair.ours) for inner in nearly_right):
            continue
        nearly_right.append(key)  # unless one of its outputs is wrong by the rule
        expected = torch_call.outputs.values()
        for (path, a), b in zip(paddle_call.outputs.items(), expected, strict=False):
            comparison = compare_outputs(key, a, b, None, rule)
            if comparison is not None and not comparison.passed:
                shown_at, near = f"{key}[{path}]" if path else key, _near(pair, torch_call)
                return [Guilty(key, comparison, shown_at, near, a, b)]
    return []


def _near(pair: DumpPair, torch_call: Call) -> list[Leaf]:
    """The floating inputs of a call of the reference, and what the layers in it return."""
    arrays = [(f"input {p.partition('.')[2]}", x) for p, x in torch_call.inputs.items()]
    for call in pair.reference.calls.values():
        if call.parent == torch_call.key:
            arrays += [(f"output of {call.key}", x) for x in call.outputs.values()]
    return [(name, x) for name, x in arrays if x.dtype.kind == "f"]


def _same_inputs(paddle_call: Call, torch_call: Call, rule: Tolerance) -> bool:
    """Whether every input has an equal one, whatever the order of the parameters.

    Masks that hide the same are left out (their conventions differ), and so are whole numbers when
    PyTorch's layer is given none.
    """
    if unlike_masks("", paddle_call.inputs.values(), torch_call.inputs.values())[2]:
        return False
    for kinds in ("f", "iu"):
        b, a = (
            [x for x in call.inputs.values() if x.dtype.kind in kinds and x.size and not is_mask(x)]
            for call in (torch_call, paddle_call)
        )
        if b and not all(any(alike(x, y, rule) for y in b) for x in a):
            return False
    return True


def wrong_gradient(pair: DumpPair) -> list[WrongGradient]:
    """Find the deepest call that gets a right gradient and hands on a wrong one, the first."""
    rule = bounds.backward(pair.dtype, pair.pooled) if pair.dtype == "float64" else ROUGH
    taps = list(pair.judge.taps(pair.ours, pair.reference))
    scale = largest(itertools.chain(*(call.grad_outputs.values() for _, _, call in taps)))
    expected = to_paddle(pair.setup.weights, pair.reference.gradients)
    wrong: dict[str, WrongGradient] = {}
    for key, paddle_call, torch_call in reversed(taps):
        arriving = _partners(paddle_call.grad_outputs, torch_call.grad_outputs)
        if _first_bad(arriving, rule, scale) is not None:
            continue
        leaving = _partners(paddle_call.grad_inputs, torch_call.grad_inputs)
        mine = own_tensors(paddle_call.name, pair.ours.gradients)
        reference = own_tensors(paddle_call.name, expected)
        parameters = [(mine[name], reference[name]) for name in reference if name in mine]
        of_input = _first_bad(leaving, rule, scale)
        bad = of_input or _first_bad(parameters, rule, scale)
        if bad is not None:
            comparison, a, b = bad
            inputs = [x for x in torch_call.inputs.values() if x.shape == b.shape]
            value = inputs[0] if of_input and inputs else None
            seeds = list(torch_call.grad_outputs.values())
            wrong[key] = WrongGradient(key, comparison, a, b, seeds, value)
    for key, gradient in wrong.items():
        if not any(_is_inside(other, key, pair.ours) for other in wrong):
            return [gradient]
    return []


def _partners(
    paddle_gradients: Mapping[str, np.ndarray], torch_gradients: Mapping[str, np.ndarray]
) -> Gradients:
    """Gradients that belong together: by path, else in order."""
    if set(paddle_gradients) & set(torch_gradients):
        return [
            (paddle_gradients[path], torch_gradients[path])
            for path in torch_gradients
            if path in paddle_gradients
        ]
    return list(zip(paddle_gradients.values(), torch_gradients.values(), strict=False))


def _first_bad(
    pairs: Gradients, rule: Tolerance, scale: float
) -> tuple[Comparison, np.ndarray, np.ndarray] | None:
    """The first wrong gradient; what differs in shape is left out."""
    for a, b in (pair for pair in pairs if pair[0].shape == pair[1].shape):
        comparison = compare_outputs("gradient", a, b, None, rule, zero_scale=scale)
        if comparison is not None and not comparison.passed:
            return comparison, a, b
    return None


def _is_inside(inner: str, outer: str, recording: Recording) -> bool:
    """Whether the call ``inner`` ran inside the call ``outer``."""
    around = recording.around(recording.calls[inner])
    return any(call.key == outer for call in around)
