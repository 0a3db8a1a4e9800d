"""The reference's models as built, at full size and without memory for their weights.

A dispatch mode turns every ``torch.empty`` into a meta tensor and notes what fills it: the draw of
``normal_``, ``uniform_`` and the like is the initial distribution, by the reference's own code. All
else (tables, masks, statistics) is computed as always.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import sot_torch_ref
from sot_paddle.convert import build_plan
from sot_paddle.convert.engine.conversion_plan import ConversionPlan
from sot_torch_ref.backbones import conv_bert, swin, token_embed, vit
from sot_torch_ref.heads import pooling, power_norm
from sot_torch_ref.train.optimizer import is_decayed, is_decayed_vision

from .built_records import GCP, MGCRP, SHARED, SVPN, Built, Named, facts_of
from .sides import torch_precision

Start = tuple[Any, ...]

_COMPUTED = re.compile(r".*\.(position_ids|token_type_ids)|gpt\.h\.\d+\.attn\.bias")
"""Buffers of transformers that Paddle's encoder computes when it runs."""

_ENCODER_MODULES: tuple[tuple[str, str], ...] = (
    (r"(.*)\.layer\.(\d+)\.attention\.self(\.dropout)?", r"\1.layers.\2.self_attn"),
    (r"(.*)\.layer\.(\d+)\.attention\.output\.dropout", r"\1.layers.\2.dropout1"),
    (r"(.*)\.layer\.(\d+)\.intermediate", r"\1.layers.\2.dropout"),
    (r"(.*)\.layer\.(\d+)\.output\.dropout", r"\1.layers.\2.dropout2"),
    (r"(.*)\.layer\.(\d+)", r"\1.layers.\2"),
    (r"gpt\.h\.(\d+)\.attn", r"gpt.layers.\1.attn"),
    (r"gpt\.h\.(\d+)\.attn\.attn_dropout", r"gpt.layers.\1.attn.attn_drop"),
    (r"gpt\.h\.(\d+)\.attn\.resid_dropout", r"gpt.layers.\1.attn.proj_drop"),
    (r"gpt\.h\.(\d+)\.mlp", r"gpt.layers.\1.mlp"),
    (r"gpt\.h\.(\d+)\.mlp\.dropout", r"gpt.layers.\1.mlp.drop"),
)
"""Modules of transformers' encoder that have no tensor of their own, in paddlenlp's names."""


class DrawRecorder(TorchDispatchMode):
    """Gives new tensors no memory and notes how each storage was filled last."""

    def __init__(self) -> None:
        super().__init__()
        self._starts: dict[int, Start] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operator; see the class."""
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if name in _FILLS:
            self._note(args[0], _FILLS[name](*args[1:], **kwargs))
            if args[0].is_meta:
                return args[0]  # there is nothing to fill
        if name == "empty":
            kwargs["device"] = "meta"
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and _key(result) not in _keys(args):
            self._starts.pop(_key(result), None)  # the address may have been another tensor's
        if name == "randn":
            self._note(result, ("normal", 0.0, 1.0))
        return result

    def _note(self, tensor: torch.Tensor, start: Start) -> None:
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        before = self._starts.get(_key(tensor), ())
        self._starts[_key(tensor)] = start if whole else (*before, (*start, tensor.numel()))

    def start(self, tensor: torch.Tensor) -> Start:
        """(family, its two numbers), then parts that were filled otherwise with their sizes."""
        noted = self._starts.get(_key(tensor))
        if noted is not None or tensor.is_meta:
            return noted or ("nothing",)
        value = tensor.detach().reshape(-1)
        same = bool((value == value[0]).all())
        return ("constant", value[0].item()) if same else ("values",)


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _keys(given: Iterable[Any]) -> set[int]:
    return {_key(one) for one in given if isinstance(one, torch.Tensor)}


def _normal(mean: float = 0.0, std: float = 1.0, **_: Any) -> Start:
    return ("normal", mean, std)


def _uniform(low: float = 0.0, high: float = 1.0, **_: Any) -> Start:
    return ("uniform", low, high)


_FILLS: Mapping[str, Callable[..., Start]] = {
    "normal_": _normal,
    "uniform_": _uniform,
    "zero_": lambda **_: ("constant", 0.0),
    "fill_": lambda value, **_: ("constant", float(value)),
}


def describe(name: str, options: Mapping[str, Any], precision: str = "float32") -> Built:
    """Build a model of the reference and say what it is, in Paddle's names."""
    recorder = DrawRecorder()
    with torch_precision(precision), recorder:
        model = sot_torch_ref.create_model(name, **options)
    state = model.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    plan = build_plan("sot_torch_ref", name, shapes)
    buffers = {name: b for name, b in model.named_buffers() if not _COMPUTED.fullmatch(name)}
    kept = {n: b.numpy() for n, b in buffers.items() if n in state and n not in plan.ignored}
    values = plan.apply(kept, partial=True)
    for tensor, buffer in buffers.items():
        if tensor not in state:  # Swin's tables, which no checkpoint holds
            values[re.sub(r"\.mask$", ".shift_mask", tensor)] = buffer.numpy()
    return Built(
        _tensors(model, plan, recorder),
        _modules(model, plan),
        _options(model, name),
        values,
    )


def _tensors(model: nn.Module, plan: ConversionPlan, recorder: DrawRecorder) -> Named:
    parameters = dict(model.named_parameters())
    state = model.state_dict()
    found: Named = {}
    for entry in plan.entries:
        own = parameters.get(entry.source)
        trained = own is not None and own.requires_grad
        found[entry.destination] = {
            "shape": entry.destination_shape,
            "dtype": str(state[entry.source].dtype).removeprefix("torch."),
            "parameter": own is not None,
            "trained": trained,
            "decayed (text)": trained and is_decayed(entry.source),
            "decayed (vision)": own is not None
            and trained
            and is_decayed_vision(entry.source, own),
        }
        if own is not None:
            found[entry.destination]["start"] = recorder.start(own)
    return found


def _modules(model: nn.Module, plan: ConversionPlan) -> Named:
    parents = {e.source.rpartition(".")[0]: e.destination.rpartition(".")[0] for e in plan.entries}
    found: Named = {}
    for name, module in model.named_modules():
        facts = _constants(module)
        if facts and not name.endswith("attention.self.dropout"):  # its owner says it
            found[parents.get(name) or renamed(name)] = facts
    return found


def renamed(name: str) -> str:
    """A module of transformers' encoder in paddlenlp's names; other names as they are."""
    for pattern, replacement in _ENCODER_MODULES:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name


def _options(model: Any, name: str) -> Named:
    backbone = getattr(model, "encoder_config", None) or model.config
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    found = {
        "(backbone options)": dataclasses.asdict(backbone),
        "(head options)": dataclasses.asdict(model.head_config),
        "(model)": {"name": name, "classes": layers[-1].out_features},
    }
    if hasattr(model, "embed"):
        found["embed"] = {"tokens": model.embed.num_tokens, "grid": model.embed.grid_size}
        found["(model)"]["size"] = backbone.img_size
        found["(model)"]["class token"] = hasattr(model, "cls_token")
    return found


def _convolution(layer: nn.Conv2d) -> dict[str, Any]:
    plain = layer.kernel_size == (1, 1) and layer.stride == (1, 1)
    return {} if plain else {"stride": layer.stride, "padding": layer.padding}


def _dropout(p: float) -> dict[str, Any]:
    return {"p": p, "mode": "upscale_in_train"}  # torch has no other


def _activation(layer: Any) -> dict[str, Any]:
    return {"normalised before": False, **_activation_alone(layer.intermediate.intermediate_act_fn)}


def _activation_alone(function: Any) -> dict[str, Any]:
    values = function(torch.tensor([-1.5, -0.5, 0.75], dtype=torch.float64))
    return {"activation at -1.5, -.5, .75": tuple(values.tolist())}


_CONSTANTS: Mapping[type | str, Callable[[Any], dict[str, Any]]] = {
    nn.LayerNorm: lambda m: {"epsilon": m.eps},
    nn.BatchNorm2d: lambda m: {"epsilon": m.eps, "momentum": m.momentum},
    nn.Dropout: lambda m: _dropout(m.p),
    nn.Conv2d: _convolution,
    vit.Attention: lambda m: {"scale": m.scale, "heads": m.num_heads},
    swin.WindowAttention: lambda m: {"scale": m.scale, "heads": m.num_heads},
    token_embed.Transition: lambda m: {"pool": m.pool},
    token_embed.InceptionBlock: lambda m: {"stride": m.stride},
    power_norm.SvPN: facts_of(*SVPN, columns="input_dim"),
    power_norm.MPN: facts_of("num_iter", "on_zero"),
    pooling.MGCrP: facts_of(*MGCRP),
    pooling.GCP: facts_of(*GCP),
    "Attention": lambda m: {"scale": (m.split_size // m.n_head) ** -0.5, "heads": m.n_head},
    "MLP": lambda m: _activation_alone(m.act),
    conv_bert.Block: lambda m: _activation_alone(m.activation),
    conv_bert.Projection: lambda m: (
        _activation_alone(m.activation) if hasattr(m, "activation") else {}
    ),
    conv_bert.SelfAttention: lambda m: {"heads": m.heads, "size": m.size},
    nn.Conv1d: lambda m: {"padding": m.padding[0], "groups": m.groups},
    **{
        f"{family}{part}": read
        for family in ("Bert", "Roberta")
        for part, read in (
            (
                "SelfAttention",
                lambda m: {"heads": m.num_attention_heads, "dropout": m.dropout.p},
            ),
            ("Intermediate", lambda m: _dropout(0.0)),  # none after the activation
            ("Layer", _activation),
        )
    },
}
"""Constants of a module by its class, or by its name where transformers is not to be imported."""


def _constants(module: nn.Module) -> dict[str, Any]:
    for kind in type(module).__mro__:
        name = kind.__name__
        of_transformers = _CONSTANTS.get(name) if "transformers" in kind.__module__ else None
        facts = _CONSTANTS.get(kind) or of_transformers or SHARED.get(name)
        if facts:
            return facts(module)
    return facts_of("output_dim")(module) if hasattr(module, "output_dim") else {}
