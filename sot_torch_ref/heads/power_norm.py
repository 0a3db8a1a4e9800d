"""Power normalization layers: thin modules over ``functional``.

Every layer maps matrices (B', n, d) to matrices of the same shape.
"""

import warnings

import torch
from torch import nn

from sot_torch_ref import functional

STARTS = ("learn", "one")


class SvPN(nn.Module):
    """Singular-value power normalization (see ``functional.sv_power_norm``).

    Attributes:
        weight: Learnable start vector (input_dim,), drawn from N(0, 1); None for ``start="one"``.

    Args:
        input_dim: Number d of columns of the matrices.
        alpha: Power of the singular values, > 0.
        num_iter: Power iterations per singular value, >= 1.
        num_sv: Singular values, >= 1; None = all, without remainder term.
        start: "learn" (a parameter) or "one" (all ones, no parameter).
        on_zero: "nan" or "zero", see ``functional.sv_power_norm``.

    Raises:
        ValueError: Unknown start.

    Source: specs A.2.
    """

    def __init__(
        self,
        input_dim: int,
        *,
        alpha: float = 0.5,
        num_iter: int = 1,
        num_sv: int | None = 1,
        start: str = "learn",
        on_zero: str = "nan",
    ) -> None:
        super().__init__()
        if start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
        if num_iter == 1 and num_sv != 1:
            warnings.warn(
                f"svPN with num_iter=1 and num_sv={num_sv} is ill-posed: every deflation restarts "
                "from the same vector, so the later singular vectors are rounding noise; use "
                "num_sv=1 or more iterations",
                UserWarning,
                stacklevel=2,
            )
        self.input_dim = input_dim
        self.alpha, self.num_iter, self.num_sv = alpha, num_iter, num_sv
        self.on_zero = on_zero
        vector = nn.Parameter(torch.randn(input_dim)) if start == "learn" else None
        self.register_parameter("weight", vector)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B', n, input_dim) -> (B', n, input_dim)."""
        start = x.new_ones(self.input_dim) if self.weight is None else self.weight
        return functional.sv_power_norm(
            x,
            start,
            alpha=self.alpha,
            num_iter=self.num_iter,
            num_sv=self.num_sv,
            on_zero=self.on_zero,
        )


class ScaleNorm(nn.Module):
    """Multiplication by a factor: sqrt_d (constant) or sqrt_t (a 0-dim parameter).

    Args:
        factor: The factor, or its start value.
        learnable: Whether the factor is a parameter (named ``factor``).

    Source: specs A.4.
    """

    def __init__(self, factor: float, *, learnable: bool) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor)) if learnable else factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape -> same shape."""
        return x * self.factor


class EPN(nn.Module):
    """Entrywise power normalization, column by column (``functional.entrywise_power_norm``).

    Source: specs A.4.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B', n, d) -> (B', n, d)."""
        return functional.entrywise_power_norm(x)


class MPN(nn.Module):
    """Matrix power normalization: Newton-Schulz square root (``functional.matrix_sqrt``).

    Args:
        num_iter: Iterations, >= 1.
        on_zero: "nan" or "zero", see ``functional.matrix_sqrt``.

    Source: specs A.3.
    """

    def __init__(self, num_iter: int = 3, *, on_zero: str = "nan") -> None:
        super().__init__()
        self.num_iter, self.on_zero = num_iter, on_zero

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B', d, d) -> (B', d, d)."""
        return functional.matrix_sqrt(x, self.num_iter, on_zero=self.on_zero)
