"""Both models of a row with the same weights, as the request of a comparison.

What a model records of itself (its taps: embeddings, every layer, the parts of its head) is its
output here; layers are compared one by one only where a tap differs, for the cause.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import torch

import sot_paddle
import sot_torch_ref
from align.frameworks import on_torch
from align.port.port_inputs import (
    draw_batch,
    draw_state,
    encoder_sizes,
    paddle_factory,
    torch_factory,
    training_batches,
)
from align.port.row import WORDS_DIM, Batch, Choices, PortRow, TimmModel
from align.record.arrays import Arrays
from align.record.request import Request
from sot_paddle.config import HeadConfig
from sot_paddle.convert import build_plan
from sot_paddle.data.corpus import REAL_SENTENCES
from sot_paddle.features import Features, Taps, record
from sot_paddle.heads import adapter_pooler, build_head
from sot_paddle.tasks import losses
from sot_torch_ref.features import Features as TorchFeatures
from sot_torch_ref.heads import HeadConfig as TorchHeadConfig
from sot_torch_ref.heads import adapter_pooler as torch_adapters
from sot_torch_ref.heads import build_head as build_torch_head
from sot_torch_ref.train import losses as torch_losses

ORDER = "(order of the taps)"
Outputs = dict[str, Any]


def request_of(row: PortRow, dtypes: Sequence[str], choices: Choices) -> Request:
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
    shown = None if row.timm is None else {*row.timm.hooks, "logits"}
    torch_outputs = functools.partial(_outputs, make_tensor=torch.tensor, valid=valid, shown=None)
    paddle_outputs = functools.partial(
        _outputs, make_tensor=paddle.to_tensor, valid=valid, shown=shown
    )
    return Request(
        functools.partial(_loaded_torch_model, row, state),
        functools.partial(_paddle_model, row),
        inputs,
        outputs=(torch_outputs, paddle_outputs),
        loss=_losses(row),
        labels=labels,
        weights=_mapping(row, state),
        train=row.train,
        shake=False,
        name=row.name,
        dtype=tuple(dtypes),
        **_training(row, choices.checkpoint),
    )


def by_layers(request: Request, unlike: Sequence[str] = ()) -> Request:
    """Turn a row's request into one that pairs the layers of both models, forward and backward.

    Returns:
        The request in float64, whose outputs are the logits alone.
    """
    torch_outputs = functools.partial(_outputs, make_tensor=torch.tensor, **_LOGITS_ALONE)
    paddle_outputs = functools.partial(_outputs, make_tensor=paddle.to_tensor, **_LOGITS_ALONE)
    return dataclasses.replace(
        request,
        outputs=(torch_outputs, paddle_outputs),
        weights={**request.weights, "modules": dict.fromkeys(unlike)},
        dtype=("float64",),
        optimizer=None,
        batches=None,
        steps=0,
        schedule_steps=0,
        accumulate=1,
    )


_LOGITS_ALONE: Mapping[str, Any] = {"valid": None, "shown": {"logits"}}


def _inputs_and_labels(row: PortRow, batch: Arrays) -> tuple[dict[str, Any], np.ndarray]:
    """Split a batch; a whole model is asked for its taps, a head alone returns them unasked."""
    inputs: dict[str, Any] = {name: value for name, value in batch.items() if name != "labels"}
    if row.subject in ("text", "images"):
        inputs["return_taps"] = True
    return inputs, batch["labels"]


def _mapping(row: PortRow, state: Arrays) -> dict[str, Any]:
    """Return the table of the tensors from the conversion plan; taps stand for the layers.

    Models on hidden states have the same names on both sides: there is nothing to plan.
    """
    if row.subject == "states":
        return {"map": {}, "modules": {"*": None}}
    layout = "sot_torch_ref" if row.timm is None else row.timm.layout
    names = build_plan(layout, row.model, _planned_shapes(row, state)).names()
    tensors = {name: line for name, line in names["map"].items() if name in state}
    return {**names, "map": tensors, "modules": {"*": None}}


def _planned_shapes(row: PortRow, state: Arrays) -> dict[str, tuple[int, ...]]:
    """Return names and shapes to plan from; a head alone is planned as part of a small BERT."""
    if row.subject == "words":
        encoder = {"hidden_size": WORDS_DIM, "num_attention_heads": 1, "num_hidden_layers": 1}
        options = {**row.options, **encoder, "fusion": "word_tokens"}
        host = dataclasses.replace(row, subject="text", options=options)
        return {n: tuple(t.shape) for n, t in _torch_model(host, "float32").state_dict().items()}
    return {name: tuple(value.shape) for name, value in state.items()}


def _training(row: PortRow, checkpoint: Path | None) -> dict[str, Any]:
    """Return the recipe as optimizer factories, and a batch for each forward pass."""
    if row.recipe is None:
        return {}
    return {
        "optimizer": (torch_factory(row.recipe), paddle_factory(row.recipe)),
        "steps": row.recipe.steps,
        "accumulate": row.recipe.accumulate,
        "batches": [_inputs_and_labels(row, batch) for batch in training_batches(row, checkpoint)],
    }


def _outputs(
    output: Any, *, make_tensor: Callable, valid: np.ndarray | None, shown: set[str] | None
) -> Outputs:
    """Turn (logits, taps) into one mapping: the taps, what the loss takes, the order of the taps.

    Of real sentences the last hidden states come at valid positions as well: padded positions are
    ill-conditioned, the words themselves are not.

    Args:
        valid: flat positions of the words.
        shown: the taps that both sides have, None for all.
    """
    logits, all_taps = output
    taps = {name: tap for name, tap in all_taps.items() if shown is None or name in shown}
    outputs: Outputs = {}
    if valid is not None:
        last = [name for name in taps if name.startswith("layers.")][-1]
        outputs[f"{last} (valid positions)"] = taps[last].flatten(0, 1)[make_tensor(valid)]
    outputs.update(taps)
    if isinstance(logits, tuple):
        outputs["output"] = logits
    places = sorted(taps)
    outputs[ORDER] = make_tensor([places.index(name) for name in taps])
    return outputs


def _losses(row: PortRow) -> tuple[Callable, Callable]:
    """Return PyTorch's and Paddle's loss of `_outputs` and labels."""
    chosen = _OWN_LOSSES.get(row.options.get("pooling", row.model))
    if chosen is None:
        classes = (torch_losses.task_loss, losses.classification_loss)
        soft_targets = (torch_losses.soft_target_cross_entropy, losses.classification_loss)
        chosen = soft_targets if row.subject == "images" else classes
    torch_loss, paddle_loss = chosen
    return _of_outputs(torch_loss), _of_outputs(paddle_loss)


def _of_outputs(loss: Callable) -> Callable:
    return lambda outputs, labels: loss(outputs.get("output", outputs["logits"]), labels)


_OWN_LOSSES: Mapping[str, tuple[Callable, Callable]] = {
    "spans": (torch_losses.span_loss, losses.span_loss),
    "adapter_spans": (torch_losses.span_loss, losses.span_loss),
    "layer_classifiers": (torch_losses.layers_loss, losses.probe_loss),
    "layer_spans": (torch_losses.span_loss, losses.probe_loss),
}
"""Losses of the heads and models that have one of their own, PyTorch's and Paddle's."""


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
            model: torch.nn.Module = TorchWordsOnly(row.options, WORDS_DIM, row.num_classes)
        elif row.subject == "states":
            model = TorchOnStates(row.model, row.options, row.num_classes)
        elif row.timm is not None:
            model = _timm_model(row.timm, row.num_classes)
        else:
            model = sot_torch_ref.create_model(row.model, row.num_classes, **row.options)
    return model.train(row.train)


def _paddle_model(row: PortRow) -> paddle.nn.Layer:
    if row.subject == "words":
        model: paddle.nn.Layer = PaddleWordsOnly(row.options, WORDS_DIM, row.num_classes)
    elif row.subject == "states":
        model = PaddleOnStates(row.model, row.options, row.num_classes)
    else:
        model = sot_paddle.create_model(row.model, row.num_classes, **row.options)
    model.train() if row.train else model.eval()
    return model


class PaddleWordsOnly(paddle.nn.Layer):
    """A head without a class token, on tokens given as they are."""

    def __init__(self, options: Mapping[str, Any], dim: int, num_classes: int) -> None:
        super().__init__()
        config = HeadConfig(**options)
        self.head = build_head(config, dim=dim, num_classes=num_classes, has_class_token=False)

    def forward(self, tokens: paddle.Tensor) -> tuple[paddle.Tensor, Taps]:
        """Turn tokens (B, N, C) into (logits, taps)."""
        taps: Taps = {}
        logits = self.head(Features(None, tokens, None), taps)
        return record(taps, "logits", logits), taps


class TorchWordsOnly(torch.nn.Module):
    """A head without a class token, on tokens given as they are."""

    def __init__(self, options: Mapping[str, Any], dim: int, num_classes: int) -> None:
        super().__init__()
        config = TorchHeadConfig(**options)
        self.head = build_torch_head(
            config, hidden_size=dim, num_classes=num_classes, has_class_token=False
        )

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Turn tokens (B, N, C) into (logits, taps)."""
        logits, taps = self.head(TorchFeatures(cls=None, words=tokens, mask=None))
        return logits, _under_head(taps)


class PaddleOnStates(paddle.nn.Layer):
    """A model on hidden states; `_PADDLE_ON_STATES` holds their names."""

    def __init__(self, name: str, options: Mapping[str, Any], num_classes: int) -> None:
        super().__init__()
        config = adapter_pooler.AdapterConfig(**options)
        self.head = _PADDLE_ON_STATES[name](config, num_classes)

    def forward(self, states: paddle.Tensor) -> tuple[Any, Taps]:
        """Turn hidden states (B, L, T, F) into (output, taps)."""
        taps: Taps = {}
        return self.head(states, taps), taps


class TorchOnStates(torch.nn.Module):
    """A model on hidden states; `_TORCH_ON_STATES` holds their names."""

    def __init__(self, name: str, options: Mapping[str, Any], num_classes: int) -> None:
        super().__init__()
        self.head = _TORCH_ON_STATES[name](num_classes=num_classes, **options)

    def forward(self, states: torch.Tensor) -> tuple[Any, dict[str, torch.Tensor]]:
        """Turn hidden states (B, L, T, F) into (output, taps)."""
        output, taps = self.head(states)
        return output, _under_head(taps)


def _under_head(taps: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Name the taps of a head alone as those of a whole model."""
    return {name if name == "logits" else f"head.{name}": tap for name, tap in taps.items()}


_PADDLE_ON_STATES: Mapping[str, Callable[..., paddle.nn.Layer]] = {
    "adapter_classifier": adapter_pooler.AdapterClassifier,
    "adapter_spans": lambda config, _: adapter_pooler.AdapterSpans(config),
    "layer_classifiers": adapter_pooler.LayerClassifiers,
    "layer_spans": lambda config, _: adapter_pooler.LayerSpans(config),
}
_TORCH_ON_STATES: Mapping[str, Callable[..., torch.nn.Module]] = {
    "adapter_classifier": torch_adapters.AdapterClassifier,
    "adapter_spans": lambda num_classes, **options: torch_adapters.AdapterSpans(**options),
    "layer_classifiers": lambda num_layers, hidden_size, num_classes, **_: (
        torch_adapters.LayerClassifiers(num_layers, hidden_size, num_classes=num_classes)
    ),
    "layer_spans": lambda num_layers, hidden_size, **_: torch_adapters.LayerSpans(
        num_layers, hidden_size
    ),
}


def _timm_model(named: TimmModel, num_classes: int) -> torch.nn.Module:
    """Build timm's model, which returns taps, too; the other rows do not wait for its import."""
    import sot_torch_ref.torchvision_ops  # noqa: F401  isort: skip (timm beside a CPU torch)
    import timm

    model = timm.create_model(
        named.name, pretrained=False, num_classes=num_classes, **named.options
    )
    modules, plain_forward = dict(model.named_modules()), model.forward

    def forward(images: torch.Tensor, return_taps: bool = False) -> Any:
        """Turn images (B, 3, H, W) into logits, or into (logits, taps as (B, N, C))."""
        taps: dict[str, torch.Tensor] = {}

        def listen(name: str) -> Callable:
            def hook(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
                taps[name] = output.flatten(1, 2) if output.ndim == 4 else output

            return hook

        with contextlib.ExitStack() as hooks:
            for tap, module in named.hooks.items():
                hooks.callback(modules[module].register_forward_hook(listen(tap)).remove)
            taps["logits"] = logits = plain_forward(images)
        return (logits, taps) if return_taps else logits

    model.forward = forward
    return model
