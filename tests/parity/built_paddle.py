"""The product's models as built, at full size and without memory for their weights.

Under ``paddle.LazyGuard`` a parameter holds its initialiser instead of values, so its family and
scale can be read. paddlenlp's encoder draws its weights anew after building; those draws are noted
instead of being made.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import paddle
from paddle import nn
from paddle.base.framework import EagerParamBase
from paddle.nn import initializer

import sot_paddle
from sot_paddle.backbones import token_stages
from sot_paddle.backbones.conv_bert import ConvAttention, ConvBertLayer, TokenProjection
from sot_paddle.backbones.gpt import GptMlp
from sot_paddle.backbones.layers import Attention
from sot_paddle.backbones.swin_blocks import WindowAttention
from sot_paddle.heads import pooling, power_norm
from sot_paddle.train.optimizer import decayed_names, decayed_names_by_shape

from .built_records import GCP, MGCRP, SHARED, SVPN, Built, Named, facts_of
from .sides import paddle_precision

Start = tuple[Any, ...]


@dataclass(frozen=True)
class _Drawn:
    """A draw that was noted instead of being made."""

    start: Start


@contextlib.contextmanager
def noted_draws() -> Iterator[dict[str, Start]]:
    """Within the block ``paddle.tensor.normal`` draws nothing; what takes its result is noted.

    Yields:
        Automatic name of a parameter -> (family, mean, deviation).
    """
    drawn: dict[str, Start] = {}
    set_value = EagerParamBase.set_value

    def note(parameter: paddle.Tensor, value: Any) -> None:
        if isinstance(value, _Drawn):
            drawn[parameter.name] = value.start
        else:
            drawn.pop(parameter.name, None)
            set_value(parameter, value)

    def draw(mean: float = 0.0, std: float = 1.0, shape: Any = None, name: Any = None) -> _Drawn:
        return _Drawn(("normal", mean, std))

    with (
        mock.patch.object(paddle.tensor, "normal", draw),
        mock.patch.object(EagerParamBase, "set_value", note),
    ):
        yield drawn


def describe(name: str, options: Mapping[str, Any], precision: str = "float32") -> Built:
    """Build a model of the product and say what it is."""
    with paddle_precision(precision), paddle.LazyGuard(), noted_draws() as drawn:
        model = sot_paddle.create_model(name, **options)
    buffers = {name: b.numpy() for name, b in model.state_dict().items() if not _is_parameter(b)}
    return Built(
        _tensors(model, drawn),
        _modules(model),
        _options(model),
        {**buffers, **_tables(model)},
    )


def _is_parameter(tensor: paddle.Tensor) -> bool:
    return isinstance(tensor, EagerParamBase)


def _tensors(model: nn.Layer, drawn: Mapping[str, Start]) -> Named:
    text, vision = decayed_names(model), decayed_names_by_shape(model)
    found: Named = {}
    for name, tensor in model.state_dict().items():
        own = _is_parameter(tensor)
        found[name] = {
            "shape": tuple(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("paddle."),
            "parameter": own,
            "trained": own and not tensor.stop_gradient,
            "decayed (text)": name in text,
            "decayed (vision)": name in vision,
        }
        if own:
            found[name]["start"] = drawn.get(tensor.name) or start(tensor)
    return found


def start(parameter: paddle.Tensor) -> Start:
    """(family, its numbers) of an unmade parameter's initialiser, or of values it was given."""
    if parameter._is_initialized():
        value: np.ndarray = parameter.numpy().reshape(-1)
        same = bool((value == value[0]).all())
        return ("constant", float(value[0])) if same else ("values",)
    held = parameter._init_func.func.__self__
    for kind, read in _FAMILIES.items():
        if isinstance(held, kind):
            return read(held)
    return (type(held).__name__,)


_FAMILIES: Mapping[type, Callable[[Any], Start]] = {
    initializer.Normal: lambda i: ("normal", i._mean, i._std_dev),
    initializer.Uniform: lambda i: ("uniform", i._low, i._high),
    initializer.Constant: lambda i: ("constant", float(np.float32(i._value))),
}


def _modules(model: nn.Layer) -> Named:
    found = {name: _constants(layer) for name, layer in model.named_sublayers()}
    return {name: facts for name, facts in found.items() if facts}


def _options(model: Any) -> Named:
    found = {
        "(backbone options)": dataclasses.asdict(model.backbone_config),
        "(head options)": dataclasses.asdict(model.head_config),
        "(model)": {"name": model.name, "classes": model.num_classes},
    }
    if hasattr(model, "embed"):
        found["embed"] = {"tokens": model.embed.num_tokens, "grid": model.embed.grid}
        found["(model)"]["size"] = model.img_size
        found["(model)"]["class token"] = model.backbone_config.has_class_token
    return found


def _tables(model: nn.Layer) -> dict[str, np.ndarray]:
    """What windows hold beside their weights: indices of the bias table, masks of the shift."""
    found: dict[str, np.ndarray] = {}
    for name, layer in model.named_sublayers():
        if isinstance(layer, WindowAttention):
            index = layer._index[0].numpy().reshape(layer.area, layer.area)
            found[f"{name}.relative_position_index"] = index
            if layer.shift_mask is not None:  # the reference's stands in the block
                found[f"{name.rpartition('.')[0]}.shift_mask"] = layer.shift_mask.numpy()[0]
    return found


def _convolution(layer: nn.Conv2D) -> dict[str, Any]:
    stride, padding = _two(layer._stride), _two(layer._padding)
    plain = tuple(layer.weight.shape[2:]) == (1, 1) and stride == (1, 1)
    return {} if plain else {"stride": stride, "padding": padding}


def _two(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _activation(layer: Any) -> dict[str, Any]:
    return {"normalised before": layer.normalize_before, **_activation_alone(layer)}


def _activation_alone(layer: Any) -> dict[str, Any]:
    values = layer.activation(paddle.to_tensor([-1.5, -0.5, 0.75], dtype="float64"))
    return {"activation at -1.5, -.5, .75": tuple(values.tolist())}


_CONSTANTS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    power_norm.RowLayerNorm: lambda m: {"epsilon": m.epsilon},
    nn.LayerNorm: lambda m: {"epsilon": m._epsilon},
    pooling.TokenBatchNorm: lambda m: {"epsilon": m.epsilon, "momentum": 1.0 - m.momentum},
    nn.Dropout: lambda m: {"p": m.p, "mode": m.mode},
    nn.Conv2D: _convolution,
    Attention: lambda m: {"scale": m.scale, "heads": m.num_heads},
    token_stages.Transition: lambda m: {"pool": isinstance(m.pool, nn.AvgPool2D)},
    token_stages.InceptionBlock: lambda m: {"stride": m.pool.stride},
    power_norm.SvPN: facts_of(*SVPN, columns="dim"),
    power_norm.MatrixSqrt: facts_of("num_iter", "on_zero"),
    pooling.MultiHeadCrossCovariance: facts_of(*MGCRP),
    pooling.CovariancePooling: facts_of(*GCP),
    nn.MultiHeadAttention: lambda m: {"heads": m.num_heads, "dropout": m.dropout},
    nn.TransformerEncoderLayer: _activation,
    GptMlp: _activation_alone,
    ConvBertLayer: _activation_alone,
    TokenProjection: lambda m: _activation_alone(m) if hasattr(m, "activation") else {},
    ConvAttention: lambda m: {"heads": m.num_heads, "size": m.head_size},
    nn.Conv1D: lambda m: {"padding": m._padding, "groups": m._groups},
}
"""Constants of a layer by its class."""


def _constants(layer: nn.Layer) -> dict[str, Any]:
    for kind in type(layer).__mro__:
        facts = _CONSTANTS.get(kind) or SHARED.get(kind.__name__)
        if facts:
            return facts(layer)
    return facts_of("output_dim")(layer) if hasattr(layer, "output_dim") else {}
