"""Pooling: tokens -> one vector per sample.

Legend: B batch, N tokens, C channels, H heads, q and k branch widths, c reduced channels.

Every pooling has ``output_dim`` and maps (tokens (B, N, C), mask (B, N) or None) to the vector
(B, output_dim) and the taps of its intermediate results, keyed by name; the head puts "head."
before the names. ``from_config`` builds it from a ``HeadConfig`` and what makes the normalization
of matrices of a width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref import functional
from sot_torch_ref.heads.power_norm import MPN

if TYPE_CHECKING:
    from sot_torch_ref.heads.factory import HeadConfig

Taps = dict[str, torch.Tensor]
Norms = Callable[[int], nn.Module]


class TokenBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d whose batch statistics can be taken over the valid tokens only.

    Without a mask, or in eval mode, this is torch's own BatchNorm2d. With a mask in train mode the
    mean and variance are those of the valid tokens, and ``running_var`` receives the unbiased
    variance over the valid count. Padded tokens are normalised with the same statistics.

    Source: specs B.1 and B.4.
    """

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Normalise.

        Args:
            x: (B, C, N, 1).
            mask: Valid tokens (B, N), bool; None = all.

        Returns:
            (B, C, N, 1), dtype of ``x``.
        """
        if mask is None or not self.training:
            return super().forward(x)
        tokens = x.squeeze(3).transpose(1, 2)  # (B, N, C)
        mean, variance, count = functional.masked_batch_statistics(tokens, mask)
        self._update_running(mean.detach(), variance.detach(), count)
        inverse = (variance + self.eps).rsqrt()
        wide = tokens.to(mean.dtype)
        result = (wide - mean) * (inverse * self.weight) + self.bias  # (B, N, C)
        return result.to(x.dtype).transpose(1, 2).unsqueeze(3)  # (B, C, N, 1)

    @torch.no_grad()
    def _update_running(
        self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor
    ) -> None:
        unbiased = variance * count / (count - 1).clamp(min=1)
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)


class GAP(nn.Module):
    """Global average pooling: the mean of the (valid) tokens.

    Source: specs A.6.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.output_dim = dim

    @classmethod
    def from_config(cls, dim: int, config: HeadConfig, norm: Norms) -> GAP:
        """Build it; it has no options and no matrix."""
        return cls(dim)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Taps]:
        """(B, N, C) -> (B, C)."""
        return functional.token_mean(tokens, mask=mask), {}


class GCP(nn.Module):
    """Global covariance pooling: reduction, auto-covariance, matrix square root, triangle.

    QUIRK: scalar mean and factor 1/c by default, see ``functional.auto_covariance``.

    Args:
        dim: Channels C of the tokens.
        num_heads: Heads H of the MGCrP that this pooling is compared with.
        qkv_dim: Width per head; the reduced width is c = int(sqrt(2 H qkv_dim^2)).
        norm: Layer on (B, c, c).
        centering: "scalar" or "channel".
        scale: "published" (1/c) or "tokens" (1/N).

    Source: specs A.6, row GCP.
    """

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        qkv_dim: int,
        norm: nn.Module,
        centering: str = "scalar",
        scale: str = "published",
    ) -> None:
        super().__init__()
        width = reduced_dim(num_heads, qkv_dim)
        self.dr = nn.Linear(dim, width)
        self.norm = norm
        self.centering, self.scale = centering, scale
        self.output_dim = width * (width + 1) // 2

    @classmethod
    def from_config(cls, dim: int, config: HeadConfig, norm: Norms) -> GCP:
        """Build it with the options of a head."""
        return cls(
            dim,
            num_heads=config.head_num_heads,
            qkv_dim=config.qkv_dim,
            norm=norm(reduced_dim(config.head_num_heads, config.qkv_dim)),
            centering=config.centering,
            scale=config.covariance_scale,
        )

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Taps]:
        """(B, N, C) -> (B, c (c + 1) / 2)."""
        projection = self.dr(tokens)  # (B, N, c)
        covariance = functional.auto_covariance(
            projection, centering=self.centering, scale=self.scale, mask=mask
        )
        power_norm = self.norm(covariance)  # (B, c, c)
        taps = {"projection": projection, "covariance": covariance, "power_norm": power_norm}
        return functional.triu_vectorize(power_norm), taps


def vector_length(dim: int, triangle: bool) -> int:
    """Entries of a (dim, dim) matrix, or of its upper triangle with the diagonal."""
    return dim * (dim + 1) // 2 if triangle else dim * dim


def reduced_dim(num_heads: int, qkv_dim: int) -> int:
    """Reduced width of GCP: int(sqrt(2 num_heads qkv_dim^2))."""
    return math.isqrt(2 * num_heads * qkv_dim**2)


class MGCrP(nn.Module):
    """Multi-head global cross-covariance pooling.

    One linear layer gives W (first half of its features) and R (second half), each split into
    heads; the cross-covariance of W_h (rows) and R_h (columns) is normalised and flattened,
    head after head, row after row.

    QUIRK: the mean is one scalar per sample and head, see ``functional.cross_covariance``.

    Args:
        dim: Channels C of the tokens.
        num_heads: Heads H.
        wr_dim: Width of W and R per head.
        norm: Layer on (B H, wr_dim, wr_dim).
        bias: Whether the linear layer has a bias.
        centering: "scalar" or "channel".
        triangle: Whether only the upper triangle of each matrix is kept (svPN's vec = "triu").

    Source: specs A.5 and A.2.
    """

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        wr_dim: int,
        norm: nn.Module,
        bias: bool = False,
        centering: str = "scalar",
        triangle: bool = False,
    ) -> None:
        super().__init__()
        self.wr = nn.Linear(dim, 2 * num_heads * wr_dim, bias=bias)
        self.norm = norm
        self.num_heads, self.wr_dim = num_heads, wr_dim
        self.centering, self.triangle = centering, triangle
        self.output_dim = num_heads * vector_length(wr_dim, triangle)

    @classmethod
    def from_config(cls, dim: int, config: HeadConfig, norm: Norms) -> MGCrP:
        """Build it with the options of a head."""
        return cls(
            dim,
            num_heads=config.head_num_heads,
            wr_dim=config.wr_dim,
            norm=norm(config.wr_dim),
            bias=config.qkv_bias,
            centering=config.centering,
            triangle=config.vec == "triu",
        )

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Taps]:
        """(B, N, C) -> (B, output_dim)."""
        batch, length, _ = tokens.shape
        projection = self.wr(tokens)  # (B, N, 2 H wr)
        split = projection.reshape(batch, length, 2, self.num_heads, self.wr_dim)
        split = split.permute(2, 0, 3, 1, 4)  # (2, B, H, N, wr)
        w, r = split.reshape(2, batch * self.num_heads, length, self.wr_dim)
        per_head = None if mask is None else mask.repeat_interleave(self.num_heads, dim=0)
        covariance = functional.cross_covariance(
            w, r, centering=self.centering, mask=per_head
        )  # (B H, wr, wr)
        power_norm = self.norm(covariance)
        taps = {"projection": projection, "covariance": covariance, "power_norm": power_norm}
        vectors = functional.triu_vectorize(power_norm) if self.triangle else power_norm
        return vectors.reshape(batch, self.output_dim), taps


class MGCrPQK(nn.Module):
    """Single-head global cross-covariance pooling of the released text code.

    Two branches (1x1 convolution, batch normalization, ReLU) give A (B, N, q) and B (B, N, k);
    their cross-covariance, centred per channel, is normalised as its transpose and flattened.

    Args:
        dim: Channels C of the tokens.
        q_dim: Width q of the first branch (rows).
        k_dim: Width k of the second branch (columns).
        norm: Layer on the transposed matrices (B, k, q).

    Source: specs B.1.
    """

    def __init__(self, dim: int, *, q_dim: int, k_dim: int, norm: nn.Module) -> None:
        super().__init__()
        self.q_proj = nn.Conv2d(dim, q_dim, kernel_size=1, bias=False)
        self.q_norm = TokenBatchNorm2d(q_dim)
        self.k_proj = nn.Conv2d(dim, k_dim, kernel_size=1, bias=False)
        self.k_norm = TokenBatchNorm2d(k_dim)
        self.norm = norm
        self.output_dim = q_dim * k_dim

    @classmethod
    def from_config(cls, dim: int, config: HeadConfig, norm: Norms) -> MGCrPQK:
        """Build it with the options of a head."""
        return cls(dim, q_dim=config.q_dim, k_dim=config.k_dim, norm=norm(config.q_dim))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Taps]:
        """(B, N, C) -> (B, q k)."""
        image = tokens.transpose(1, 2).unsqueeze(3)  # (B, C, N, 1)
        q = F.relu(self.q_norm(self.q_proj(image), mask)).squeeze(3).transpose(1, 2)  # (B, N, q)
        k = F.relu(self.k_norm(self.k_proj(image), mask)).squeeze(3).transpose(1, 2)  # (B, N, k)
        covariance = functional.cross_covariance(q, k, centering="channel", mask=mask)  # (B, q, k)
        power_norm = self.norm(covariance.transpose(1, 2)).transpose(1, 2)  # (B, q, k)
        taps = {"q": q, "k": k, "covariance": covariance, "power_norm": power_norm}
        return power_norm.flatten(1), taps


class TextGCP(nn.Module):
    """Global covariance pooling of the released text code (its cov_type "norm").

    One branch (1x1 convolution, batch normalization, ReLU) is centred per channel; its covariance
    X X^T / N is normalised and flattened row by row.

    Args:
        dim: Channels C of the tokens.
        width: Width d of the branch.
        norm: Layer on (B, d, d).
        triangle: Whether only the upper triangle is kept.

    Source: specs B.1 and A.3.
    """

    def __init__(self, dim: int, *, width: int, norm: nn.Module, triangle: bool) -> None:
        super().__init__()
        self.proj = nn.Conv2d(dim, width, kernel_size=1, bias=False)
        self.proj_norm = TokenBatchNorm2d(width)
        self.norm = norm
        self.triangle = triangle
        self.output_dim = vector_length(width, triangle)

    @classmethod
    def from_config(cls, dim: int, config: HeadConfig, norm: Norms) -> TextGCP:
        """Build it with the options of a head; "mpn" keeps the triangle only."""
        layer = norm(config.q_dim)
        triangle = config.vec == "triu" or isinstance(layer, MPN)
        return cls(dim, width=config.q_dim, norm=layer, triangle=triangle)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Taps]:
        """(B, N, C) -> (B, output_dim)."""
        image = tokens.transpose(1, 2).unsqueeze(3)  # (B, C, N, 1)
        branch = F.relu(self.proj_norm(self.proj(image), mask)).squeeze(3).transpose(1, 2)
        covariance = functional.cross_covariance(branch, branch, centering="channel", mask=mask)
        power_norm = self.norm(covariance)  # (B, d, d)
        taps = {"projection": branch, "covariance": covariance, "power_norm": power_norm}
        if self.triangle:
            return functional.triu_vectorize(power_norm), taps
        return power_norm.flatten(1), taps


WORD_POOLINGS: dict[str, type[nn.Module]] = {
    "mgcrp": MGCrP,
    "mgcrp_qk": MGCrPQK,
    "gcp": GCP,
    "gcp_text": TextGCP,
    "gap": GAP,
}
