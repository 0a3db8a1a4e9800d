"""The table of layer pairs: one row each, with the options that are drawn and those that are wrong.

s is the shape of the input, o the options; d draws. Dropped, because the frameworks themselves
differ in float64 (docs/differences.md), so that no port is right there:

- Hardsigmoid: Paddle holds 1/6 with seven digits; SELU: its two constants in float32.
- adaptive average pooling to a size that does not divide the input: Paddle's gradient is 1e-8 to
  2e-5 off;
- LeakyReLU, Maxout at a value of exactly 0, or equal values: the gradient is Paddle's own (1, not
  the slope; half to each of two maxima), hence `ties`;
- RReLU, dropout with p > 0 in training: drawn by chance, each framework its own way.
"""

from __future__ import annotations

import paddle
import torch

from tests.align.right_pairs.pair_rows import (
    ANY,
    IDS,
    IMAGES,
    ROWS,
    TOKENS,
    WRONG_AXIS,
    Row,
    Wrong,
    alike,
    by_dims,
    draw_axis,
)
from tests.align.small_pairs import model_of

T, P = torch.nn, paddle.nn


def _elementwise(name, paddle_name="", wrong=None, ties=False, **options):
    """A row of an activation that both frameworks call alike, options by name."""

    def draw(d, s):
        return {option: d.of(*values) for option, values in options.items()}

    return Row(
        name,
        ANY,
        lambda s, o: getattr(T, name)(**vars(o)),
        lambda s, o: getattr(P, paddle_name or name)(**vars(o)),
        draw,
        wrong or {},
        ties=ties,
    )


def _shrinking(name):
    return alike(
        name,
        ANY,
        lambda f, s, o: getattr(f.nn, name)(o.limit),
        lambda d, s: {"limit": d.of(0.5, 0.25)},
        {"limit": Wrong(lambda s, o: 1.5 * o.limit, ("threshold", "lambd"))},
    )


ACTIVATIONS = (
    _elementwise("ReLU"),
    _elementwise("ReLU6"),
    _elementwise("Sigmoid"),
    _elementwise("Tanh"),
    _elementwise("Softsign"),
    _elementwise("SiLU", "Silu"),
    _elementwise("Mish"),
    _elementwise("Hardswish"),
    _elementwise("LogSigmoid"),
    _elementwise("Tanhshrink"),
    Row(
        "GELU",
        ANY,
        lambda s, o: T.GELU(approximate="tanh" if o.approximate else "none"),
        lambda s, o: P.GELU(approximate=o.approximate),
        lambda d, s: {"approximate": d.chance(0.5)},
        {"approximate": Wrong(lambda s, o: not o.approximate, ("approximat", "tanh", "erf"))},
    ),
    _elementwise(
        "LeakyReLU",
        negative_slope=(0.01, 0.1, 0.2, 0.25),
        wrong={"negative_slope": Wrong(lambda s, o: o.negative_slope + 0.05, ("slope",))},
        ties=True,
    ),
    *(
        _elementwise(
            name,
            alpha=(1.0, 0.5, 2.0),
            wrong={"alpha": Wrong(lambda s, o: 1.25 * o.alpha, ("alpha",))},
        )
        for name in ("ELU", "CELU")
    ),
    alike(
        "Softplus",
        ANY,
        lambda f, s, o: f.nn.Softplus(o.beta, o.threshold),
        lambda d, s: {"beta": d.of(1, 2, 0.5), "threshold": d.of(20, 15)},
        {"beta": Wrong(lambda s, o: 1.5 * o.beta, ("beta",))},
    ),
    alike(
        "Hardtanh",
        ANY,
        lambda f, s, o: f.nn.Hardtanh(-o.limit, o.limit),
        lambda d, s: {"limit": d.of(1.0, 0.5, 2.0)},
        {"limit": Wrong(lambda s, o: 1.5 * o.limit, ("min", "max", "limit"))},
    ),
    _shrinking("Hardshrink"),
    _shrinking("Softshrink"),
    alike(
        "PReLU",
        (TOKENS, IMAGES),
        lambda f, s, o: f.nn.PReLU(o.slopes),
        lambda d, s: {"slopes": d.of(1, s[1])},
    ),
    alike("Softmax", ANY, lambda f, s, o: f.nn.Softmax(o.axis), draw_axis, WRONG_AXIS),
    alike("LogSoftmax", ANY, lambda f, s, o: f.nn.LogSoftmax(o.axis), draw_axis, WRONG_AXIS),
    alike(
        "GLU",
        ANY,
        lambda f, s, o: f.nn.GLU(o.axis),
        draw_axis,
        fits=lambda s: s[1] % 2 == 0 and s[-1] % 2 == 0,
    ),
    Row(
        "Maxout",
        (IMAGES,),
        lambda s, o: lambda x: x.unflatten(1, (-1, o.groups)).amax(2),
        lambda s, o: P.Maxout(o.groups),
        lambda d, s: {"groups": s[1] // d.of(1, 2) if s[1] % 2 == 0 else s[1]},
        fits=lambda s: s[1] > 2,
        ties=True,
    ),
    alike("Dropout", ANY, lambda f, s, o: f.nn.Dropout(0.0)),
    alike("Dropout2D", (IMAGES,), lambda f, s, o: by_dims(f, "Dropout", 2)(0.0)),
    alike("AlphaDropout", ANY, lambda f, s, o: f.nn.AlphaDropout(0.0)),
)


def _convolution(dims: int) -> Row:
    """Convolution over the last axes; stride, padding (its mode), dilation and groups drawn."""

    def draw(d, s):
        groups = d.divisor(s[1])
        kernel = d.of(*(k for k in (1, 2, 3, 5, 7) if k <= min(s[2:])))
        dilation = d.of(*(k for k in (1, 1, 2) if (kernel - 1) * k < min(s[2:])))
        return {
            "width": groups * d.log(1, max(1, 512 // groups)),
            "kernel": kernel,
            "stride": d.of(1, 1, 2),
            "padding": d.of(*range(min(kernel, 4))),
            "dilation": dilation,
            "groups": groups,
            "bias": d.chance(0.7),
            "mode": d.of("zeros", "zeros", "reflect", "replicate"),
        }

    def build(f, s, o):
        bias = {"bias": o.bias} if f is torch else {"bias_attr": None if o.bias else False}
        spread = {"dilation": o.dilation, "groups": o.groups, "padding_mode": o.mode, **bias}
        return by_dims(f, "Conv", dims)(s[1], o.width, o.kernel, o.stride, o.padding, **spread)

    def other_mode(s, o):
        return "replicate" if o.mode == "zeros" and o.padding else "zeros"

    wrong = {"mode": Wrong(other_mode, ("padding_mode", "padding mode", "pad"))}
    return alike(f"Conv{dims}D", (dims + 2,), build, draw, wrong, lambda s: min(s[2:]) > 4)


def _transposed(dims: int) -> Row:
    """Transposed convolution."""

    def draw(d, s):
        groups, stride = d.divisor(s[1]), d.of(1, 2)
        return {
            "width": groups * d.log(1, max(1, 128 // groups)),
            "kernel": d.of(2, 3, 4),
            "stride": stride,
            "padding": d.of(0, 1),
            "output_padding": d.of(*range(stride)),
            "groups": groups,
        }

    def build(f, s, o):
        more = {"output_padding": o.output_padding, "groups": o.groups}
        name, end = ("ConvTranspose", "") if f is torch else ("Conv", "Transpose")
        kind = by_dims(f, name, dims, end)
        return kind(s[1], o.width, o.kernel, o.stride, o.padding, **more)

    name = f"Conv{dims}DTranspose"
    return alike(name, (dims + 2,), build, draw, fits=lambda s: min(s[2:]) > 4)


def _pool(kind: str, dims: int) -> Row:
    """Max or average pooling; ceil_mode only where both frameworks count alike."""
    average = kind == "Avg"

    def draw(d, s):
        kernel = d.of(2, 3)
        found = {"kernel": kernel, "stride": d.of(1, 2, kernel), "padding": d.of(0, 1)}
        return found | ({"exclusive": d.chance(0.5)} if average else {})

    def build(f, s, o):
        more = {}
        if average:
            more = (
                {"count_include_pad": not o.exclusive} if f is torch else {"exclusive": o.exclusive}
            )
        return by_dims(f, f"{kind}Pool", dims)(o.kernel, o.stride, o.padding, **more)

    wrong = {}
    if average:
        words = ("exclusive", "count_include_pad")
        wrong["exclusive"] = Wrong(lambda s, o: not o.exclusive, words)
    name = f"{kind}Pool{dims}D"
    return alike(name, (dims + 2,), build, draw, wrong, lambda s: min(s[2:]) > 3)


def _adaptive(kind: str, dims: int) -> Row:
    """Adaptive pooling to a size that divides the input."""

    def draw(d, s):
        sizes = [k for k in (1, 2, 3, 5, 7) if all(n % k == 0 for n in s[2:])]
        return {"size": d.of(*sizes)}

    return alike(
        f"Adaptive{kind}Pool{dims}D",
        (dims + 2,),
        lambda f, s, o: by_dims(f, f"Adaptive{kind}Pool", dims)(o.size),
        draw,
    )


SPATIAL = (
    *(_convolution(dims) for dims in (1, 2, 3)),
    *(_transposed(dims) for dims in (1, 2, 3)),
    *(_pool(kind, dims) for kind in ("Max", "Avg") for dims in (1, 2, 3)),
    *(_adaptive(kind, dims) for kind in ("Max", "Avg") for dims in (1, 2)),
    alike(
        "PixelShuffle",
        (IMAGES,),
        lambda f, s, o: f.nn.PixelShuffle(2),
        fits=lambda s: s[1] % 4 == 0,
    ),
    alike(
        "PixelUnshuffle",
        (IMAGES,),
        lambda f, s, o: f.nn.PixelUnshuffle(2),
        fits=lambda s: s[2] % 2 == 0 and s[3] % 2 == 0,
    ),
    alike(
        "ChannelShuffle",
        (IMAGES,),
        lambda f, s, o: f.nn.ChannelShuffle(o.groups),
        lambda d, s: {"groups": d.divisor(s[1])},
    ),
    Row(
        "Upsample",
        (IMAGES,),
        lambda s, o: T.Upsample(scale_factor=2, mode=o.mode, align_corners=o.align_corners),
        lambda s, o: P.Upsample(scale_factor=2, mode=o.mode, align_corners=bool(o.align_corners)),
        lambda d, s: d.of(
            {"mode": "nearest", "align_corners": None},
            {"mode": "bilinear", "align_corners": False},
            {"mode": "bicubic", "align_corners": False},
        ),
        {"mode": Wrong(lambda s, o: "bilinear" if o.mode != "bilinear" else "nearest", ("mode",))},
    ),
    Row(
        "ZeroPad2D",
        (IMAGES,),
        lambda s, o: T.ZeroPad2d(o.sides),
        lambda s, o: P.ZeroPad2D(list(o.sides)),
        lambda d, s: {"sides": (d.of(0, 1), d.of(1, 2), d.of(0, 1), 1)},
    ),
    alike(
        "Unfold",
        (IMAGES,),
        lambda f, s, o: f.nn.Unfold(o.kernel, 1, 0, o.kernel),
        lambda d, s: {"kernel": d.of(2, 4)},
        fits=lambda s: min(s[2:]) >= 4,
    ),
)


EPSILONS = (2.0**-17, 2.0**-17, 2.0**-10, 1e-5)
"""Powers of two near the usual ones: Paddle holds an epsilon in float32, which shows in float64
where it matters (1e-8 of the output at a scale of 1e-3); and the usual one."""


def _epsilon(factor: float) -> dict[str, Wrong]:
    return {"epsilon": Wrong(lambda s, o: factor * o.epsilon, ("eps",))}


def _batch_norm(dims: int) -> Row:
    """Batch normalisation; Paddle's momentum is the share that is kept."""
    return Row(
        f"BatchNorm{dims}D",
        (ROWS, TOKENS) if dims == 1 else (dims + 2,),
        lambda s, o: getattr(T, f"BatchNorm{dims}d")(s[1], o.epsilon, o.momentum),
        lambda s, o: getattr(P, f"BatchNorm{dims}D")(s[1], 1 - o.momentum, o.epsilon),
        lambda d, s: {"epsilon": d.of(*EPSILONS), "momentum": d.of(0.1, 0.1, 0.01)},
        _epsilon(100) | {"momentum": Wrong(lambda s, o: 1 - o.momentum, ("momentum",))},
        lambda s: s[0] > 1,
    )


def _instance_norm(dims: int) -> Row:
    return Row(
        f"InstanceNorm{dims}D",
        (dims + 2,),
        lambda s, o: getattr(T, f"InstanceNorm{dims}d")(s[1], o.epsilon, affine=True),
        lambda s, o: getattr(P, f"InstanceNorm{dims}D")(s[1], o.epsilon),
        lambda d, s: {"epsilon": d.of(*EPSILONS)},
        _epsilon(100),
        lambda s: min(s[2:]) > 1,
    )


NORMS = (
    *(_batch_norm(dims) for dims in (1, 2, 3)),
    *(_instance_norm(dims) for dims in (1, 2)),
    alike(
        "LayerNorm",
        (ROWS, TOKENS),
        lambda f, s, o: f.nn.LayerNorm(s[-1], o.epsilon),
        lambda d, s: {"epsilon": d.of(*EPSILONS)},
        _epsilon(100),
        lambda s: s[-1] > 1,
    ),
    alike(
        "GroupNorm",
        (TOKENS, IMAGES),
        lambda f, s, o: f.nn.GroupNorm(o.groups, s[1], o.epsilon),
        lambda d, s: {"groups": d.divisor(s[1]), "epsilon": d.of(*EPSILONS)},
        _epsilon(100) | {"groups": Wrong(lambda s, o: s[1] if o.groups != s[1] else 1, ("group",))},
        lambda s: s[-1] > 1,
    ),
    alike(
        "LocalResponseNorm",
        (IMAGES,),
        lambda f, s, o: f.nn.LocalResponseNorm(o.size, o.alpha, 0.75, o.k),
        lambda d, s: {"size": d.of(3, 5), "alpha": d.of(1e-4, 1e-2), "k": d.of(1.0, 2.0)},
        {
            "k": Wrong(lambda s, o: o.k + 0.5, ("k ", "k:", "k=")),
            "alpha": Wrong(lambda s, o: 10 * o.alpha, ("alpha",)),
        },
        lambda s: s[1] >= 5,
    ),
)


def _self_attention(f, s, o):
    """An attention of a tensor to itself."""
    if f is torch:
        attention = T.MultiheadAttention(s[-1], o.heads, batch_first=True)
    else:
        attention = P.MultiHeadAttention(s[-1], o.heads)

    def forward(model, x):
        if f is torch:
            return model.attention(x, x, x, need_weights=False)[0]
        return model.attention(x, x, x)

    return model_of(f, forward, attention=attention)


def _recurrent(name: str, paddle_name: str) -> Row:
    def draw(d, s):
        return {"width": d.log(1, 128), "layers": d.of(1, 1, 2), "both": d.chance(0.3)}

    def torch_side(s, o):
        more = {"batch_first": True, "bidirectional": o.both}
        return getattr(T, name)(s[-1], o.width, o.layers, **more)

    def paddle_side(s, o):
        direction = "bidirect" if o.both else "forward"
        return getattr(P, paddle_name)(s[-1], o.width, o.layers, direction=direction)

    return Row(paddle_name, (TOKENS,), torch_side, paddle_side, draw, fits=lambda s: s[1] <= 128)


def _encoder(s, o, kind, first):
    return kind(s[-1], o.heads, o.inner, dropout=0.0, activation=o.activation, **first)


WEIGHTED = (
    Row(
        "Linear",
        (ROWS, TOKENS),
        lambda s, o: T.Linear(s[-1], o.width, bias=o.bias),
        lambda s, o: P.Linear(s[-1], o.width, bias_attr=None if o.bias else False),
        lambda d, s: {"width": d.width(), "bias": d.chance(0.8)},
    ),
    alike("square Linear", (ROWS, TOKENS, IMAGES), lambda f, s, o: f.nn.Linear(s[-1], s[-1])),
    alike(
        "Embedding",
        (IDS,),
        lambda f, s, o: f.nn.Embedding(o.rows, o.width),
        lambda d, s: {"rows": 1000, "width": d.width()},
    ),
    alike(
        "MultiHeadAttention",
        (TOKENS,),
        _self_attention,
        lambda d, s: {"heads": d.divisor(s[-1])},
        {"heads": Wrong(lambda s, o: s[-1] if o.heads != s[-1] else 1, ("head",))},
    ),
    Row(
        "TransformerEncoderLayer",
        (TOKENS,),
        lambda s, o: _encoder(
            s, o, T.TransformerEncoderLayer, {"batch_first": True, "norm_first": o.first}
        ),
        lambda s, o: _encoder(s, o, P.TransformerEncoderLayer, {"normalize_before": o.first}),
        lambda d, s: {
            "heads": d.divisor(s[-1]),
            "inner": d.log(1, 512),
            "activation": d.of("relu", "gelu"),
            "first": d.chance(0.5),
        },
        {
            "activation": Wrong(
                lambda s, o: "gelu" if o.activation == "relu" else "relu",
                ("relu", "gelu", "activation"),
            ),
            "first": Wrong(lambda s, o: not o.first, ("before", "norm_first", "order")),
        },
        lambda s: s[-1] > 1,
    ),
    _recurrent("LSTM", "LSTM"),
    _recurrent("GRU", "GRU"),
    _recurrent("RNN", "SimpleRNN"),
)
