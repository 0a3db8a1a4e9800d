"""The rows of calls inside a forward method, and of this project's own layers.

s is the shape of the input, o the options; d draws. Dropped, because the frameworks themselves
differ in float64 (docs/differences.md), so that no port is right there:

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
from tests.align.right_pairs.pair_rows import ANY, IMAGES, ROWS, TOKENS, Row, Wrong

TF, PF = torch.nn.functional, paddle.nn.functional


def _axis(d, s):
    return {"axis": d.of(-1, 1)}


def _factor(d, s):
    return {"factor": d.of(0.5, 2.0, 0.125, 1 / 3)}


def _half(x, o):
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def _is_even(s):
    return s[-1] % 2 == 0


_WRONG_AXIS = {"axis": Wrong(0, ("axis",))}

CALLS = (
    Row(
        "scale",
        ANY,
        lambda s, o: lambda x: x * o.factor,
        lambda s, o: lambda x: x * o.factor,
        _factor,
        {"factor": Wrong(lambda s, o: 1.02 * o.factor, ("factor", "scale", "times"))},
    ),
    Row(
        "cumsum",
        ANY,
        lambda s, o: lambda x: torch.cumsum(x, o.axis),
        lambda s, o: lambda x: paddle.cumsum(x, o.axis),
        _axis,
        _WRONG_AXIS,
    ),
    Row(
        "logsumexp",
        (TOKENS, IMAGES),
        lambda s, o: lambda x: torch.logsumexp(x, o.axis, keepdim=True),
        lambda s, o: lambda x: paddle.logsumexp(x, o.axis, keepdim=True),
        _axis,
    ),
    Row(
        "normalize",
        ANY,
        lambda s, o: lambda x: TF.normalize(x, o.p, o.axis),
        lambda s, o: lambda x: PF.normalize(x, o.p, o.axis),
        lambda d, s: {"p": 2, "axis": d.of(-1, 1)},
        {"axis": Wrong(0, ("axis",)), "p": Wrong(1, ("p ", "p:", "norm", "order"))},
    ),
    Row(
        "softmax call",
        ANY,
        lambda s, o: lambda x: TF.softmax(x, o.axis),
        lambda s, o: lambda x: PF.softmax(x, o.axis),
        _axis,
        _WRONG_AXIS,
    ),
    Row(
        "clip",
        ANY,
        lambda s, o: lambda x: torch.clamp(x, -o.limit, o.limit),
        lambda s, o: lambda x: paddle.clip(x, -o.limit, o.limit),
        lambda d, s: {"limit": d.of(0.75, 1.25, 2.75)},
        {"limit": Wrong(lambda s, o: 1.5 * o.limit, ("min", "max", "limit"))},
    ),
    Row(
        "variance",
        (TOKENS, IMAGES),
        lambda s, o: lambda x: x - torch.var(x, -1, unbiased=o.unbiased, keepdim=True),
        lambda s, o: lambda x: x - paddle.var(x, -1, unbiased=o.unbiased, keepdim=True),
        lambda d, s: {"unbiased": d.chance(0.5)},
        {"unbiased": Wrong(lambda s, o: not o.unbiased, ("unbiased", "correction"))},
        lambda s: s[-1] > 2,
    ),
    Row(
        "standardise",
        ANY,
        lambda s, o: (
            lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + o.epsilon)
        ),
        lambda s, o: (
            lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + o.epsilon)
        ),
        lambda d, s: {"epsilon": d.of(1e-2, 1e-3)},
        {"epsilon": Wrong(lambda s, o: 10 * o.epsilon, ("eps",))},
        lambda s: s[-1] > 4,
    ),
    Row(
        "root mean square",
        ANY,
        lambda s, o: lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + o.epsilon),
        lambda s, o: lambda x: x * paddle.rsqrt(x.square().mean(-1, keepdim=True) + o.epsilon),
        lambda d, s: {"epsilon": d.of(1e-3, 1e-5)},
        {"epsilon": Wrong(lambda s, o: 100 * o.epsilon, ("eps",))},
    ),
    Row(
        "matmul with the transpose",
        (TOKENS,),
        lambda s, o: lambda x: torch.matmul(x, x.transpose(1, 2)) * s[-1] ** -0.5,
        lambda s, o: lambda x: paddle.matmul(x, x, transpose_y=True) * s[-1] ** -0.5,
    ),
    Row(
        "einsum",
        (TOKENS,),
        lambda s, o: lambda x: torch.einsum("bnc,bnd->bcd", x, x) / s[1],
        lambda s, o: lambda x: paddle.einsum("bnc,bnd->bcd", x, x) / s[1],
    ),
    Row(
        "attention call",
        (TOKENS,),
        lambda s, o: lambda x: torch.softmax(x @ x.mT * s[-1] ** -0.5, -1) @ x,
        lambda s, o: lambda x: PF.softmax(x @ x.transpose([0, 2, 1]) * s[-1] ** -0.5, -1) @ x,
    ),
    Row(
        "topk",
        (ROWS, TOKENS),
        lambda s, o: lambda x: torch.topk(x, o.k, -1)[0],
        lambda s, o: lambda x: paddle.topk(x, o.k, -1)[0],
        lambda d, s: {"k": d.of(*range(1, min(8, s[-1]) + 1))},
    ),
    Row(
        "gather",
        (ROWS, TOKENS),
        lambda s, o: (
            lambda x: torch.gather(x, -1, torch.argsort(x, dim=-1, stable=True)[..., : o.k])
        ),
        lambda s, o: (
            lambda x: paddle.take_along_axis(x, paddle.argsort(x, -1, stable=True)[..., : o.k], -1)
        ),
        lambda d, s: {"k": d.of(*range(1, min(8, s[-1]) + 1))},
    ),
    Row(
        "index_select",
        ANY,
        lambda s, o: lambda x: torch.index_select(x, 1, torch.tensor(o.index)),
        lambda s, o: lambda x: paddle.index_select(x, paddle.to_tensor(o.index), 1),
        lambda d, s: {"index": [int(i) for i in d.rng.integers(0, s[1], min(s[1], 40))]},
    ),
    Row(
        "roll",
        ANY,
        lambda s, o: lambda x: torch.roll(x, o.by, 1),
        lambda s, o: lambda x: paddle.roll(x, o.by, 1),
        lambda d, s: {"by": d.of(1, 2, -1)},
        {"by": Wrong(lambda s, o: -o.by, ("shift", "roll"))},
        lambda s: s[1] > 4,
    ),
    Row(
        "flip",
        ANY,
        lambda s, o: lambda x: torch.flip(x, [o.axis]),
        lambda s, o: lambda x: paddle.flip(x, [o.axis]),
        _axis,
    ),
    Row(
        "pad",
        (TOKENS,),
        lambda s, o: lambda x: TF.pad(x, (0, 0, o.by, 1), value=o.value),
        lambda s, o: lambda x: PF.pad(x, [o.by, 1], value=o.value, data_format="NLC"),
        lambda d, s: {"by": d.of(1, 2), "value": d.of(0.0, 0.5)},
        {"value": Wrong(lambda s, o: o.value + 0.25, ("value",))},
    ),
    Row(
        "pad images",
        (IMAGES,),
        lambda s, o: lambda x: TF.pad(x, (1, 1, 2, 2), mode=o.mode),
        lambda s, o: lambda x: PF.pad(x, [1, 1, 2, 2], mode=o.mode),
        lambda d, s: {"mode": d.of("reflect", "replicate", "constant", "circular")},
        {
            "mode": Wrong(
                lambda s, o: "replicate" if o.mode != "replicate" else "reflect", ("mode",)
            )
        },
        lambda s: min(s[2:]) > 3,
    ),
    Row(
        "interpolate",
        (IMAGES,),
        lambda s, o: lambda x: TF.interpolate(x, scale_factor=2, mode=o.mode),
        lambda s, o: lambda x: PF.interpolate(x, scale_factor=2, mode=o.mode),
        lambda d, s: {"mode": d.of("nearest", "bilinear")},
        {"mode": Wrong(lambda s, o: "nearest" if o.mode == "bilinear" else "bilinear", ("mode",))},
    ),
    Row(
        "global average",
        (IMAGES,),
        lambda s, o: lambda x: x.mean((2, 3)),
        lambda s, o: lambda x: x.mean([2, 3]),
    ),
    Row(
        "mean of tokens",
        (TOKENS,),
        lambda s, o: lambda x: x.mean(1),
        lambda s, o: lambda x: x.mean(1),
    ),
    Row(
        "first token",
        (TOKENS,),
        lambda s, o: lambda x: x[:, 0],
        lambda s, o: lambda x: x[:, o.at],
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
    Row(
        "flatten",
        (TOKENS, IMAGES),
        lambda s, o: lambda x: x.flatten(1),
        lambda s, o: lambda x: x.flatten(1),
        fits=lambda s: np.prod(s[1:]) <= 4096,
    ),
    Row(
        "gated",
        ANY,
        lambda s, o: lambda x: _half(x, o)[0] * torch.sigmoid(_half(x, o)[1]),
        lambda s, o: lambda x: _half(x, o)[0] * PF.sigmoid(_half(x, o)[1]),
        fits=_is_even,
    ),
    Row(
        "exp of minus squares",
        ANY,
        lambda s, o: lambda x: torch.exp(-x.square() * o.factor),
        lambda s, o: lambda x: paddle.exp(-x.square() * o.factor),
        _factor,
        {"factor": Wrong(lambda s, o: 1.02 * o.factor, ("factor", "scale", "times"))},
    ),
    Row(
        "log1p of squares",
        ANY,
        lambda s, o: lambda x: torch.log1p(x.square()),
        lambda s, o: lambda x: paddle.log1p(x.square()),
    ),
    Row(
        "square root",
        ANY,
        lambda s, o: lambda x: torch.sqrt(x.square() + o.epsilon),
        lambda s, o: lambda x: paddle.sqrt(x.square() + o.epsilon),
        lambda d, s: {"epsilon": d.of(1e-2, 1e-1)},
        {"epsilon": Wrong(lambda s, o: 4 * o.epsilon, ("eps", "value", "constant"))},
    ),
    Row("sine", ANY, lambda s, o: lambda x: torch.sin(x), lambda s, o: lambda x: paddle.sin(x)),
    Row("erf", ANY, lambda s, o: lambda x: torch.erf(x), lambda s, o: lambda x: paddle.erf(x)),
    Row(
        "arctangent",
        ANY,
        lambda s, o: lambda x: torch.atan(x),
        lambda s, o: lambda x: paddle.atan(x),
    ),
    Row(
        "cosine similarity",
        (TOKENS,),
        lambda s, o: lambda x: TF.cosine_similarity(x, x.roll(1, 1), dim=-1),
        lambda s, o: lambda x: PF.cosine_similarity(x, x.roll(1, 1), axis=-1),
        fits=lambda s: s[-1] > 2,
    ),
    Row(
        "where",
        ANY,
        lambda s, o: lambda x: torch.where(x > o.limit, x, x * o.slope),
        lambda s, o: lambda x: paddle.where(x > o.limit, x, x * o.slope),
        lambda d, s: {"limit": d.of(0.3, -0.3), "slope": 0.25},
        {"slope": Wrong(0.5, ("slope", "factor", "scale", "times"))},
    ),
    Row(
        "max over tokens",
        (TOKENS,),
        lambda s, o: lambda x: x.amax(1),
        lambda s, o: lambda x: x.amax(1),
    ),
    Row(
        "masked fill",
        ANY,
        lambda s, o: lambda x: x.masked_fill(x > o.limit, 0.5),
        lambda s, o: lambda x: x.masked_fill(x > o.limit, o.value),
        lambda d, s: {"limit": d.of(0.7, 1.3), "value": 0.5},
        {"value": Wrong(0.75, ("value", "fill"))},
    ),
)


class TorchBilinear(torch.nn.Module):
    """A bilinear form of a tensor and itself."""

    def __init__(self, width, out):
        super().__init__()
        self.form = torch.nn.Bilinear(width, width, out)

    def forward(self, x):
        return self.form(x, x)


class PaddleBilinear(paddle.nn.Layer):
    """A bilinear form of a tensor and itself."""

    def __init__(self, width, out):
        super().__init__()
        self.form = paddle.nn.Bilinear(width, width, out)

    def forward(self, x):
        return self.form(x, x)


class TorchHead(torch.nn.Module):
    """A head of the reference on tokens, the first of which is the class token."""

    def __init__(self, width, classes, options):
        super().__init__()
        config = TorchHeadConfig(**options)
        self.head = torch_head(config, hidden_size=width, num_classes=classes)

    def forward(self, x):
        return self.head(TorchFeatures(x[:, 0], x[:, 1:]))[0]


class PaddleHead(paddle.nn.Layer):
    """A head of the product on tokens, the first of which is the class token."""

    def __init__(self, width, classes, options):
        super().__init__()
        self.head = paddle_head(PaddleHeadConfig(**options), dim=width, num_classes=classes)

    def forward(self, x):
        return self.head(PaddleFeatures(x[:, 0], x[:, 1:]))


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
    def of(o):
        return {key: value for key, value in vars(o).items() if key != "classes"}

    return Row(
        name,
        (TOKENS,),
        lambda s, o: TorchHead(s[-1], o.classes, of(o)),
        lambda s, o: PaddleHead(s[-1], o.classes, of(o)),
        draw,
        wrong,
        lambda s: s[1] > 2,
    )


_ALPHA = Wrong(lambda s, o: 0.75 * o.alpha, ("alpha",))
_ITERATIONS = Wrong(lambda s, o: o.num_iter + 1, ("iter",))
_CENTERING = Wrong(lambda s, o: "channel" if o.centering == "scalar" else "scalar", ("center",))


def _vit_config(s, o):
    sizes = {"embed_dim": s[-1], "num_heads": o.heads, "depth": 1, "mlp_ratio": 1.0}
    return TorchViTConfig(**sizes, qkv_bias=o.bias)


OWN = (
    Row(
        "Bilinear",
        (ROWS,),
        lambda s, o: TorchBilinear(s[-1], o.width),
        lambda s, o: PaddleBilinear(s[-1], o.width),
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
