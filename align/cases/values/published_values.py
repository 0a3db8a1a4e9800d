"""Step ``forward`` of the layers that the original's dictionaries describe.

Ours: ``sot_paddle.published``. Reference: the same part of a whole reference model, built from the
reference's own options. The whole model also gives the weights and their conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import paddle
import torch

import sot_torch_ref
from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.sides import torch_side
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from sot_paddle import published
from sot_paddle.convert import build_plan
from sot_torch_ref.features import Features
from sot_torch_ref.heads import HeadConfig, build_head

_DIM, _CLASSES, _SIZE, _CHANNELS, _SEED = 12, 5, 32, 4, 13
_FIRST = "output 0"
_BERT = {
    "hidden_size": _DIM,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "vocab_size": 10,
    "max_position_embeddings": 8,
    "head_dropout": 0.0,
}
_SOT = {
    "img_size": _SIZE,
    "in_chans": _CHANNELS,
    "embed_dim": _DIM,
    "depth": 1,
    "num_heads": 2,
    "mlp_ratio": 1.0,
}


def layer(
    setting: Setting,
    *,
    named: str,
    dictionary: Mapping[str, Any],
    options: Mapping[str, Any],
    fault: Mapping[str, Any] | None = None,
    train: bool = True,
) -> BothSides:
    """What both sides' layers make of the same random tokens (or images).

    Args:
        setting: the precision.
        named: class of ``sot_paddle.published``.
        dictionary: what the original's README gives it; a number under ``regular`` stands for a
            dropout layer of that rate.
        options: the reference's own options of the same layer.
        fault: a dictionary that takes the same weights and computes something else, None for none.
        train: what it computes in training or in evaluation; rates of dropout are compared too.
    """
    dtype = setting.dtype
    torch.manual_seed(_SEED)
    with on_torch.default_dtype(dtype):
        whole, part, prefix = _hosts(named, options)
    whole.train(train)
    rng = np.random.default_rng(_SEED)
    state = {name: _away_from_zero(value, rng) for name, value in whole.state_dict().items()}
    torch_side.load_state(whole, state)
    given = rng.normal(size=(3, _CHANNELS, _SIZE, _SIZE) if prefix == "embed" else (4, 6, _DIM))
    model = "sot_tiny" if prefix == "embed" else "bert_base_mgcrp"
    plan = build_plan("sot_torch_ref", model, {n: v.shape for n, v in state.items()})
    weights = {
        name.partition(".")[2]: value
        for name, value in plan.apply(state).items()
        if name.startswith(f"{prefix}.")
    }
    with torch.no_grad():
        expected = _parts(part(torch.from_numpy(given)))
    facts = _rates(getattr(whole, prefix).modules(), torch.nn.Dropout)
    if prefix == "embed":
        facts["tokens"] = np.asarray(whole.embed.num_tokens)

    def of_ours(described: Mapping[str, Any], tokens: np.ndarray) -> tuple[Arrays, dict]:
        return _of_ours(named, described, weights, tokens, dtype, train)

    ours, stamp = of_ours(dictionary, given)
    faults = {"inputs 1 % larger": lambda: of_ours(dictionary, 1.01 * given)[0]}
    if fault is not None:
        faults[f"built from {dict(fault)}"] = lambda: of_ours(fault, given)[0]
    return BothSides(
        ours,
        {**{name: tensor.numpy() for name, tensor in expected.items()}, **facts},
        faults,
        named,
        stamps=stamps(stamp, on_torch.stamp(expected[_FIRST])),
    )


def _hosts(
    named: str, options: Mapping[str, Any]
) -> tuple[torch.nn.Module, Callable[[torch.Tensor], Any], str]:
    """A whole reference model, the call of its part, and the name of the part in it."""
    if named == "TokenEmbed":
        whole = sot_torch_ref.create_model("sot_tiny", _CLASSES, **_SOT, **options)
        return whole, lambda images: whole.embed(images)[0], "embed"
    whole = sot_torch_ref.create_model("bert_base_mgcrp", _CLASSES, **{**_BERT, **options})
    if named == "Classifier":
        return whole, lambda x: whole.head(Features(x[:, 0], x[:, 1:], None))[0], "head"
    config = HeadConfig(**{"head_dropout": 0.0, **options})
    alone = build_head(config, hidden_size=_DIM, num_classes=_CLASSES, has_class_token=False)

    def words(x: torch.Tensor) -> torch.Tensor:
        alone.load_state_dict(whole.head.state_dict())
        return alone(Features(None, x, None))[0]

    return whole, words, "head"


def _away_from_zero(value: torch.Tensor, rng: np.random.Generator) -> np.ndarray:
    """Weights with biases that show."""
    array = value.numpy()
    if array.dtype != np.float64 or array.ndim > 1:
        return array
    return np.asarray(array + 0.1 * rng.uniform(size=array.shape))


def _parts(output: Any) -> dict[str, Any]:
    """Logits by name: two of them where the losses are summed."""
    outputs = output if isinstance(output, tuple) else (output,)
    return {f"output {index}": tensor for index, tensor in enumerate(outputs)}


def _rates(layers: Iterable[Any], kind: type) -> Arrays:
    """Rates of the dropout layers; nothing where there is none."""
    rates = [layer.p for layer in layers if isinstance(layer, kind)]
    return {"rates of dropout": np.asarray(rates)} if rates else {}


def _with_layers(dictionary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The dictionary with a layer for the rate under ``regular``, however deep it is."""
    return {
        key: _with_layers(value)
        if isinstance(value, Mapping)
        else paddle.nn.Dropout(value)
        if key == "regular" and value is not None
        else value
        for key, value in dictionary.items()
    }


def _of_ours(
    named: str,
    dictionary: Mapping[str, Any],
    weights: Arrays,
    given: np.ndarray,
    dtype: str,
    train: bool,
) -> tuple[Arrays, dict]:
    """Build the product's layer from a dictionary, load the weights and call it."""
    build, described, facts = getattr(published, named), _with_layers(dictionary), {}
    with on_paddle.default_dtype(dtype), paddle.no_grad():
        if named == "TokenEmbed":
            made = build(described, img_size=_SIZE, in_chans=_CHANNELS, embed_dim=_DIM)
            inner, facts = made.tokens, {"tokens": np.asarray(made.num_patches)}
        else:
            made = build(described, num_classes=_CLASSES, input_dim=_DIM)
            inner = made.head
        on_paddle.load(inner, weights)
        made.train() if train else made.eval()
        parts = _parts(made(paddle.to_tensor(given)))
    found = {name: tensor.numpy() for name, tensor in parts.items()}
    facts |= _rates(made.sublayers(), paddle.nn.Dropout)
    return {**found, **facts}, on_paddle.stamp(parts[_FIRST])
