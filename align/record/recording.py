"""What a run leaves behind, and the hooks that write it: the same code for both frameworks.

A tap is the output of one call of one module. Hooks see every module, those without parameters
included; the calls of one module are numbered (`relu`, `relu#2`). Where a module hands its input on
unchanged (Identity, dropout in eval mode), the tap is made a node of its own, because the gradient
of a tensor that is also used elsewhere says nothing about the branch through the module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from align.record.arrays import (
    Arrays,
    Lazy,
    Leaf,
    Reader,
    Store,
    cast,
    is_array,
    is_container,
    leaves,
    replace,
)
from align.record.request import Request

ROOT = "(model)"


@dataclass
class Call:
    """One call of one module. A recorded one reads its arrays on access.

    Attributes:
        name: the module's dotted name, ROOT for the model itself.
        number: 1 for its first call.
        parent: key of the call inside which it ran, "" for the model.
        outputs: the output's tensors by path, in order.
        inputs: the same of the arguments, only when they were asked for.
        grad_outputs: gradient of the loss with respect to each output, by path.
        grad_inputs: the same for the inputs, through this call only.
        padded: paths of PyTorch's packed outputs; they are recorded padded, without a gradient.
        others: what else the model itself returned, path and type; no array of it is kept.
    """

    name: str
    number: int
    parent: str = ""
    outputs: Mapping[str, np.ndarray] = field(default_factory=Lazy)
    inputs: Mapping[str, np.ndarray] = field(default_factory=Lazy)
    grad_outputs: Mapping[str, np.ndarray] = field(default_factory=Lazy)
    grad_inputs: Mapping[str, np.ndarray] = field(default_factory=Lazy)
    padded: list[str] = field(default_factory=list)
    others: Sequence[str] = ()

    @property
    def key(self) -> str:
        """The module's name, numbered from the second call on."""
        return self.name if self.number == 1 else f"{self.name}#{self.number}"

    def floating(self) -> list[str]:
        """Paths of the floating tensors in the output."""
        return [path for path, a in self.outputs.items() if a.dtype.kind == "f" and a.size]


@dataclass
class Recording:
    """One forward and backward pass.

    Attributes:
        calls: by key, in the order in which the calls ended.
        backward_order: (key, path) in the order in which gradients arrived.
        loss: scalar array.
        gradients: of the parameters, by canonical name; absent ones are absent.
        input_gradients: of the floating inputs, by path.
        state: what is not trained (running statistics) after the pass, by canonical name.
        stamp: which framework computed the loss, read off the tensor.
        pooled: an average pool of Paddle's ran.
        written: the inputs that the model has changed in place.
        store: keeps the arrays.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    backward_order: list[tuple[str, str]] = field(default_factory=list)
    loss: np.ndarray | None = None
    gradients: Mapping[str, np.ndarray] = field(default_factory=dict)
    input_gradients: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)
    pooled: bool = False
    written: list[str] = field(default_factory=list)
    store: Store = field(default_factory=Store)

    def counts(self) -> dict[str, int]:
        """Number of calls by module name."""
        return Counter(call.name for call in self.calls.values())

    def around(self, call: Call) -> Iterator[Call]:
        """The calls that one was made in, the nearest first."""
        while call.parent in self.calls:
            call = self.calls[call.parent]
            yield call

    def with_output(self, key: str, path: str, array: np.ndarray | None) -> Recording:
        """The pass with another array (None: none) under a path of a call's output."""
        call = self.calls[key]
        outputs = {**call.outputs, path: array}
        if array is None:
            del outputs[path]
        changed = {**self.calls, key: dataclasses.replace(call, outputs=outputs)}
        return dataclasses.replace(self, calls=changed)


@dataclass
class TrainingRun:
    """A training run.

    Attributes:
        losses: one for each step.
        learning_rates: as applied by each step.
        state: parameters and buffers at the end, framework's own layout.
        moments: ``{"exp_avg": {...}, "exp_avg_sq": {...}}`` by parameter name.
        stamp: which framework computed it.
        samples: some of the weights before the first step and after each, as `align.judge.drift`
            picks them; empty where they are not known.
    """

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    state: Arrays = field(default_factory=dict)
    moments: dict[str, Arrays] = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[np.ndarray] = ()


@dataclass
class MovedRun:
    """One of the moved runs of a noise band.

    Attributes:
        number: from 0; it seeds the directions in which the roundings are moved.
        side: 1 or -1 where it takes what is near a kink (of a ReLU) as above or as below; 0 where
            it leaves it.
        reach: what is near, by the number of kinks passed before; nothing where it is not said.
        met: some arguments of every kink, by the same number, that a run of side 0 leaves.
        lower: whether the model computed in a lower precision in places.
    """

    number: int
    side: int = 0
    reach: Mapping[int, float] = field(default_factory=dict)
    met: dict[int, np.ndarray] = field(default_factory=dict)
    lower: bool = False


class CallHooks:
    """Hooks on the modules of a model, by name, which number their calls."""

    def __init__(self, side: Any, modules: Mapping[str, Any]) -> None:
        self.side, self._modules = side, modules
        self._names = {id(module): name for name, module in modules.items()}
        self._seen: dict[str, int] = {}

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Every call goes through `_before` and `_after` of the subclass inside the block."""
        with contextlib.ExitStack() as hooks:
            for module in self._modules.values():
                hooks.enter_context(self.side.hook(module, self._before, self._after))
            yield

    def begun(self, module: Any, parent: str = "") -> Call:
        """Count a call that begins."""
        name = self._names[id(module)]
        self._seen[name] = self._seen.get(name, 0) + 1
        return Call(name, self._seen[name], parent)


class Recorder(CallHooks):
    """Writes down what every module returns, and the gradients there.

    Args:
        deep: record inputs and their gradients as well (to find the wrong layer).
        tripled: key of a call whose gradient is multiplied by three (a negative control).
        only: names of the modules to watch, None for all.
    """

    def __init__(
        self,
        side: Any,
        model: Any,
        *,
        deep: bool = False,
        tripled: str = "",
        only: Collection[str] | None = None,
    ) -> None:
        modules = side.modules(model).items()
        super().__init__(side, {n: m for n, m in modules if only is None or n in only})
        self.deep, self.tripled, self.recording = deep, tripled, Recording()
        self._stack: list[Call] = []
        self._given: list[Leaf] = []

    def _before(self, module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        call = self.begun(module, self._stack[-1].key if self._stack else "")
        self._stack.append(call)
        if call.name == ROOT:
            self._given = self._arrays(args, kwargs)
        if not self.deep:
            return None

        clones: dict[int, Any] = {}  # one tensor given twice (query and key) has one gradient

        def watch(path: str, tensor: Any) -> Any:
            call.inputs.hold(path, self._put(tensor))
            if id(tensor) in clones:
                return clones[id(tensor)]
            if not self.side.needs_gradient(tensor):
                return tensor
            clone = tensor.clone()
            if not self.side.needs_gradient(clone):  # no_grad() around the module
                return tensor
            clones[id(tensor)] = clone
            clone.register_hook(lambda g: call.grad_inputs.hold(path, self._put(g)))
            return clone

        return replace((args, kwargs), self.side.is_tensor, watch)

    def _arrays(self, *arguments: Any) -> list[Leaf]:
        """Copies of the tensors that a call was given, by position or by keyword."""
        tensors = leaves(arguments, self.side.is_tensor)
        return [(path.partition(".")[2], self.side.numpy(tensor)) for path, tensor in tensors]

    def _put(self, tensor: Any) -> Reader:
        return self.recording.store.put(self.side.numpy(tensor))

    def _after(self, module: Any, args: tuple, kwargs: dict, output: Any) -> Any:
        call = self._stack.pop()
        input_ids = {id(tensor) for _, tensor in leaves((args, kwargs), self.side.is_tensor)}

        def watch(path: str, tensor: Any) -> Any:
            # deep: of what the module itself does with its output later, no gradient is added
            watched = tensor.clone() if self.deep or id(tensor) in input_ids else tensor
            call.outputs.hold(path, self._put(watched))
            if hasattr(tensor, "padded"):
                call.padded.append(path)
            if self.side.needs_gradient(watched):
                watched.register_hook(lambda g: self._arrived(call, path, g))
                if self.tripled == call.key:
                    watched.register_hook(lambda g: g * 3.0)
            return watched

        changed = replace(output, self.side.is_tensor, watch)
        if call.name == ROOT:
            left = dict(self._arrays(args, kwargs))
            self.recording.written = [
                path
                for path, a in self._given
                if not np.array_equal(a, left.get(path, a), equal_nan=True)
            ]
            call.others = [
                f"{path} ({type(value).__name__})".strip()
                for path, value in leaves(output, lambda part: not is_container(part))
                if value is not None and not self.side.is_tensor(value)
            ]
        self.recording.calls[call.key] = call
        return None if changed is output else changed

    def _arrived(self, call: Call, path: str, gradient: Any) -> None:
        call.grad_outputs.hold(path, self._put(gradient))
        self.recording.backward_order.append((call.key, path))


class BadLoss(ValueError):
    """Paddle's loss cannot be computed of Paddle's output, or is no single number."""


def one_loss(side: Any, plan: Request, output: Any, dtype: str, pair_dtype: str) -> Any:
    """The loss of an output, which is one number.

    Raises:
        ValueError: it cannot be computed, or is several numbers; `BadLoss` of Paddle.
    """
    kind = BadLoss if side.NAME == "Paddle" else ValueError
    try:
        loss = loss_of(side, plan, output, dtype, pair_dtype)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        sentence = str(error).strip().partition("\n")[0]
        if sentence.startswith("loss: "):
            raise
        raise kind(f"loss: {side.NAME}'s fails on the output of its model: {sentence}") from error
    if math.prod(loss.shape) != 1:
        shape = tuple(loss.shape)
        raise kind(f"loss: {side.NAME}'s has the shape {shape}, expected its mean or its sum")
    return loss


def loss_of(side: Any, plan: Request, output: Any, dtype: str, pair_dtype: str) -> Any:
    """The plan's loss of an output.

    Raises:
        ValueError: the user's function returns no tensor, or the model no floating one.
    """
    labels = plan.labels
    if labels is not None:
        labels = side.tensor(cast(np.asarray(labels), dtype, pair_dtype))
    if isinstance(plan.loss, (tuple, list)):
        function = _looked_up(side, plan.loss[side.NAME == "Paddle"])
        loss = function(output) if labels is None else function(output, labels)
        if not side.is_tensor(loss):
            raise ValueError(
                f"loss: the {side.NAME} function returned a {type(loss).__name__}, expected one "
                "tensor of the framework (a number has no gradient; of several losses return the "
                "sum)"
            )
        return loss
    floats = [v for _, v in leaves(output, side.is_tensor) if side.is_floating(v)]
    if not floats:
        raise ValueError(f"the {side.MODEL} returns no floating tensor")
    if plan.loss is None:
        # a plain sum has the gradient one everywhere, under which a wrong axis or a wrong order
        # goes unseen (the gradient of a softmax's sum is even zero)
        sums = []
        for i, value in enumerate(floats):
            weights = np.random.default_rng((plan.seed, i)).normal(size=tuple(value.shape))
            sums.append((value * side.tensor(cast(weights, dtype, pair_dtype))).sum())
        return sum(sums)
    function = side.FUNCTIONAL.mse_loss if plan.loss == "mse" else side.cross_entropy
    return function(floats[0], labels)


def _looked_up(side: Any, function: Any) -> Any:
    """Look a framework's own function up in its module, which may watch it now; others stay."""
    if isinstance(function, functools.partial):
        inner = _looked_up(side, function.func)
        return functools.partial(inner, *function.args, **function.keywords)
    is_of_side = str(getattr(function, "__module__", "")).startswith(side.FUNCTIONAL.__name__)
    name = function.__name__ if is_of_side else ""
    return getattr(side.FUNCTIONAL, name, function)


def run_model(side: Any, model: Any, inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Run a model; also returns the floating inputs, which collect gradients."""
    watched: dict[str, Any] = {}

    def feed(path: str, array: Any) -> Any:
        array = np.asarray(array)
        if array.dtype.kind != "f":
            return side.tensor(array)
        watched[path] = side.leaf(array)
        return watched[path].clone()  # not a leaf: the model may write into it

    fed = replace(inputs, is_array, feed)
    with warnings.catch_warnings():  # PADDLE: batch norm announces its running statistics
        warnings.filterwarnings("ignore", "When training, we now always track")
        output = model(**fed) if isinstance(fed, Mapping) else model(*fed)
    return output, watched
