"""Power norms as thin Layers over :mod:`sot_paddle.functional`.

Each maps (B, n, d) matrices to (B, n, d). Shape legend: B samples (or samples x heads).
"""

from __future__ import annotations

import warnings

import paddle
from paddle import nn

from sot_paddle import functional as F
from sot_paddle.ops import second_order


class SvPN(nn.Layer):
    """Singular-value power normalization with its start vector.

    Args:
        dim: columns d of the matrices, the length of the start vector.
        alpha: exponent in (0, 1].
        num_iter: power iterations per triplet.
        num_sv: leading triplets, None for all without a remainder term.
        start: ``"learn"`` (parameter drawn from N(0, 1)) or ``"one"`` (fixed ones).
        on_zero: see :func:`sot_paddle.functional.sv_power_norm`.

    Source: A.2.
    """

    def __init__(
        self,
        dim: int,
        *,
        alpha: float = 0.5,
        num_iter: int = 1,
        num_sv: int | None = 1,
        start: str = "learn",
        on_zero: str = "nan",
    ) -> None:
        super().__init__()
        if num_iter == 1 and num_sv != 1:
            warnings.warn(
                f"svPN with num_iter=1 and num_sv={num_sv} is ill-posed: the second triplet is "
                "rounding noise; use num_iter of at least 2",
                UserWarning,
                stacklevel=2,
            )
        self.dim, self.alpha, self.num_iter, self.num_sv = dim, alpha, num_iter, num_sv
        self.on_zero = on_zero
        self.weight = None
        if start == "learn":
            self.weight = self.create_parameter(
                [dim], default_initializer=nn.initializer.Normal(0.0, 1.0)
            )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise (B, n, d)."""
        start = paddle.ones([self.dim], dtype=x.dtype) if self.weight is None else self.weight
        return second_order.sv_power_norm(
            x,
            start,
            alpha=self.alpha,
            num_iter=self.num_iter,
            num_sv=self.num_sv,
            on_zero=self.on_zero,
        )


class ScaleNorm(nn.Layer):
    """Multiply by one factor, ``dim ** -0.5`` at the start (``sqrt_d``; learnable: ``sqrt_t``).

    Source: A.4. The learnable factor has no axis, so timm's rule puts it in the decayed group.
    """

    def __init__(self, dim: int, *, learnable: bool) -> None:
        super().__init__()
        self.factor: float | paddle.Tensor = dim**-0.5
        if learnable:
            initial = nn.initializer.Constant(dim**-0.5)
            self.factor = self.create_parameter([], default_initializer=initial)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Scale (B, n, d)."""
        return x * self.factor


class RowLayerNorm(nn.Layer):
    """Layer normalisation over the last axis, with the epsilon in the tensor's own precision.

    PADDLE: the kernel of nn.LayerNorm takes its epsilon as float32 (2.5e-8 off for 1e-5), which
    shows in float64 on matrices whose variance is as small as that of covariances.

    Source: A.4.
    """

    def __init__(self, dim: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = self.create_parameter([dim], default_initializer=nn.initializer.Constant(1.0))
        self.bias = self.create_parameter([dim], is_bias=True)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise the rows of (B, n, d)."""
        centred = x - x.mean(axis=-1, keepdim=True)
        var = (centred * centred).mean(axis=-1, keepdim=True)
        return centred * paddle.rsqrt(var + self.epsilon) * self.weight + self.bias


class EntrywisePowerNorm(nn.Layer):
    """ePN over :func:`sot_paddle.functional.entrywise_power_norm`. Source: A.4."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise (B, n, d)."""
        return F.entrywise_power_norm(x)


class MatrixSqrt(nn.Layer):
    """iSQRT-COV (MPN) over :func:`sot_paddle.functional.matrix_sqrt`. Source: A.3."""

    def __init__(self, *, num_iter: int = 3, on_zero: str = "nan") -> None:
        super().__init__()
        self.num_iter, self.on_zero = num_iter, on_zero

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Take the square root of (B, d, d)."""
        return F.matrix_sqrt(x, num_iter=self.num_iter, on_zero=self.on_zero)
