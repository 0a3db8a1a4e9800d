"""The rows of calls inside a forward method, and of this project's own layers.

s is the shape of the input, o the options, f a framework; d draws. Dropped, because the frameworks
themselves differ in float64 (docs/differences.md), so that no port is right there:

- a power with a fractional Python exponent: Paddle rounds the exponent to float32;
- bilinear interpolation with align_corners or a ratio that is no power of two: Paddle holds its
  places in float32;
- the head "mgcrp_qk": no other numbers, but its projections are linear layers here and 1 x 1
  convolutions there, so that the tensors of its inner layers have other shapes;
- max over an axis of integers: of equal maxima each framework hands on the gradient its own way.
"""

from __future__ import annotations

import numpy as np
import paddle
import torch

from sot_paddle.backbones.layers import Attention as PaddleAttention
from sot_paddle.backbones.layers import Mlp as PaddleMlp
from sot_paddle.config import HeadConfig as PaddleHeadConfig
from sot_paddle.features import Features as PaddleFeatures
from sot_paddle.heads import build_head as paddle_head
from sot_torch_ref.backbones.layers import Mlp as TorchMlp
from sot_torch_ref.backbones.vit import Attention as TorchAttention
from sot_torch_ref.features import Features as TorchFeatures
from sot_torch_ref.heads import HeadConfig as TorchHeadConfig
from sot_torch_ref.heads import build_head as torch_head
from sot_torch_ref.vision_config import ViTConfig as TorchViTConfig
from tests.align.right_pairs.pair_rows import (
    ANY,
    IMAGES,
    ROWS,
    TOKENS,
    WRONG_AXIS,
    Row,
    Wrong,
    alike,
    call,
    draw_axis,
)
from tests.align.small_pairs import model_of

TF, PF = torch.nn.functional, paddle.nn.functional


def _factor(d, s):
    return {"factor": d.of(0.5, 2.0, 0.125, 1 / 3)}


def _half(x, o):
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def _is_even(s):
    return s[-1] % 2 == 0


def _few(d, s):
    return {"k": d.of(*range(1, min(8, s[-1]) + 1))}


_WRONG_FACTOR = {"factor": Wrong(lambda s, o: 1.02 * o.factor, ("factor", "scale", "times"))}

CALLS = (
    call("scale", ANY, lambda f, x, o: x * o.factor, _factor, _WRONG_FACTOR),
    call("cumsum", ANY, lambda f, x, o: f.cumsum(x, o.axis), draw_axis, WRONG_AXIS),
    call(
        "logsumexp",
        (TOKENS, IMAGES),
        lambda f, x, o: f.logsumexp(x, o.axis, keepdim=True),
        draw_axis,
    ),
    call(
        "normalize",
        ANY,
        lambda f, x, o: f.nn.functional.normalize(x, o.p, o.axis),
        lambda d, s: {"p": 2, "axis": d.of(-1, 1)},
        {"axis": Wrong(0, ("axis",)), "p": Wrong(1, ("p ", "p:", "norm", "order"))},
    ),
    call(
        "softmax call",
        ANY,
        lambda f, x, o: f.nn.functional.softmax(x, o.axis),
        draw_axis,
        WRONG_AXIS,
    ),
    Row(
        "clip",
        ANY,
        lambda s, o: lambda x: torch.clamp(x, -o.limit, o.limit),
        lambda s, o: lambda x: paddle.clip(x, -o.limit, o.limit),
        lambda d, s: {"limit": d.of(0.75, 1.25, 2.75)},
        {"limit": Wrong(lambda s, o: 1.5 * o.limit, ("min", "max", "limit"))},
    ),
    call(
        "variance",
        (TOKENS, IMAGES),
        lambda f, x, o: x - f.var(x, -1, unbiased=o.unbiased, keepdim=True),
        lambda d, s: {"unbiased": d.chance(0.5)},
        {"unbiased": Wrong(lambda s, o: not o.unbiased, ("unbiased", "correction"))},
        lambda s: s[-1] > 2,
    ),
    call(
        "standardise",
        ANY,
        lambda f, x, o: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + o.epsilon),
        lambda d, s: {"epsilon": d.of(1e-2, 1e-3)},
        {"epsilon": Wrong(lambda s, o: 10 * o.epsilon, ("eps",))},
        lambda s: s[-1] > 4,
    ),
    call(
        "root mean square",
        ANY,
        lambda f, x, o: x * f.rsqrt(x.square().mean(-1, keepdim=True) + o.epsilon),
        lambda d, s: {"epsilon": d.of(1e-3, 1e-5)},
        {"epsilon": Wrong(lambda s, o: 100 * o.epsilon, ("eps",))},
    ),
    Row(
        "matmul with the transpose",
        (TOKENS,),
        lambda s, o: lambda x: torch.matmul(x, x.transpose(1, 2)) * s[-1] ** -0.5,
        lambda s, o: lambda x: paddle.matmul(x, x, transpose_y=True) * s[-1] ** -0.5,
    ),
    call("einsum", (TOKENS,), lambda f, x, o: f.einsum("bnc,bnd->bcd", x, x) / x.shape[1]),
    Row(
        "attention call",
        (TOKENS,),
        lambda s, o: lambda x: torch.softmax(x @ x.mT * s[-1] ** -0.5, -1) @ x,
        lambda s, o: lambda x: PF.softmax(x @ x.transpose([0, 2, 1]) * s[-1] ** -0.5, -1) @ x,
    ),
    call("topk", (ROWS, TOKENS), lambda f, x, o: f.topk(x, o.k, -1)[0], _few),
    Row(
        "gather",
        (ROWS, TOKENS),
        lambda s, o: (
            lambda x: torch.gather(x, -1, torch.argsort(x, dim=-1, stable=True)[..., : o.k])
        ),
        lambda s, o: (
            lambda x: paddle.take_along_axis(x, paddle.argsort(x, -1, stable=True)[..., : o.k], -1)
        ),
        _few,
    ),
    Row(
        "index_select",
        ANY,
        lambda s, o: lambda x: torch.index_select(x, 1, torch.tensor(o.index)),
        lambda s, o: lambda x: paddle.index_select(x, paddle.to_tensor(o.index), 1),
        lambda d, s: {"index": [int(i) for i in d.rng.integers(0, s[1], min(s[1], 40))]},
    ),
    call(
        "roll",
        ANY,
        lambda f, x, o: f.roll(x, o.by, 1),
        lambda d, s: {"by": d.of(1, 2, -1)},
        {"by": Wrong(lambda s, o: -o.by, ("shift", "roll"))},
        lambda s: s[1] > 4,
    ),
    call("flip", ANY, lambda f, x, o: f.flip(x, [o.axis]), draw_axis),
    Row(
        "pad",
        (TOKENS,),
        lambda s, o: lambda x: TF.pad(x, (0, 0, o.by, 1), value=o.value),
        lambda s, o: lambda x: PF.pad(x, [o.by, 1], value=o.value, data_format="NLC"),
        lambda d, s: {"by": d.of(1, 2), "value": d.of(0.0, 0.5)},
        {"value": Wrong(lambda s, o: o.value + 0.25, ("value",))},
    ),
    call(
        "pad images",
        (IMAGES,),
        lambda f, x, o: f.nn.functional.pad(x, [1, 1, 2, 2], mode=o.mode),
        lambda d, s: {"mode": d.of("reflect", "replicate", "constant", "circular")},
        {
            "mode": Wrong(
                lambda s, o: "replicate" if o.mode != "replicate" else "reflect", ("mode",)
            )
        },
        lambda s: min(s[2:]) > 3,
    ),
    call(
        "interpolate",
        (IMAGES,),
        lambda f, x, o: f.nn.functional.interpolate(x, scale_factor=2, mode=o.mode),
        lambda d, s: {"mode": d.of("nearest", "bilinear")},
        {"mode": Wrong(lambda s, o: "nearest" if o.mode == "bilinear" else "bilinear", ("mode",))},
    ),
    call("global average", (IMAGES,), lambda f, x, o: x.mean([2, 3])),
    call("mean of tokens", (TOKENS,), lambda f, x, o: x.mean(1)),
    call(
        "first token",
        (TOKENS,),
        lambda f, x, o: x[:, o.at],
        lambda d, s: {"at": 0},
        {"at": Wrong(-1, ("token", "index", "row", "last", "position"))},
        lambda s: s[1] > 1,
    ),
    Row(
        "patches to tokens",
        (IMAGES,),
        lambda s, o: lambda x: x.flatten(2).transpose(1, 2),
        lambda s, o: lambda x: x.flatten(2).transpose([0, 2, 1]),
    ),
    call(
        "flatten",
        (TOKENS, IMAGES),
        lambda f, x, o: x.flatten(1),
        fits=lambda s: np.prod(s[1:]) <= 4096,
    ),
    Row(
        "gated",
        ANY,
        lambda s, o: lambda x: _half(x, o)[0] * torch.sigmoid(_half(x, o)[1]),
        lambda s, o: lambda x: _half(x, o)[0] * PF.sigmoid(_half(x, o)[1]),
        fits=_is_even,
    ),
    call(
        "exp of minus squares",
        ANY,
        lambda f, x, o: f.exp(-x.square() * o.factor),
        _factor,
        _WRONG_FACTOR,
    ),
    call("log1p of squares", ANY, lambda f, x, o: f.log1p(x.square())),
    call(
        "square root",
        ANY,
        lambda f, x, o: f.sqrt(x.square() + o.epsilon),
        lambda d, s: {"epsilon": d.of(1e-2, 1e-1)},
        {"epsilon": Wrong(lambda s, o: 4 * o.epsilon, ("eps", "value", "constant"))},
    ),
    call("sine", ANY, lambda f, x, o: f.sin(x)),
    call("erf", ANY, lambda f, x, o: f.erf(x)),
    call("arctangent", ANY, lambda f, x, o: f.atan(x)),
    call(
        "cosine similarity",
        (TOKENS,),
        lambda f, x, o: f.nn.functional.cosine_similarity(x, x.roll(1, 1), -1),
        fits=lambda s: s[-1] > 2,
    ),
    call(
        "where",
        ANY,
        lambda f, x, o: f.where(x > o.limit, x, x * o.slope),
        lambda d, s: {"limit": d.of(0.3, -0.3), "slope": 0.25},
        {"slope": Wrong(0.5, ("slope", "factor", "scale", "times"))},
    ),
    call("max over tokens", (TOKENS,), lambda f, x, o: x.amax(1)),
    call(
        "masked fill",
        ANY,
        lambda f, x, o: x.masked_fill(x > o.limit, o.value),
        lambda d, s: {"limit": d.of(0.7, 1.3), "value": 0.5},
        {"value": Wrong(0.75, ("value", "fill"))},
    ),
)


def _bilinear(f, s, o):
    """A bilinear form of a tensor and itself."""
    form = f.nn.Bilinear(s[-1], s[-1], o.width)
    return model_of(f, lambda model, x: model.form(x, x), form=form)


def _mgcrp(d, s):
    return {
        "classes": d.of(2, 10, 100),
        "pooling": "mgcrp",
        "head_num_heads": d.of(2, 4, 6),
        "wr_dim": d.of(8, 14, 24),
        "alpha": d.of(0.5, 0.25),
        "num_iter": d.of(1, 2),
        "centering": d.of("scalar", "channel"),
        "fusion": d.of("sum_fc", "concat"),
    }


def _gcp(d, s):
    return {"classes": d.of(2, 10), "pooling": "gcp", "head_num_heads": 2, "qkv_dim": 8}


def _head_row(name, draw, wrong):
    """A head of either side on tokens, the first of which is the class token."""

    def of(o):
        return {key: value for key, value in vars(o).items() if key != "classes"}

    def torch_side(s, o):
        head = torch_head(TorchHeadConfig(**of(o)), hidden_size=s[-1], num_classes=o.classes)
        return model_of(torch, lambda m, x: m.head(TorchFeatures(x[:, 0], x[:, 1:]))[0], head=head)

    def paddle_side(s, o):
        head = paddle_head(PaddleHeadConfig(**of(o)), dim=s[-1], num_classes=o.classes)
        return model_of(paddle, lambda m, x: m.head(PaddleFeatures(x[:, 0], x[:, 1:])), head=head)

    return Row(name, (TOKENS,), torch_side, paddle_side, draw, wrong, lambda s: s[1] > 2)


_ALPHA = Wrong(lambda s, o: 0.75 * o.alpha, ("alpha",))
_ITERATIONS = Wrong(lambda s, o: o.num_iter + 1, ("iter",))
_CENTERING = Wrong(lambda s, o: "channel" if o.centering == "scalar" else "scalar", ("center",))


def _vit_config(s, o):
    sizes = {"embed_dim": s[-1], "num_heads": o.heads, "depth": 1, "mlp_ratio": 1.0}
    return TorchViTConfig(**sizes, qkv_bias=o.bias)


OWN = (
    alike(
        "Bilinear",
        (ROWS,),
        _bilinear,
        lambda d, s: {"width": d.log(1, 32)},
        fits=lambda s: s[-1] <= 64,
    ),
    _head_row(
        "MGCrP head", _mgcrp, {"alpha": _ALPHA, "num_iter": _ITERATIONS, "centering": _CENTERING}
    ),
    _head_row("GCP head", _gcp, {}),
    Row(
        "own attention",
        (TOKENS,),
        lambda s, o: TorchAttention(_vit_config(s, o)),
        lambda s, o: PaddleAttention(s[-1], o.heads, qkv_bias=o.bias, qk_scale=o.qk_scale),
        lambda d, s: {"heads": d.divisor(s[-1]), "bias": d.chance(0.5), "qk_scale": None},
        {"qk_scale": Wrong(lambda s, o: s[-1] ** -0.25, ("scale",))},
    ),
    Row(
        "own MLP",
        (TOKENS,),
        lambda s, o: TorchMlp(s[-1], o.inner),
        lambda s, o: PaddleMlp(s[-1], o.inner),
        lambda d, s: {"inner": d.log(4, 512)},
    ),
)
