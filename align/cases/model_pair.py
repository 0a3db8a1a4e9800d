"""A model case as a pair: both models with the case's weights, their taps and scores as outputs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import torch

from align.cases.kinds.case_kinds import Batch, ModelCase, TimmCase
from align.cases.planted_controls import MODEL_FAULTS, planted, recipe_faults
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.drawn_models import draw_state, make_batch, planned_shapes, training_batches
from align.frameworks import on_paddle
from align.judge.bounds import TOLERANCES
from align.judge.distance import peak
from align.judge.judging import Judge
from align.pair.any_pair import AnyPair, Setup
from align.record.arrays import Arrays
from align.record.recording import ROOT, Recording
from align.record.request import Request
from align.record.results import Tolerance
from align.record.stored_arrays import Lazy
from sot_paddle.convert import build_plan
from sot_paddle.features import Features, Taps

ORDER = "(order of the taps)"
Outputs = dict[str, Any]


def request_of(
    case: ModelCase, dtype: str, checkpoint: Path | None = None, sentences: Sequence[str] = ()
) -> Request:
    """What a case asks of a comparison.

    Args:
        case: what to build.
        dtype: precision of the pair.
        checkpoint: directory of the real checkpoint, for the cases that use it.
        sentences: for the cases that use real sentences.
    """
    spare = [torch_side.build_seeded(case)]
    state = draw_state(case, checkpoint, spare[0])
    inputs, labels = _fed(case, make_batch(case, sentences=sentences, checkpoint=checkpoint))
    valid = _valid_positions(case, inputs)
    shown = (*case.hooks, "logits") if isinstance(case, TimmCase) else None

    def reference() -> torch.nn.Module:
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        drawn = spare and dtype == "float64"
        model = spare.pop() if drawn else torch_side.build(case, dtype)
        torch_side.load_state(model, state)
        return model

    return Request(
        reference,
        lambda: paddle_side.build(case, paddle.get_default_dtype()),
        inputs,
        outputs=(
            functools.partial(_outputs, torch.tensor, valid, None),
            functools.partial(_outputs, paddle.to_tensor, valid, shown),
        ),
        loss=tuple(
            _loss_of(side.LOSSES.get(case.options.get("pooling", case.model), side.loss))
            for side in (torch_side, paddle_side)
        ),
        labels=labels,
        weights=_mapping(case, state),
        train=case.train,
        shake=False,
        name=case.name,
        dtype=dtype,
        **_training(case, checkpoint),
    )


def _fed(case: ModelCase, batch: Arrays) -> tuple[dict[str, Any], np.ndarray]:
    """Inputs and labels of a batch; a head alone returns its taps unasked."""
    inputs: dict[str, Any] = {name: value for name, value in batch.items() if name != "labels"}
    alone = case.subject in ("words", "states")
    return inputs | ({} if alone else {"return_taps": True}), batch["labels"]


def _training(case: ModelCase, checkpoint: Path | None) -> dict[str, Any]:
    """The recipe as optimizer factories, and a batch for each forward pass."""
    # values of their own make their own batches, and run by themselves
    if case.values or not {"optimizer", "training"} & set(case.steps):
        return {}
    recipe = case.recipe
    return {
        "optimizer": (torch_side.factory(recipe), paddle_side.factory(recipe)),
        "steps": recipe.steps,
        "accumulate": recipe.accumulate,
        "batches": [_fed(case, batch) for batch in training_batches(case, checkpoint)],
    }


def _mapping(case: ModelCase, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The conversion plan; the models' layers are not compared one by one, their taps are.

    Models on hidden states have the same names on both sides: there is nothing to plan.
    """
    if case.subject == "states":
        return {"map": {}, "modules": {"*": None}}
    layout = case.layout if isinstance(case, TimmCase) else "sot_torch_ref"
    names = build_plan(layout, case.model, planned_shapes(case, state)).names()
    rows = {name: row for name, row in names["map"].items() if name in state}
    return {**names, "map": rows, "modules": {"*": None}}


def _valid_positions(case: ModelCase, inputs: Mapping[str, Any]) -> np.ndarray | None:
    """Which positions hold words, for the cases of real sentences."""
    wanted = isinstance(case.batch, Batch) and case.batch.sentences
    return np.flatnonzero(inputs["attention_mask"]) if wanted else None


def _outputs(
    tensor: Callable, valid: np.ndarray | None, shown: Sequence[str] | None, output: Any
) -> Outputs:
    """(logits, taps) as one mapping: the taps, what the loss takes, and the order of the taps.

    Of real sentences the last hidden states come at valid positions as well: padded positions are
    ill-conditioned, the words themselves are not.

    Args:
        tensor: makes a tensor of the framework.
        valid: flat positions of the words.
        shown: the taps that both sides have, None for all.
        output: what the model returned.
    """
    if not isinstance(output, tuple) or not isinstance(output[1], dict):
        return output  # a plain call
    logits, taps = output
    taps = {name: tap for name, tap in taps.items() if shown is None or name in shown}
    found: Outputs = {}
    if valid is not None:
        last = [name for name in taps if name.startswith("layers.")][-1]
        found[f"{last} (valid positions)"] = taps[last].flatten(0, 1)[tensor(valid)]
    found.update(taps)
    if isinstance(logits, tuple):
        found["output"] = logits
    places = sorted(taps)
    found[ORDER] = tensor([places.index(name) for name in taps])
    return found


def _loss_of(loss: Callable) -> Callable:
    return lambda outputs, labels: loss(outputs.get("output", outputs["logits"]), labels)


class ExactStatistics(Judge):
    """Judges running statistics as exactly as taps: no kernel of Paddle's updates these."""

    @property
    def statistics_rule(self) -> Tolerance:
        """That of a tap."""
        return TOLERANCES["forward", self.dtype]


class ModelPair(AnyPair):
    """The pair of a case in one precision; beside a pair's own faults it plants those of a model.

    Args:
        case: what to build.
        dtype: precision.
        given: see `request_of`.
    """

    chosen = True

    def __init__(self, case: ModelCase, dtype: str, *given: Any) -> None:
        setup = Setup(request_of(case, dtype, *given))
        super().__init__(setup, dtype)
        self.judge = ExactStatistics(setup.weights, setup.modules, dtype)
        self.case = case
        self.backward = case.steps != ("forward",)
        self._encoded: tuple[Features, Taps] | None = None

    @property
    def batch(self) -> Arrays:
        """The arrays of the batch, labels included."""
        inputs = {n: v for n, v in self.plan.inputs.items() if isinstance(v, np.ndarray)}
        return {**inputs, "labels": np.asarray(self.plan.labels)}

    def change(self, state: Mapping[str, np.ndarray]) -> None:
        """Give both models other weights, by the reference's names."""
        for name, value in state.items():
            self.setup.state.hold(name, lambda value=value: value)
        for held in (self.setup.references, self.setup.ports):
            held.clean.clear()
        self._encoded = None

    def fresh_reference(self) -> torch.nn.Module:
        """The reference with the pair's weights put back, in the case's mode."""
        return self.reference_model(self.dtype, self.case.train)

    def to_paddle(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Reference arrays in Paddle's names and layout."""
        return self.setup.weights.to_paddle(arrays)

    def outputs(self, recording: Recording) -> Arrays:
        """What a model of the pair returned, by name."""
        return dict(recording.calls[ROOT].outputs)

    def run_ours(self, **options: Any) -> Recording:
        """The Paddle side now; what its backbone makes is kept for `pass_ours`."""
        original = getattr(self.model, "features", None)

        def kept(*given: Any) -> Features:
            made = original(*given)
            fields = {name: _detached(value) for name, value in vars(made).items()}
            taps = {name: tap.detach() for name, tap in (given[-1] or {}).items()}
            self._encoded = Features(**fields), taps
            return made

        with self._features(kept if original else None):
            return super().run_ours(**options)

    @contextlib.contextmanager
    def pass_ours(
        self, *, tripled: str = "", backward: bool = True, changed: str = ""
    ) -> Iterator[Recording]:
        """The same, not kept. A head with a fault gets what the backbone made in the clean pass."""
        graph = contextlib.nullcontext() if backward else paddle.no_grad()
        again = None
        if changed.startswith("head.") and not backward and self._encoded:
            again = self._encoded_again
        with (
            graph,
            self._features(again),
            super().pass_ours(tripled=tripled, backward=backward) as found,
        ):
            yield found

    def _encoded_again(self, *given: Any) -> Features:
        """What `kept` has kept, running statistics of the backbone included."""
        features, taps = self._encoded
        if given[-1] is not None:
            given[-1].update(taps)
        state = self.ours.state.items()
        on_paddle.load(self.model, {n: a for n, a in state if not n.startswith("head.")})
        return features

    def _features(
        self, replaced: Callable[..., Features] | None
    ) -> contextlib.AbstractContextManager[Any]:
        """Another function in the place of the Paddle model's ``features``; None: the same."""
        if replaced is None:
            return contextlib.nullcontext()
        return mock.patch.object(self.model, "features", replaced)

    def planted(self, step: str) -> Iterator[tuple[str, str, Recording]]:
        """Our pass with each fault that the step "forward" or "backward" must see.

        All faults of the forward pass are planted in its own step; one shows that gradients see
        them too.
        """
        yield from super().planted(step)
        backward, forward_faults = step == "backward", 0
        for fault in MODEL_FAULTS:
            elsewhere = fault.backward_only != backward
            if self.dtype not in fault.dtypes or (elsewhere and (forward_faults or not backward)):
                continue
            with planted(fault, self.model) as where:
                if where is not None:
                    forward_faults += not fault.backward_only
                    with self.pass_ours(backward=backward, changed=where) as faulty:
                        yield fault.name, where, faulty
        if backward:
            yield from self._wrong_gradients()
        else:
            nothing = dataclasses.replace(self.ours.calls[ROOT], outputs=[])
            calls = {**self.ours.calls, ROOT: nothing}
            yield "nothing to compare", "no taps", dataclasses.replace(self.ours, calls=calls)

    def _wrong_gradients(self) -> Iterator[tuple[str, str, Recording]]:
        """A lost gradient, one that should not be there, one scaled, one padded row trained."""
        held = self.ours.gradients
        name = max(held, key=lambda key: peak(held[key]))
        faults: dict[str, Mapping[str, np.ndarray | None]] = {
            "a gradient 0.1 % too large": {name: held[name] * 1.001},
            "a lost gradient": {name: None},
            "an extra one": {"head.not_there": np.ones(3, self.dtype)},
        }
        rows = next((n for n in held if n.endswith(".embeddings.word_embeddings.weight")), "")
        if rows:
            padded = held[rows].copy()
            padded[self.case.options.get("pad_token_id", 0)] = padded.max(axis=0)
            faults["the [PAD] row trained"] = {rows: padded}
        for title, changes in faults.items():
            kept = {n: functools.partial(held.__getitem__, n) for n in held if n not in changes}
            given = {n: lambda a=a: a for n, a in changes.items() if a is not None}
            faulty = dataclasses.replace(self.ours, gradients=Lazy({**kept, **given}))
            yield title, "the Paddle side's gradients", faulty

    def faulty_optimizers(self, step: str) -> Mapping[str, Callable[[Any], Any]]:
        """Paddle's optimizer under the case's recipe with a fault, by its name."""
        return {
            name: paddle_side.factory(recipe)
            for name, recipe in recipe_faults(step, self.case.recipe).items()
        }


def _detached(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(one.detach() for one in value)
    return None if value is None else value.detach()
