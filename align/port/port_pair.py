"""A row as a pair: both models with the same weights, what is asked of them, and its steps.

What a model records of itself (its taps: embeddings, every layer, the parts of its head) is its
output here; layers are compared one by one only where a tap differs, for the cause.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import torch

import sot_paddle
import sot_torch_ref
from align.commands.comparing import PUT_RIGHT, take_live, without_faults
from align.commands.steps import Outcome, take_backward, take_forward, take_once
from align.frameworks import on_torch
from align.pair.any_pair import AnyPair, Setup
from align.port.port_inputs import (
    draw_batch,
    draw_state,
    encoder_sizes,
    paddle_optimizer,
    torch_optimizer,
    training_batches,
)
from align.port.row import WORDS_DIM, Batch, Choices, PortRow, TimmModel
from align.record.arrays import Arrays
from align.record.recording import ROOT
from align.record.request import Request
from align.record.results import Divergence, StepResult
from align.record.run_report import Report
from align.report import reprod
from align.report.reprod import Checks
from sot_paddle.config import HeadConfig
from sot_paddle.convert import build_plan
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_paddle.data.glue_tasks import TASKS
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import adapter_pooler, build_head
from sot_paddle.runtime import environment_stamp
from sot_paddle.tasks import losses
from sot_paddle.tasks.glue import score
from sot_torch_ref.features import Features as TorchFeatures
from sot_torch_ref.heads import HeadConfig as TorchHeadConfig
from sot_torch_ref.heads import adapter_pooler as torch_adapters
from sot_torch_ref.heads import build_head as build_torch_head
from sot_torch_ref.train import losses as torch_losses
from sot_torch_ref.train.metrics import glue_metrics

TAPS = "return_taps"
ORDER = "(order of the taps)"
_PASSES = ("forward", "backward", "training")
"""Steps whose differences a wrong layer makes; the others are compared without the model."""


def run_row(row: PortRow, dtypes: Sequence[str], choices: Choices) -> tuple[Report, Checks]:
    """Compare both models of a row in some precisions.

    Returns:
        Its report, and its arrays for the reprod_log files.

    Raises:
        ValueError: the checkpoint cannot be read, or does not fit.
    """
    outcome = Outcome(Report({}))
    checks: Checks = {}
    last_pairs: dict[str, PortPair] = {}

    def make_pair(setup: Setup, dtype: str) -> PortPair:
        last_pairs[dtype] = PortPair(setup, dtype, row)
        return last_pairs[dtype]

    with _remarks_unsaid():
        request = row_request(row, dtypes, choices)
        setup = Setup(request)
        take_once(make_pair(setup, dtypes[0]), outcome)
        for dtype in dtypes:
            outcome = without_faults(take_live, outcome, setup, dtype, make_pair)
            _add_checks(checks, last_pairs.pop(dtype), outcome.report.results)
            setup.paddle.leave(dtype)
        findings = outcome.findings
        if any(finding.step in _PASSES for finding in findings):
            findings = _from_layers(layer_findings(request, row.forward_only), findings)
    findings = [
        dataclasses.replace(finding, place=f"{row.name}: {finding.place}") for finding in findings
    ]
    notes = [f"{row.name}: {note}" for note in outcome.notes if PUT_RIGHT in note]
    return Report(environment_stamp(), outcome.report.results, findings, notes=notes), checks


@contextlib.contextmanager
def _remarks_unsaid() -> Iterator[None]:
    """Leave out the product's remarks, which are for its users."""
    logger = logging.getLogger("sot_paddle")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class PortPair(AnyPair):
    """A row in one precision."""

    chosen = True  # by the suite, as its inputs are: a tensor that proves little fails

    def __init__(self, setup: Setup, dtype: str, row: PortRow) -> None:
        super().__init__(setup, dtype)
        self.row, self.backward = row, not row.forward_only
        # as exactly as taps: no kernel of Paddle's updates these statistics
        self.judge.statistics_rule = "forward"


def _add_checks(checks: Checks, pair: PortPair, results: Sequence[StepResult]) -> None:
    """Add what was recorded of a pair for the reprod_log files, under ``row/precision/name``."""
    row, prefix = pair.row, f"{pair.row.name}/{pair.dtype}"
    logits = [side.calls[ROOT].outputs["logits"] for side in (pair.reference, pair.ours)]
    reprod.add(checks, reprod.FORWARD, prefix, *({"logits": values} for values in logits))
    if row.forward_only:
        return
    labels = np.asarray(pair.plan.labels)
    if row.subject == "text" and row.num_classes > 1 and labels.ndim == 1:
        torch_scores = glue_metrics("rte", logits[0].argmax(-1), labels)
        paddle_scores = score(TASKS["rte"].metrics, logits[1], labels)
        paddle_scores = {name: paddle_scores[name] for name in torch_scores}
        reprod.add(checks, reprod.METRIC, prefix, torch_scores, paddle_scores)
    reprod.add_pass(checks, prefix, pair)
    reprod.add_training(checks, prefix, [r for r in results if r.dtype == pair.dtype])


def layer_findings(request: Request, forward_only: bool) -> list[Divergence]:
    """Compare the layers of a row whose taps differ, in float64; return wrong ones with causes.

    Taps say that and where along the model two sides part. Causes and lines of code come from the
    layers, which are paired by their weights.

    Returns:
        Nothing where the layers agree, or cannot be paired.
    """

    def take_passes(pair: AnyPair, outcome: Outcome) -> None:
        if not take_forward(pair, outcome) and not forward_only:
            take_backward(pair, outcome, forward_failed=False)

    with contextlib.suppress(ValueError):  # what the taps say stands
        layers = Setup(_by_layers(request))
        return without_faults(take_passes, Outcome(Report({})), layers, "float64").findings
    return []


def _from_layers(layers: Sequence[Divergence], taps: Sequence[Divergence]) -> Sequence[Divergence]:
    """Put the findings of the layers first; those of the taps follow from them."""
    root = next((finding for finding in layers if not finding.follows), None)
    if root is None:
        return taps
    following = [f.after(root.step) if f.step in _PASSES else f for f in taps]
    return [*layers, *following]


def row_request(row: PortRow, dtypes: Sequence[str], choices: Choices) -> Request:
    """Return what is compared of a row."""
    if row.checkpoint:
        sizes = encoder_sizes(choices.checkpoint)
        row = dataclasses.replace(row, options={**sizes, **row.options})
    torch.manual_seed(row.batch.seed)
    built = {name: t.numpy() for name, t in _torch_model(row, "float64").state_dict().items()}
    state = draw_state(row, built, choices.checkpoint)
    sentences = choices.sentences or REAL_SENTENCES
    batch = draw_batch(row, sentences=sentences, checkpoint=choices.checkpoint)
    inputs, labels = _inputs_and_labels(row, batch)
    valid = None
    if isinstance(row.batch, Batch) and row.batch.sentences:
        valid = np.flatnonzero(inputs["attention_mask"])  # flat positions of the words
    return Request(
        functools.partial(_loaded_torch_model, row, state),
        functools.partial(_paddle_model, row),
        inputs,
        outputs=_outputs_of_both(valid, ".*" if row.timm is None else f"{row.timm.taps}|logits"),
        loss=_losses(row),
        labels=labels,
        weights=_mapping(row, state),
        train=row.train,
        shake=False,
        name=row.name,
        dtype=tuple(dtypes),
        **_training(row, choices),
    )


def _training(row: PortRow, choices: Choices) -> dict[str, Any]:
    """Return the recipe as optimizer factories, and a batch for each forward pass."""
    if row.recipe is None:
        return {}
    factories = (torch_optimizer, paddle_optimizer)
    batches = training_batches(row, choices.checkpoint)
    return {
        "optimizer": [functools.partial(make, recipe=row.recipe) for make in factories],
        "steps": row.recipe.steps,
        "accumulate": row.recipe.accumulate,
        "batches": [_inputs_and_labels(row, batch) for batch in batches],
    }


def _by_layers(request: Request) -> Request:
    """Turn a row's request into one that pairs the layers of both models, in float64.

    Only logits are asked for: a mapping for taps, which layers pass on, would count as an argument.
    """
    return dataclasses.replace(
        request,
        inputs={name: x for name, x in request.inputs.items() if name != TAPS},
        outputs=_outputs_of_both(None, "logits"),
        weights={**request.weights, "modules": {}},
        dtype=("float64",),
        optimizer=None,
        batches=None,
        steps=0,
        schedule_steps=0,
        accumulate=1,
    )


def _inputs_and_labels(row: PortRow, batch: Arrays) -> tuple[dict[str, Any], np.ndarray]:
    """Split a batch; a whole model is asked for its taps, a head alone returns them unasked."""
    inputs: dict[str, Any] = {name: value for name, value in batch.items() if name != "labels"}
    if row.subject in ("text", "images"):
        inputs[TAPS] = True
    return inputs, batch["labels"]


def _mapping(row: PortRow, state: Arrays) -> dict[str, Any]:
    """Return the table of the tensors from the conversion plan; taps stand for the layers.

    Models on hidden states have the same names on both sides: there is nothing to plan. A head
    alone is planned as part of a small BERT.
    """
    if row.subject == "states":
        return {"map": {}, "modules": {"*": None}}
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    if row.subject == "words":
        encoder = {"hidden_size": WORDS_DIM, "num_attention_heads": 1, "num_hidden_layers": 1}
        options = {**row.options, **encoder, "fusion": "word_tokens"}
        host = _torch_model(dataclasses.replace(row, subject="text", options=options), "float32")
        shapes = {name: tuple(tensor.shape) for name, tensor in host.state_dict().items()}
    layout = "sot_torch_ref" if row.timm is None else row.timm.layout
    names = build_plan(layout, row.model, shapes).names()
    tensors = {name: line for name, line in names["map"].items() if name in state}
    return {**names, "map": tensors, "modules": {"*": None}}


def _outputs_of_both(valid: np.ndarray | None, shown: str) -> tuple[Callable, Callable]:
    """Return what turns either side's (logits, taps) into one mapping, see `_outputs`."""
    sides = (torch.tensor, paddle.to_tensor)
    return tuple(
        functools.partial(_outputs, make_tensor=side, valid=valid, shown=shown) for side in sides
    )


def _outputs(
    output: Any, *, make_tensor: Callable, valid: np.ndarray | None, shown: str
) -> dict[str, Any]:
    """Turn what a model returns into one mapping: taps, their order, and what the loss takes.

    A model returns (logits, taps) or logits alone; logits are a tap, too.

    Args:
        valid: flat positions of the words of real sentences, where the last hidden states are
            compared once more: at padded positions they are ill-conditioned.
        shown: pattern of the taps that both sides have.
    """
    has_taps = isinstance(output, tuple) and isinstance(output[1], Mapping)
    logits, all_taps = output if has_taps else (output, {"logits": output})
    taps = {name: tap for name, tap in all_taps.items() if re.fullmatch(shown, name)}
    outputs: dict[str, Any] = {}
    if valid is not None:
        last = [name for name in taps if name.startswith("layers.")][-1]
        outputs[f"{last} (valid positions)"] = taps[last].flatten(0, 1)[make_tensor(valid)]
    outputs.update(taps)
    if isinstance(logits, tuple):  # of several layers, or the two ends of spans
        outputs["output"] = logits
    alphabetical = sorted(taps)
    outputs[ORDER] = make_tensor([alphabetical.index(name) for name in taps])
    return outputs


_OWN_LOSSES: Mapping[str, tuple[Callable, Callable]] = {
    "spans": (torch_losses.span_loss, losses.span_loss),
    "AdapterSpans": (torch_losses.span_loss, losses.span_loss),
    "LayerClassifiers": (torch_losses.layers_loss, losses.probe_loss),
    "LayerSpans": (torch_losses.span_loss, losses.probe_loss),
}
"""Losses of the heads and models that have one of their own, PyTorch's and Paddle's."""


def _losses(row: PortRow) -> tuple[Callable, Callable]:
    """Return PyTorch's and Paddle's loss of `_outputs` and labels."""
    classes = (torch_losses.task_loss, losses.classification_loss)
    soft_targets = (torch_losses.soft_target_cross_entropy, losses.classification_loss)
    usual = soft_targets if row.subject == "images" else classes
    torch_loss, paddle_loss = _OWN_LOSSES.get(row.options.get("pooling", row.model), usual)
    return _of_outputs(torch_loss), _of_outputs(paddle_loss)


def _of_outputs(loss: Callable) -> Callable:
    return lambda outputs, labels: loss(outputs.get("output", outputs.get("logits")), labels)


def _loaded_torch_model(row: PortRow, state: Arrays) -> torch.nn.Module:
    """Build the reference in torch's default precision, with the row's weights."""
    model = _torch_model(row, str(torch.get_default_dtype()).removeprefix("torch."))
    built = model.state_dict()
    tensors = {n: torch.from_numpy(value.copy()).to(built[n].dtype) for n, value in state.items()}
    model.load_state_dict(tensors, strict=True, assign=True)
    return model


def _torch_model(row: PortRow, dtype: str) -> torch.nn.Module:
    with on_torch.default_dtype(dtype):
        if row.subject == "words":
            model: torch.nn.Module = torch_words_only(row.options, WORDS_DIM, row.num_classes)
        elif row.subject == "states":
            kind, classes = getattr(torch_adapters, row.model), row.num_classes
            model = TorchHeadAlone(_fitting(kind, num_classes=classes, **row.options))
        elif row.timm is not None:
            model = _timm_model(row.timm, row.num_classes)
        else:
            model = sot_torch_ref.create_model(row.model, row.num_classes, **row.options)
    return model.train(row.train)


def _paddle_model(row: PortRow) -> paddle.nn.Layer:
    if row.subject == "words":
        model: paddle.nn.Layer = paddle_words_only(row.options, WORDS_DIM, row.num_classes)
    elif row.subject == "states":
        kind, classes = getattr(adapter_pooler, row.model), row.num_classes
        config = adapter_pooler.AdapterConfig(**row.options)
        head = _fitting(kind, config=config, num_classes=classes, outputs=classes)
        model = PaddleHeadAlone(head)
    else:
        model = sot_paddle.create_model(row.model, row.num_classes, **row.options)
    model.train() if row.train else model.eval()
    return model


def _fitting(kind: Callable[..., Any], **values: Any) -> Any:
    """Call a class with those of some values that it has an argument for."""
    return kind(**{n: values[n] for n in inspect.signature(kind).parameters if n in values})


class PaddleHeadAlone(paddle.nn.Layer):
    """A head on words without a class token, or on hidden states, that returns its taps."""

    def __init__(self, head: paddle.nn.Layer) -> None:
        super().__init__()
        self.head = head

    def forward(
        self, tokens: paddle.Tensor | None = None, states: paddle.Tensor | None = None
    ) -> tuple[Any, Taps]:
        """Turn tokens (B, N, C) or hidden states (B, L, T, F) into (output, taps)."""
        taps: Taps = {}
        if states is not None:
            return self.head(states, taps), taps
        return record(taps, "logits", self.head(Features(None, tokens, None), taps)), taps


def paddle_words_only(options: Mapping[str, Any], dim: int, num_classes: int) -> PaddleHeadAlone:
    """Return a text head without a class token."""
    config = HeadConfig(**options)
    return PaddleHeadAlone(
        build_head(config, dim=dim, num_classes=num_classes, has_class_token=False)
    )


class TorchHeadAlone(torch.nn.Module):
    """A head on words without a class token, or on hidden states, with taps as a whole model's."""

    def __init__(self, head: torch.nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(
        self, tokens: torch.Tensor | None = None, states: torch.Tensor | None = None
    ) -> tuple[Any, dict[str, torch.Tensor]]:
        """Turn tokens (B, N, C) or hidden states (B, L, T, F) into (output, taps)."""
        words = TorchFeatures(cls=None, words=tokens, mask=None)
        output, taps = self.head(words if states is None else states)
        return output, {n if n == "logits" else f"head.{n}": tap for n, tap in taps.items()}


def torch_words_only(options: Mapping[str, Any], dim: int, num_classes: int) -> TorchHeadAlone:
    """Return a text head without a class token."""
    config = TorchHeadConfig(**options)
    return TorchHeadAlone(
        build_torch_head(config, hidden_size=dim, num_classes=num_classes, has_class_token=False)
    )


def _timm_model(named: TimmModel, num_classes: int) -> torch.nn.Module:
    """Build timm's model, which returns taps, too; the other rows do not wait for its import."""
    import sot_torch_ref.torchvision_ops  # noqa: F401  isort: skip (timm beside a CPU torch)
    import timm

    model = timm.create_model(
        named.name, pretrained=False, num_classes=num_classes, **named.options
    )
    taps: dict[str, torch.Tensor] = {}

    def listen(name: str) -> Callable:
        def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
            taps[name] = output.flatten(1, 2) if output.ndim == 4 else output

        return hook

    for module_name, module in model.named_modules():
        tap = module_name.replace("layers.", "stages.")
        if re.fullmatch(named.taps, tap):
            module.register_forward_hook(listen(tap))
    plain_forward = model.forward

    def forward(images: torch.Tensor, return_taps: bool = False) -> Any:
        """Turn images (B, 3, H, W) into logits, or into (logits, taps as (B, N, C))."""
        logits = plain_forward(images)
        heard = {**taps, "logits": logits}
        taps.clear()
        return (logits, heard) if return_taps else logits

    model.forward = forward
    return model
