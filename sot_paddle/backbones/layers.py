"""Layers that the vision backbones share.

Shape legend: B samples (or windows), N tokens, C channels, h heads, d = C / h, H x W pixels.
"""

from __future__ import annotations

import math

import paddle
from paddle import nn
from paddle.nn import functional as F

from sot_paddle.heads.pooling import TokenBatchNorm, linear
from sot_paddle.heads.power_norm import RowLayerNorm
from sot_paddle.ops.attention import attention, can_attend
from sot_paddle.ops.dispatch import is_plain
from sot_paddle.ops.functions import layer_norm
from sot_paddle.ops.images import transition
from sot_paddle.ops.layers import can_fuse_dropout, feed_forward
from sot_paddle.vision_config import ImageConfig


class LayerNorm(RowLayerNorm):
    """Layer normalisation over the last axis: the fused kernel, and exact in float64.

    PADDLE: the kernel takes its epsilon as float32, which shows in float64: 1.6e-11 of the
    output for rows of standard deviation 0.1 and epsilon 1e-5, 1.2e-9 for 0.01.
    """

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise the rows of (..., C); same shape and dtype."""
        if x.dtype == paddle.float64:
            return super().forward(x)
        return layer_norm(x, self.weight, self.bias, self.epsilon)


class BatchNorm2D(TokenBatchNorm):
    """Batch normalisation of images (B, C, H, W) with torch's statistics.

    The running variance is the unbiased one, as in torch (see TokenBatchNorm, whose statistics,
    buffers and hook for data parallelism these are). Statistics of one process in float32 come
    from Paddle's fused kernel; float64 (whose kernel rounds epsilon to float32) and synchronised
    statistics come from the formula.

    Source: A.7.
    """

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise every pixel of (B, C, H, W); half precision is computed in float32.

        Raises:
            ValueError: one value for each channel in training mode, where a variance is undefined.
        """
        if not self._has_kernel(x):
            pixels = x.flatten(2).transpose([0, 2, 1])  # (B, H W, C)
            normed = super().forward(pixels).astype(x.dtype)
            return normed.transpose([0, 2, 1]).reshape(x.shape)
        with paddle.amp.auto_cast(enable=False):
            return self._by_kernel(x.astype("float32"), "NCHW").astype(x.dtype)

    def pooled_conv(
        self, x: paddle.Tensor, conv: nn.Conv2D, pool: nn.AvgPool2D | nn.Identity
    ) -> paddle.Tensor | None:
        """Normalise, map by a 1x1 convolution and average squares of pixels in one native operator.

        Maps (B, C, H, W) to (B, D, H / 2, W / 2) or (B, D, H, W); None where no native operator
        takes these images.
        """
        pool_kind = nn.AvgPool2D if isinstance(pool, nn.AvgPool2D) else nn.Identity
        plain = is_plain(BatchNorm2D, [self]) and is_plain(nn.Conv2D, [conv])
        if not plain or not is_plain(pool_kind, [pool]) or not self._has_kernel(x):
            return None
        self._check(x)
        running = None if self.training else (self.running_mean, self.running_var)
        step = 2 if pool_kind is nn.AvgPool2D else 1
        outputs = transition(
            x, self.weight, self.bias, conv.weight, running, step=step, epsilon=self.epsilon
        )
        if outputs is None:
            return None
        output, mean, var = outputs
        if self.training:
            self._update_running(mean, var, paddle.full([], x.size // x.shape[1], "float32"))
        return output


def embedding(rows: int, size: int, std: float) -> nn.Embedding:
    """Embedding layer whose weights (rows, size) start normal."""
    normal = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, std))
    return nn.Embedding(rows, size, weight_attr=normal)


def conv(
    in_dim: int,
    out_dim: int,
    kernel: int,
    *,
    stride: int = 1,
    padding: int = 0,
    bias: bool = False,
    layer: type[nn.Conv2D] = nn.Conv2D,
) -> nn.Conv2D:
    """Convolution with torch's default initialisation: weight and bias U(+-1/sqrt(fan_in))."""
    bound = 1.0 / math.sqrt(in_dim * kernel * kernel)
    uniform = nn.initializer.Uniform(-bound, bound)
    return layer(
        in_dim,
        out_dim,
        kernel,
        stride=stride,
        padding=padding,
        weight_attr=paddle.ParamAttr(initializer=uniform),
        bias_attr=paddle.ParamAttr(initializer=uniform) if bias else False,
    )


class DropPath(nn.Layer):
    """Stochastic depth: a sample's branch is left out with probability p, else scaled 1/(1 - p).

    Source: A.8.
    """

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Drop samples of (B, ...); the identity in eval mode and at rate 0."""
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        shape = [x.shape[0]] + [1] * (x.ndim - 1)
        kept = paddle.floor(keep + paddle.rand(shape, dtype="float32")).astype(x.dtype)
        return x / keep * kept


def drop_path_rates(rate: float, depth: int) -> list[float]:
    """Rates of the blocks: from 0 in the first to ``rate`` in the last, evenly spaced."""
    return [rate * index / max(depth - 1, 1) for index in range(depth)]


class Mlp(nn.Layer):
    """Two linear layers with GELU (erf) in between and dropout after each. Source: A.8."""

    def __init__(self, dim: int, hidden_dim: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = linear(dim, hidden_dim)
        self.fc2 = linear(hidden_dim, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map (B, N, C) to (B, N, C)."""
        return self.drop(feed_forward(x, self.fc1, self.fc2, self.drop))


class Attention(nn.Layer):
    """Multi-head self-attention with one projection for queries, keys and values.

    ``softmax(scale q k^T + bias) v`` for each head. The 3 C outputs of ``qkv`` are ordered
    (query, key, value), then by head, then by channel of the head.

    Args:
        qk_scale: factor on the scores, None for ``d ** -0.5``.
        std: standard deviation of the weights at the start.

    Source: A.8.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        qkv_bias: bool = False,
        qk_scale: float | None = None,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.scale = self.head_dim**-0.5 if qk_scale is None else qk_scale
        self.qkv = linear(dim, 3 * dim, bias=qkv_bias, std=std)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = linear(dim, dim, std=std)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: paddle.Tensor, bias: paddle.Tensor | None = None) -> paddle.Tensor:
        """Attend among the tokens of (B, N, C).

        PADDLE: transposing to (B, h, N, d) costs five times as much on a CPU as splitting and
        concatenating, so the heads stand side by side on the batch axis instead.

        Args:
            x: (B, N, C).
            bias: (h, w, N, N) added to the scores, w a divisor of B: entry i belongs to the
                samples i, i + w, i + 2 w, ...

        Returns:
            (B, N, C).
        """
        qkv = self.qkv(x)  # (B, N, 3 C)
        if can_fuse_dropout(self.attn_drop) and can_attend([qkv], bias):
            p = self.attn_drop.p if self.attn_drop.training else 0.0
            options = {"scale": self.scale, "bias": bias, "p": p, "heads_first": True}
            return self.proj_drop(self.proj(attention([qkv], self.num_heads, **options)))
        parts = paddle.split(qkv, 3 * self.num_heads, axis=-1)  # 3 h of (B, N, d)
        q, k, v = paddle.split(paddle.concat(parts, axis=0), 3, axis=0)  # (h B, N, d) each
        scores = paddle.matmul(q * self.scale, k, transpose_y=True)  # (h B, N, N)
        if bias is not None:
            grouped = scores.reshape([self.num_heads, -1, *bias.shape[1:]])  # (h, B / w, w, N, N)
            scores = (grouped + bias.unsqueeze(1).astype(scores.dtype)).reshape(scores.shape)
        weights = self.attn_drop(F.softmax(scores, axis=-1))
        heads = paddle.split(paddle.matmul(weights, v), self.num_heads, axis=0)  # h of (B, N, d)
        return self.proj_drop(self.proj(paddle.concat(heads, axis=-1)))


class PreNormBlock(nn.Layer):
    """Transformer block: attention, then MLP, each behind a norm and with a residual connection.

    Source: A.8.
    """

    def __init__(self, config: ImageConfig, attn: Attention, *, dim: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim, epsilon=config.layer_norm_eps)
        self.attn = attn
        self.drop_path = DropPath(drop_path)
        self.norm2 = LayerNorm(dim, epsilon=config.layer_norm_eps)
        self.mlp = Mlp(dim, int(dim * config.mlp_ratio), drop=config.drop_rate)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map tokens (B, N, C) to (B, N, C)."""
        x = x + self.drop_path(self.attend(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))

    def attend(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map normed tokens (B, N, C) to what attention adds to them."""
        return self.attn(x)
