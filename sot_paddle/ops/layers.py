"""Paddle's layers with the native operators in them: same parameters, same names, same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import nn

from sot_paddle.ops import bfloat16
from sot_paddle.ops.attention import attention, can_attend
from sot_paddle.ops.dispatch import is_plain, run, runs_natively
from sot_paddle.ops.functions import (
    LARGEST,
    dropout,
    embedding,
    gelu,
    layer_norm,
    linear,
    may_drop,
)


class Linear(nn.Linear):
    """`paddle.nn.Linear`."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (..., C) to (..., D)."""
        return linear(x, self.weight, self.bias)


class Embedding(nn.Embedding):
    """`paddle.nn.Embedding`."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map whole numbers (...) to rows (..., C)."""
        options = ("_sparse", "_max_norm", "_scale_grad_by_freq")  # the latter two since Paddle 3.0
        if any(getattr(self, name, False) for name in options):
            return super().forward(x)
        return embedding(x, self.weight, self._padding_idx)


class LayerNorm(nn.LayerNorm):
    """`paddle.nn.LayerNorm`."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise the rows of (..., C); same shape and dtype."""
        if self.weight is None or self.bias is None or len(self._normalized_shape) != 1:
            return super().forward(x)
        return layer_norm(x, self.weight, self.bias, self._epsilon)


class Dropout(nn.Dropout):
    """`paddle.nn.Dropout`."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Drop elements in training mode; same shape and dtype."""
        if not _drops_elements(self):
            return super().forward(x)
        return dropout(x, self.p, training=self.training)


class MultiHeadAttention(nn.MultiHeadAttention):
    """`paddle.nn.MultiHeadAttention`."""

    def forward(
        self,
        query: paddle.Tensor,
        key: paddle.Tensor | None = None,
        value: paddle.Tensor | None = None,
        attn_mask: paddle.Tensor | None = None,
        cache: Any = None,
    ) -> Any:
        """As Paddle's; natively for self-attention without a cache or weights to return."""
        alone = all(other is None or other is query for other in (key, value))
        p = self.dropout if self.training else 0.0
        fits = alone and cache is None and not self.need_weights and may_drop(p)
        if not fits or not can_attend([query] * 3, attn_mask):
            return super().forward(query, key, value, attn_mask, cache)
        parts = self.q_proj(query), self.k_proj(query), self.v_proj(query)
        scale = self.head_dim**-0.5
        return self.out_proj(attention(parts, self.num_heads, scale=scale, bias=attn_mask, p=p))


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """`paddle.nn.TransformerEncoderLayer`."""

    def forward(self, src: paddle.Tensor, src_mask: Any = None, *rest: Any, **named: Any) -> Any:
        """As Paddle's; in inference the feed-forward part is fused."""
        fits = self.activation is gelu and not (self.normalize_before or rest or named)
        if not fits or paddle.is_grad_enabled():
            return super().forward(src, src_mask, *rest, **named)
        src = self.norm1(src + self.dropout1(self.self_attn(src, src, src, src_mask)))
        return self.norm2(
            src + self.dropout2(feed_forward(src, self.linear1, self.linear2, self.dropout))
        )


def feed_forward(
    x: paddle.Tensor, first: nn.Layer, second: nn.Layer, drop: nn.Layer
) -> paddle.Tensor:
    """``second(drop(gelu(first(x))))``, in inference fused where nobody watches a layer.

    In float32 bias and GELU are one pass, to the same bits; in bfloat16 all is one operator.

    Args:
        x: (..., C).

    Returns:
        (..., C'). Gradient: as of the layers.
    """
    is_idle = not drop.training and can_fuse_dropout(drop) and not paddle.is_grad_enabled()
    if not is_idle or not is_plain(Linear, (first, second)):
        return second(drop(gelu(first(x))))
    weights = [first.weight, first.bias, second.weight, second.bias]
    fits = runs_natively(x, *weights) and x.ndim > 1 and 0 not in x.shape
    if not fits or x.shape[-1:] != first.weight.shape[:1]:
        return second(drop(gelu(first(x))))
    if bfloat16.is_chosen():
        return run("sot_packed_feed_forward", x, *weights)
    return second(run("sot_gelu_of_sum", paddle.matmul(x, first.weight), first.bias))


def side_by_side(x: paddle.Tensor, layers: Sequence[nn.Linear]) -> list[paddle.Tensor]:
    """What linear layers without biases make of one input: in training natively in one product.

    Narrow products take longer than one that is as wide as all of them, and the input's gradient
    is one product, where several would be added up.

    Args:
        x: (..., C).
        layers: C to D_i each.

    Returns:
        (..., D_i) each. Gradient: bilinear, to rounding that of the layers' own calls, which are
        made in inference, for other precisions, and where someone watches a layer.
    """
    joined = (
        paddle.is_grad_enabled()
        and runs_natively(x)  # before a size, which is a tensor while a graph is traced
        and (is_plain(nn.Linear, layers) or is_plain(Linear, layers))
        and all(layer.bias is None and layer.weight.dtype == x.dtype for layer in layers)
        and 0 not in x.shape
    )
    if not joined:
        return [layer(x) for layer in layers]
    product = linear(x, paddle.concat([layer.weight for layer in layers], axis=1), None)
    return paddle.split(product, [layer.weight.shape[1] for layer in layers], axis=-1)


def can_fuse_dropout(layer: nn.Layer) -> bool:
    """Whether an operator may do a dropout layer's work: it is not subclassed or hooked.

    Returns:
        False as well where everything is dropped, or not element by element with what is left
        scaled up in training.
    """
    plain = is_plain(nn.Dropout, [layer]) or is_plain(Dropout, [layer])
    may = layer.p <= LARGEST and may_drop(layer.p if layer.training else 0.0)
    return plain and may and _drops_elements(layer)


def _drops_elements(layer: nn.Dropout) -> bool:
    inplace = getattr(layer, "inplace", False)  # since Paddle 3.3
    return layer.axis is None and layer.mode == "upscale_in_train" and not inplace


KINDS = {Linear, Embedding, LayerNorm, Dropout, MultiHeadAttention, TransformerEncoderLayer}
NATIVE = {kind.__base__: kind for kind in KINDS}
"""Layer of Paddle -> the one that takes its place."""


def with_native_layers(model: nn.Layer) -> nn.Layer:
    """Change a model so that its layers compute natively where they can; returns it.

    Paddle's own classes change to those of `NATIVE`; parameters, names and hooks stay.
    """
    for layer in model.sublayers(include_self=True):
        if type(layer) in NATIVE:
            layer.__class__ = NATIVE[type(layer)]
    return model
