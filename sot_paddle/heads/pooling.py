"""Poolings: word tokens to one vector for each sample.

Every pooling is made of (channels, config, norm) and has ``output_dim`` and
``forward(tokens, mask, taps) -> (B, output_dim)``; `sot_paddle.config.WORD_POOLINGS` names them.
A power norm is made before the projections, since it is drawn first.
Shape legend: B samples, N tokens, C channels, H heads, w = wr_dim, q / k the two widths of the
single-head form. ``mask`` (B, N) is None unless padding is to be left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import paddle
from paddle import nn

from sot_paddle import functional as F
from sot_paddle.config import HeadConfig
from sot_paddle.features import Taps, record
from sot_paddle.heads.power_norm import MatrixSqrt
from sot_paddle.ops import second_order
from sot_paddle.ops.layers import side_by_side

Norms = Callable[[int], nn.Layer]
"""Makes the power norm of a matrix of as many columns."""


def linear(in_dim: int, out_dim: int, *, bias: bool = True, std: float = 0.02) -> nn.Linear:
    """Linear layer drawn from N(0, std) with zero bias, as every head of the originals."""
    return nn.Linear(
        in_dim,
        out_dim,
        weight_attr=paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, std)),
        bias_attr=None if bias else False,  # drawn as zeros
    )


def _infers() -> bool:
    """Whether no gradient is asked for and no graph is traced; ONNX takes no (B, N, C) kernel."""
    return paddle.in_dynamic_mode() and not paddle.is_grad_enabled()


class TokenBatchNorm(nn.Layer):
    """Batch normalisation of (B, N, C) over all (or all valid) tokens, with torch's statistics.

    PADDLE: its own BatchNorm stores the biased batch variance as running variance; torch, and
    hence the originals' checkpoints, the unbiased one. This layer stores the unbiased one.

    ``momentum`` is the share of the old running value kept (torch's 0.1 is 0.9). A data-parallel
    trainer sets ``sum_across_processes`` to a differentiable all-reduce to synchronise statistics.

    Source: B.1 step 3.
    """

    def __init__(self, num_channels: int, *, momentum: float = 0.9, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = self.create_parameter(
            [num_channels], default_initializer=nn.initializer.Constant(1.0)
        )
        self.bias = self.create_parameter([num_channels], is_bias=True)
        self.register_buffer("running_mean", paddle.zeros([num_channels]))
        self.register_buffer("running_var", paddle.ones([num_channels]))
        self.sum_across_processes: Callable[[paddle.Tensor], paddle.Tensor] = lambda total: total
        self._this_process_only = self.sum_across_processes

    def forward(self, x: paddle.Tensor, mask: paddle.Tensor | None = None) -> paddle.Tensor:
        """Normalise every token of (B, N, C), in float32 at least.

        Tokens that are invalid in the mask (B, N) are normalised too but do not enter the
        statistics.

        Raises:
            ValueError: one value for each channel in training mode, where a variance is undefined.
        """
        with paddle.amp.auto_cast(enable=False):
            x = F.at_least_float32(x)
            if self._has_kernel(x) and (mask is None if self.training else _infers()):
                return self._by_kernel(x, "NLC")
            mean, var = self._batch_statistics(x, mask) if self.training else self._running(x)
            scale = self.weight.astype(x.dtype) * paddle.rsqrt(var + self.epsilon)
            return (x - mean) * scale + self.bias.astype(x.dtype)

    def _has_kernel(self, x: paddle.Tensor) -> bool:
        """Whether Paddle's kernel computes the same; PADDLE: it rounds epsilon to float32."""
        synchronised = self.sum_across_processes is not self._this_process_only
        return x.dtype != paddle.float64 and not (self.training and synchronised)

    def _by_kernel(self, x: paddle.Tensor, layout: str) -> paddle.Tensor:
        """Normalise float32 without a mask by Paddle's kernel; ``layout``: "NLC" or "NCHW"."""
        self._check(x)
        weight, bias = self.weight.astype("float32"), self.bias.astype("float32")
        options = {"epsilon": self.epsilon, "data_format": layout}
        if not self.training:
            return nn.functional.batch_norm(x, *self._running(x), weight, bias, **options)
        # with momentum 0 the kernel leaves the batch's own statistics in the two buffers
        mean, var = paddle.zeros(bias.shape, "float32"), paddle.ones(bias.shape, "float32")
        normed = nn.functional.batch_norm(
            x, mean, var, weight, bias, training=True, momentum=0.0, **options
        )
        if not x.place.is_cpu_place():  # some GPU kernels report the unbiased variance, some not
            axes = [axis for axis, name in enumerate(layout) if name != "C"]
            mean, var = x.detach().mean(axes), x.detach().var(axes, unbiased=False)
        self._update_running(mean, var, paddle.full([], x.size // mean.size, "float32"))
        return normed

    def _check(self, x: paddle.Tensor) -> None:
        if self.training and x.size // self.bias.size < 2:
            raise ValueError(
                "batch normalisation in training mode needs more than one value for each channel, "
                f"got {x.shape}; use a larger batch or eval()"
            )

    def _running(self, x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        return self.running_mean.astype(x.dtype), self.running_var.astype(x.dtype)

    def _batch_statistics(
        self, x: paddle.Tensor, mask: paddle.Tensor | None
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Mean and biased variance (C,) of the batch; updates the running values."""
        reduce = self.sum_across_processes
        if mask is None:
            self._check(x)
            weights = None
            count = reduce(paddle.full([], x.shape[0] * x.shape[1], dtype=x.dtype))
        else:
            weights = mask.astype(x.dtype).unsqueeze(-1)  # (B, N, 1)
            count = reduce(weights.sum()).clip(min=1.0)
        mean = reduce((x if weights is None else x * weights).sum(axis=[0, 1])) / count
        squares = paddle.square(x - mean)
        squares = squares if weights is None else squares * weights
        var = reduce(squares.sum(axis=[0, 1])) / count
        self._update_running(mean, var, count)
        return mean, var

    @paddle.no_grad()
    def _update_running(
        self, mean: paddle.Tensor, var: paddle.Tensor, count: paddle.Tensor
    ) -> None:
        unbiased = var * (count / (count - 1.0).clip(min=1.0))
        for buffer, batch in ((self.running_mean, mean), (self.running_var, unbiased)):
            kept = buffer * self.momentum + batch.astype(buffer.dtype) * (1.0 - self.momentum)
            paddle.assign(kept, output=buffer)


def _entries(size: int, upper_triangle: bool) -> int:
    """How many entries of a square matrix are taken."""
    return size * (size + 1) // 2 if upper_triangle else size**2


def _flatten(matrices: paddle.Tensor, upper_triangle: bool) -> paddle.Tensor:
    """(B, d, d) row-major as (B, d^2), or its upper triangles as (B, d (d + 1) / 2)."""
    return F.triu_vectorize(matrices) if upper_triangle else matrices.flatten(1)


class MultiHeadCrossCovariance(nn.Layer):
    """Multi-headed global cross-covariance pooling (MGCrP).

    ``y_h = P(cov(W_h, R_h))`` for each head h, with W and R two halves of one linear projection
    and P the power norm; the heads' matrices are flattened row-major, as a whole or only their
    upper triangles, and concatenated.

    Centring ``"scalar"`` is the published quirk, see functional.center_tokens. The original builds
    a classifier of the wrong width for the triangles (``vec="triu"``), so that they have no
    published numbers.

    Source: A.5, A.2; paper section "MGCrP".
    """

    def __init__(self, dim: int, config: HeadConfig, norm: Norms) -> None:
        super().__init__()
        self.num_heads, self.wr_dim = config.head_num_heads, config.wr_dim
        self.centering, self.upper_triangle = config.centering, config.vec == "triu"
        self.output_dim = self.num_heads * _entries(self.wr_dim, self.upper_triangle)
        power_norm = norm(self.wr_dim)  # of (B H, w, w)
        self.wr = linear(dim, 2 * self.num_heads * self.wr_dim, bias=config.qkv_bias)
        self.norm = power_norm

    def forward(
        self, tokens: paddle.Tensor, mask: paddle.Tensor | None = None, taps: Taps | None = None
    ) -> paddle.Tensor:
        """Pool (B, N, C) to (B, H w^2), or (B, H w (w + 1) / 2) with the triangles only."""
        projected = record(taps, "head.projection", self.wr(tokens))  # (B, N, 2 H w)
        cov = second_order.head_covariance(
            projected, self.num_heads, centering=self.centering, mask=mask
        )  # (B H, w, w)
        record(taps, "head.covariance", cov)
        normed = record(taps, "head.power_norm", self.norm(cov))
        batch = F.axis_length(tokens, 0)
        return _flatten(normed, self.upper_triangle).reshape([batch, self.output_dim])


class QKCrossCovariance(nn.Layer):
    """Single-head q x k cross-covariance pooling of the text release (So-ViT head).

    Two branches linear - BatchNorm - ReLU, per-channel centring, cross-covariance, power norm
    on the transposed matrix. QUIRK: without a mask every position after the class token counts,
    [SEP] and padding included, as published.

    Source: B.1.
    """

    def __init__(self, dim: int, config: HeadConfig, norm: Norms) -> None:
        super().__init__()
        q_dim, k_dim = config.q_dim, config.k_dim
        self.output_dim = q_dim * k_dim
        power_norm = norm(q_dim)  # of (B, k, q)
        # kaiming-normal, fan-out, ReLU gain: a 1x1 convolution has fan_out = its channels
        self.q_proj = linear(dim, q_dim, bias=False, std=math.sqrt(2.0 / q_dim))
        self.q_norm = TokenBatchNorm(q_dim)
        self.k_proj = linear(dim, k_dim, bias=False, std=math.sqrt(2.0 / k_dim))
        self.k_norm = TokenBatchNorm(k_dim)
        self.norm = power_norm

    def forward(
        self, tokens: paddle.Tensor, mask: paddle.Tensor | None = None, taps: Taps | None = None
    ) -> paddle.Tensor:
        """Pool (B, N, C) to (B, q k)."""
        q, k = side_by_side(tokens, (self.q_proj, self.k_proj))
        q = nn.functional.relu(self.q_norm(q, mask))  # (B, N, q)
        k = nn.functional.relu(self.k_norm(k, mask))  # (B, N, k)
        record(taps, "head.q", q)
        record(taps, "head.k", k)
        cov = second_order.cross_covariance(q, k, centering="channel", mask=mask)  # (B, q, k)
        record(taps, "head.covariance", cov)
        normed = self.norm(cov.transpose([0, 2, 1])).transpose([0, 2, 1])  # (B, q, k)
        return record(taps, "head.power_norm", normed).reshape([-1, self.output_dim])


class BranchCovariance(nn.Layer):
    """Covariance of one branch of the text release (``cov_type="norm"``).

    Linear - BatchNorm - ReLU, per-channel centring, auto-covariance with the factor 1/N, power
    norm. The iterated root (MPN) is meant for it, and takes the upper triangle only: the release
    refuses MPN on a cross-covariance. d is ``q_dim``.
    QUIRK: as in QKCrossCovariance, every position after the class token counts without a mask.

    Source: B.1, A.3.
    """

    def __init__(self, dim: int, config: HeadConfig, norm: Norms) -> None:
        super().__init__()
        width, power_norm = config.q_dim, norm(config.q_dim)  # of (B, d, d)
        self.upper_triangle = config.vec == "triu" or isinstance(power_norm, MatrixSqrt)
        self.output_dim = _entries(width, self.upper_triangle)
        self.proj = linear(dim, width, bias=False, std=math.sqrt(2.0 / width))  # kaiming, fan-out
        self.proj_norm = TokenBatchNorm(width)
        self.norm = power_norm

    def forward(
        self, tokens: paddle.Tensor, mask: paddle.Tensor | None = None, taps: Taps | None = None
    ) -> paddle.Tensor:
        """Pool (B, N, C) to (B, d^2), or (B, d (d + 1) / 2) with the triangle only."""
        branch = nn.functional.relu(self.proj_norm(self.proj(tokens), mask))  # (B, N, d)
        record(taps, "head.projection", branch)
        cov = F.auto_covariance(branch, centering="channel", scale="tokens", mask=mask)
        record(taps, "head.covariance", cov)  # (B, d, d)
        return _flatten(record(taps, "head.power_norm", self.norm(cov)), self.upper_triangle)


class AveragePooling(nn.Layer):
    """Global average pooling (GAP): the mean over (valid) tokens; no matrix. Source: A.6."""

    def __init__(self, dim: int, config: HeadConfig, norm: Norms) -> None:
        super().__init__()
        self.output_dim = dim

    def forward(
        self, tokens: paddle.Tensor, mask: paddle.Tensor | None = None, taps: Taps | None = None
    ) -> paddle.Tensor:
        """Pool (B, N, C) to (B, C)."""
        if mask is None:
            return tokens.mean(axis=1)
        weights, count = F.token_weights(mask, tokens.dtype)
        return (tokens * weights).sum(axis=1) / count.squeeze(-1)


class CovariancePooling(nn.Layer):
    """Global covariance pooling (GCP): reduce, auto-covariance, matrix root, upper triangle.

    Centring ``"scalar"`` and the factor ``"published"`` (1/c, c the width after the reducing linear
    layer) are published quirks.

    Source: A.6, A.1.
    """

    def __init__(self, dim: int, config: HeadConfig, norm: Norms) -> None:
        super().__init__()
        self.centering, self.scale = config.centering, config.covariance_scale
        reduced_dim = int((2 * config.head_num_heads * config.qkv_dim**2) ** 0.5)
        self.output_dim = _entries(reduced_dim, upper_triangle=True)
        power_norm = norm(reduced_dim)  # of (B, c, c)
        self.dr = linear(dim, reduced_dim)
        self.norm = power_norm

    def forward(
        self, tokens: paddle.Tensor, mask: paddle.Tensor | None = None, taps: Taps | None = None
    ) -> paddle.Tensor:
        """Pool (B, N, C) to (B, c (c + 1) / 2)."""
        reduced = record(taps, "head.projection", self.dr(tokens))  # (B, N, c)
        cov = F.auto_covariance(reduced, centering=self.centering, scale=self.scale, mask=mask)
        record(taps, "head.covariance", cov)
        return F.triu_vectorize(record(taps, "head.power_norm", self.norm(cov)))
