"""The user's pair with the same weights on both sides, in one precision."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sot_torch_ref  # noqa: F401 (declares the torchvision operators that timm and others need)
from align.anypair import draft, mapping, on_paddle, on_torch, runs
from align.anypair.isolation import Isolation
from align.anypair.judging import Judge, noise_of
from align.anypair.module_map import ModuleMap, pair_modules
from align.anypair.plan import Plan, output_weights
from align.anypair.recording import ROOT, Recording
from align.anypair.table import read_table
from align.sides import Arrays, TrainingRun


class Setup:
    """What is settled once for a pair: weights, their mapping, the mapping of the modules.

    Args:
        plan: the request.
        weights: None, a dict or a table file.
        folder: where a draft of the table goes.

    Raises:
        ValueError: names that do not match (a draft is written), or a table with mistakes.
    """

    def __init__(self, plan: Plan, weights: Any, folder: Path) -> None:
        self.plan = plan
        table = read_table(weights)
        model = on_torch.prepare(plan, plan.dtypes[0], plan.train)
        layer = on_paddle.prepare(plan, plan.dtypes[0], plan.train)
        for name in on_torch.modules(model):
            table.module(name)  # a row may speak of a module only
        source, own = on_torch.entries(model), on_paddle.entries(layer)
        found = mapping.match(source, own, table)
        if found.torch_left or found.paddle_left:
            proposal = draft.propose(found)
            path = draft.write_draft(proposal, folder)
            raise ValueError(draft.refusal(found, len(source), path, proposal))
        self.weights = mapping.finish(found, source, own)
        names = list(on_torch.modules(model)), list(on_paddle.modules(layer))
        self.modules: ModuleMap = pair_modules(*names, self.weights, table)
        self.state = on_torch.state(model)
        self.moved: list[str] = []
        if plan.shake:
            trainable = {entry.name for entry in source if not entry.buffer}
            self.state, self.moved = runs.shaken(self.state, trainable, plan.seed)
        self.layers = {n: type(one).__name__ for n, one in on_paddle.modules(layer).items()}
        kinds = list(self.layers.values())
        self.pooled = any("AvgPool" in kind for kind in kinds)
        recurrent = sorted(set(kinds) & {"LSTM", "GRU", "SimpleRNN"})
        if recurrent and not plan.train:
            raise ValueError(
                f"Paddle's {recurrent[0]} has no backward pass in eval mode: pass train=True"
            )
        stock = set(on_paddle.stock_norms(layer))
        self.stock_norms = [a for a, b in self.modules.to_paddle.items() if b in stock]


class AnyPair:
    """Both sides in one precision, run on demand, each once.

    Args:
        setup: what holds for every precision.
        dtype: "float64" or "float32"; in float32 the float64 run of the reference, on the same
            rounded weights and inputs, is the judge.
    """

    def __init__(self, setup: Setup, dtype: str) -> None:
        self.setup, self.plan, self.dtype = setup, setup.plan, dtype
        self.judge = Judge(setup.weights, setup.modules, dtype, setup.pooled)

    def reference_model(self, dtype: str, train: bool) -> Any:
        """A fresh reference; its norms follow what Paddle's kernels hold in float32."""
        model = on_torch.prepare(self.plan, dtype, train)
        on_torch.load(model, runs.rounded_state(self.setup.state, dtype, self.dtype))
        on_torch.follow_paddle(model, self.setup.stock_norms)
        return model

    def our_model(self, train: bool) -> Any:
        """A fresh Paddle model with the reference's weights."""
        model = on_paddle.prepare(self.plan, self.dtype, train)
        state = runs.rounded_state(self.setup.state, self.dtype, self.dtype)
        on_paddle.load(model, self.setup.weights.to_paddle(state))
        return model

    def run_reference(
        self, dtype: str | None = None, *, deep: bool = False, seed: int | None = None
    ) -> Recording:
        """The reference now; with a seed moved by one unit in the last place."""
        dtype = dtype or self.dtype
        noise = None if seed is None else np.random.default_rng(seed)
        model = self.reference_model(dtype, self.plan.train)
        return runs.run(on_torch, model, self.plan, dtype, self.dtype, deep=deep, noise=noise)

    @functools.cached_property
    def reference(self) -> Recording:
        """The reference in the pair's precision."""
        return self.run_reference()

    @functools.cached_property
    def oracle(self) -> Recording | None:
        """The reference in float64, for a pair in float32."""
        return None if self.dtype == "float64" else self.run_reference("float64")

    @functools.cached_property
    def noise(self) -> tuple[dict[str, float], dict[str, float]]:
        """Distances between two runs of the reference one unit in the last place apart."""
        moved = self.run_reference(seed=self.plan.seed + 1)
        forward, backward = noise_of(self.judge, self.reference, moved)
        if self.plan.loss is None:  # a sum of both signs: what cancels rounds all the same
            terms = self._size_of_terms() / (abs(float(self.reference.loss)) or 1.0)
            backward["loss"] = max(backward["loss"], terms * float(np.finfo(self.dtype).eps))
        return forward, backward

    def _size_of_terms(self) -> float:
        """Root of the summed squares of the default loss's terms."""
        outputs = [a for _, a in self.reference.calls[ROOT].outputs if a.dtype.kind == "f"]
        weights = (output_weights(a.shape, i, self.plan.seed) for i, a in enumerate(outputs))
        sizes = [np.linalg.norm(a * w) for a, w in zip(outputs, weights, strict=True)]
        return float(np.linalg.norm(sizes))

    @functools.cached_property
    def model(self) -> Any:
        """The Paddle model that the passes use (training has its own)."""
        return self.our_model(self.plan.train)

    @functools.cached_property
    def ours(self) -> Recording:
        """The Paddle side."""
        return self.run_ours()

    def run_ours(self, *, deep: bool = False, tripled: str = "") -> Recording:
        """The Paddle side now."""
        return runs.run(
            on_paddle, self.model, self.plan, self.dtype, self.dtype, deep=deep, tripled=tripled
        )

    @functools.cached_property
    def deep(self) -> Recording:
        """The reference with the inputs of every call."""
        return self.run_reference(deep=True)

    def isolate(self) -> Isolation:
        """Inject mode, see `isolation`."""
        isolation = Isolation(on_paddle, self.model, self.judge, self.deep)
        off = on_paddle.dropout_off() if self.plan.train else contextlib.nullcontext()
        with off:
            return isolation.run(self.plan)

    def train_reference(self, dtype: str, seed: int | None = None) -> TrainingRun:
        """Train a fresh reference; with a seed moved by one unit before every step."""
        noise = None if seed is None else np.random.default_rng(seed)
        model = self.reference_model(dtype, True)
        return runs.train(on_torch, model, self.plan, dtype, self.dtype, noise)

    def train_ours(self) -> TrainingRun:
        """Train a fresh Paddle model."""
        return runs.train(on_paddle, self.our_model(True), self.plan, self.dtype, self.dtype)

    @contextlib.contextmanager
    def nudged(self) -> Iterator[str | None]:
        """One weight tensor 1 % off in the Paddle model; yields its name, None without any."""
        gradients = self.setup.weights.to_paddle(self.reference.gradients)
        name = max(gradients, key=lambda n: np.abs(gradients[n]).max(), default=None)
        if name is None or not gradients[name].any():
            yield None
            return
        held = on_paddle.state(self.model)[name]
        on_paddle.load(self.model, {name: held * 1.01 + 0.01 * np.abs(held).max()})
        try:
            yield name
        finally:
            on_paddle.load(self.model, {name: held})

    def layer(self, key: str) -> tuple[Any, Any, Arrays]:
        """Paddle layer, PyTorch module and the layer's own tensors, by a call's key."""
        name = key.partition("#")[0]
        back = {b: a for a, b in self.setup.modules.to_paddle.items()}
        theirs = on_torch.modules(self.reference_model(self.dtype, False)).get(back.get(name, ""))
        layer = on_paddle.modules(self.model).get(name)
        prefix = "" if name == ROOT else f"{name}."
        own = {n: v for n, v in on_paddle.state(self.model).items() if n.startswith(prefix)}
        held = {n.removeprefix(prefix): v.astype(np.float64) for n, v in own.items()}
        return layer, theirs, {n: v for n, v in held.items() if "." not in n}
