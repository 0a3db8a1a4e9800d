"""The whole attention layer against loops over tokens: every kernel, every projection, gradients.

The oracle reads the option's text by itself and knows NumPy alone.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import paddle
import pytest

from sot_paddle.backbones.attention import UNSEEN
from sot_paddle.backbones.conv_bert import ConvAttention, ConvEncoderConfig

B, S, C, H, D = 2, 7, 12, 4, 3
SIZES = {"hidden_size": C, "num_attention_heads": H, "attention_probs_dropout_prob": 0.0}
TERMS = ("qk", "convfixed", "convq", "convk")
SUBSETS = [
    "_".join(names)
    for n in range(1, 5)
    for names in itertools.combinations(TERMS, n)
    if n > 1 or names != ("qk",)
]
KERNELS = [
    *("dot_product", "qk", "convbert", "convolution 2", "convolution_scaled 1"),
    *(f"{names} 2" for names in SUBSETS),
    *("qk_convq_convk 12", "convfixed_convolution 2", "convq_convk_convolution_scaled 3"),
]
PROJECTIONS = [
    *("convolution 1 1", "convolution 2 3", "convolution_depth 2 1", "convolution_mixed 1 2"),
    *("convolution_depth_no_act 1 1", "convolution_depth_mixed 2 1"),
    "convolution_depth_mixed_no_act 1 4",
]


def erf_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def convolve(x, weight, bias):
    """(B, S, C) with (O, C / groups, R) to (B, S, O), tokens outside are zero."""
    out, inner, width = weight.shape
    made = np.zeros((*x.shape[:2], out)) + bias
    for s, o, r in itertools.product(range(x.shape[1]), range(out), range(width)):
        t, first = s + r - width // 2, o // (out * inner // x.shape[2]) * inner
        if 0 <= t < x.shape[1]:
            made[:, s, o] += x[:, t, first : first + inner] @ weight[o, :, r]
    return made


def project(name, text, weights, x):
    """Queries, keys or values as (B, S, channels)."""

    def linear(part, x):
        return x @ weights[f"{name}.{part}.weight"] + weights[f"{name}.{part}.bias"]

    kind = text.split()[0]
    if not any(weight.startswith(f"{name}.") for weight in weights):  # nothing reads it
        return x
    if not kind.startswith("convolution"):
        return linear("linear", x)
    made = convolve(x, weights[f"{name}.conv.weight"], weights[f"{name}.conv.bias"])
    if "depth" in kind:
        made = linear("pointwise", made if "no_act" in kind else erf_gelu(made))
    return np.concatenate([made, linear("linear", x)], 2) if "mixed" in kind else made


def scores_by_hand(options, weights, x, query, key):
    words = options["attention_kernel"].split()[0].split("_")
    reach = int((options["attention_kernel"].split() + [0])[1])
    local = {"convfixed", "convq", "convk"} & set(words)
    dotted = "qk" in words or "dot" in words or not local
    d, length = options.get("attention_head_size", D), x.shape[1]
    q, k = (a.reshape(B, length, -1, d).transpose(0, 2, 1, 3) for a in (query, key))
    heads = H // 2 if "convbert" in words else H
    scores = np.zeros((B, H, length, length))
    for i, j in itertools.product(range(length), repeat=2):
        ahead, back = min(max(j - i, -reach), reach) + reach, min(max(i - j, -reach), reach) + reach
        if dotted:
            scores[:, :heads, i, j] += (q[:, :, i] * k[:, :, j]).sum(-1) / d**0.5
        if "convfixed" in words:
            scores[:, :, i, j] += weights["convfixed"][0, :, 0, ahead]
        if "convq" in words:
            scores[:, :, i, j] += q[:, :, i] @ weights["convq"][:, ahead] / d**0.5
        if "convk" in words:
            scores[:, :, i, j] += k[:, :, j] @ weights["convk"][:, back] / d**0.5
    if "convbert" in words:
        near = convolve(x, weights["span.conv.weight"], weights["span.conv.bias"])
        near = near @ weights["span.pointwise.weight"] + weights["span.pointwise.bias"]
        made = (near * query) @ weights["span.kernel.weight"] + weights["span.kernel.bias"]
        made = made.reshape(B, length, heads, 9)
        for i, j in itertools.product(range(length), repeat=2):
            scores[:, heads:, i, j] = made[:, j, :, j - i + 4] if abs(j - i) <= 4 else UNSEEN
    return scores


def attention_by_hand(options, weights, x, valid):
    """(B, S, C) of specs.md E.1 and E.2; the tokens of ``valid`` (B, S) count."""
    kernel = options["attention_kernel"]
    texts = {"query": options["qk"], "key": options["qk"], "value": options["value_forward"]}
    if kernel == "convbert" or any("convolution" in text for text in texts.values()):
        x = x * valid[:, :, None]
    query, key, value = (project(name, text, weights, x) for name, text in texts.items())
    scores = scores_by_hand(options, weights, x, query, key)
    scores = scores + (1 - valid)[:, None, None] * UNSEEN
    share = np.exp(scores - scores.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    split = value.reshape(B, x.shape[1], H, -1)
    context = np.zeros(split.shape)
    for i, j in itertools.product(range(x.shape[1]), repeat=2):
        context[:, i] += share[:, :, i, j, None] * split[:, j]
    if "convolution" in kernel:
        seen = convolve(
            value * valid[:, :, None], weights["convolution.weight"], weights["convolution.bias"]
        )
        context += seen.reshape(split.shape) * weights["factor"][:, None]
    return context.reshape(value.shape) @ weights["out.weight"] + weights["out.bias"]


CASES = [
    *({"attention_kernel": kernel} for kernel in KERNELS),
    *({"qk": text} for text in PROJECTIONS),
    *({"value_forward": text} for text in PROJECTIONS),
    *({"qk": text, "value_forward": text} for text in PROJECTIONS[:1]),
    {"attention_kernel": "convk 2", "qk": "convolution 1 1"},
    {"attention_kernel": "convbert", "value_forward": "convolution_mixed 1 1"},
    {"attention_kernel": "qk_convq_convk 2", "remove_qk": True},
    {"attention_kernel": "qk_convq_convk 2", "attention_head_size": 5},
    {"attention_kernel": "convolution_scaled 2", "attention_head_size": 5},
    {"value_forward": "convolution_depth 1 1", "attention_head_size": 6},
    *({"attention_kernel": kernel, "length": 1} for kernel in ("qk_convq_convk 2", "convbert")),
    {"attention_kernel": "convfixed_convolution 3", "length": 2},
]
DEFAULTS = {"attention_kernel": "dot_product", "qk": "linear", "value_forward": "feedforward"}


@pytest.mark.parametrize("given", CASES, ids=lambda given: " ".join(map(str, given.values())))
def test_the_layer_is_the_loop_and_has_its_gradients(given, float64):
    length = given.get("length", S)
    options = {**DEFAULTS, **{key: value for key, value in given.items() if key != "length"}}
    rng = np.random.default_rng(3)
    layer = ConvAttention(ConvEncoderConfig(**SIZES, **options))
    weights = {name: rng.normal(0, 0.4, tuple(p.shape)) for name, p in layer.named_parameters()}
    for name, parameter in layer.named_parameters():
        parameter.set_value(weights[name])
    x, factor = rng.normal(size=(2, B, length, C))
    valid = np.ones((B, length))
    valid[1, length // 2 + 1 :] = 0
    hidden = paddle.to_tensor(x, stop_gradient=False)
    given_mask = paddle.to_tensor(valid)
    bias = ((1 - given_mask) * UNSEEN).reshape([B, 1, 1, length])
    made = layer(hidden, bias, given_mask.unsqueeze(2))
    expected = attention_by_hand(options, weights, x, valid)
    np.testing.assert_allclose(made.numpy(), expected, rtol=0, atol=1e-13)
    assert np.abs(expected[0] - expected[1]).max() > 0.1
    (made * paddle.to_tensor(factor)).sum().backward()
    found = {name: p.grad for name, p in layer.named_parameters() if not p.stop_gradient}
    for name, gradient in {**found, "": hidden.grad}.items():
        array = weights.get(name, x)
        at = tuple(size // 2 for size in array.shape)
        ends = []
        for step in (1e-5, -1e-5):
            moved = array.copy()
            moved[at] += step
            changed = ({**weights, name: moved}, x) if name else (weights, moved)
            ends.append((attention_by_hand(options, *changed, valid) * factor).sum())
        slope = (ends[0] - ends[1]) / 2e-5
        assert gradient.numpy()[at] == pytest.approx(slope, rel=1e-6, abs=1e-8), name
