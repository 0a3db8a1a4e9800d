"""Pure functions of the second-order head: covariance, power normalization, matrix square root.

Legend: B batch (or batch x heads), N tokens, d channels, n and d rows and columns of a matrix,
r number of singular values. Masks are bool, True = valid. Half precision inputs are raised to
float32 and autocast is switched off inside every function, so results are float32 or float64.

None of these functions writes in place: gradients flow through every step, including every
power iteration and the start vector.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional as F

HALF_TYPES = (torch.float16, torch.bfloat16)
CENTERINGS = ("scalar", "channel", "none")
COVARIANCE_SCALES = ("published", "tokens")
ZERO_MODES = ("nan", "zero")
ZERO_NORM = 1e-12  # a Frobenius norm up to this counts as the zero matrix
NORM_FLOOR = 1e-12  # vectors are divided by max(norm, NORM_FLOOR)
REMAINDER_FLOOR = 1e-5  # added to the power of the singular value, not to the value


def full_precision(function: Callable) -> Callable:
    """Run ``function`` without autocast and with half precision tensors raised to float32."""

    def widen(value: object) -> object:
        if isinstance(value, torch.Tensor) and value.dtype in HALF_TYPES:
            return value.float()
        return value

    @functools.wraps(function)
    def wrapped(x: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        with torch.autocast(device_type=x.device.type, enabled=False):
            keywords = {name: widen(value) for name, value in kwargs.items()}
            return function(widen(x), *(widen(value) for value in args), **keywords)

    return wrapped


def _require_choice(what: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(allowed)}, got {value!r}")


def _require_tokens(x: torch.Tensor, mask: torch.Tensor | None) -> None:
    if x.ndim != 3 or x.shape[1] < 1:
        raise ValueError(
            f"tokens must have shape (B, N, d) with at least one token, got {tuple(x.shape)}; "
            "a sequence needs a class token and at least one word token"
        )
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"mask must be bool of shape {tuple(x.shape[:2])}, got {mask.dtype} of shape "
            f"{tuple(mask.shape)}; pass attention_mask.bool() of the same tokens"
        )


def _token_count(x: torch.Tensor, mask: torch.Tensor | None) -> int | torch.Tensor:
    """Number of valid tokens of each sample, at least 1: an int, or (B, 1, 1) with a mask."""
    if mask is None:
        return x.shape[1]
    return mask.sum(dim=1).clamp(min=1).to(x.dtype)[:, None, None]


def _valid_only(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Set padded tokens to zero; whatever they held (nan included) has no effect."""
    return x if mask is None else torch.where(mask[:, :, None], x, torch.zeros_like(x))


def _centre(x: torch.Tensor, centering: str, mask: torch.Tensor | None) -> torch.Tensor:
    """Subtract the mean of the valid tokens, then zero the padded ones."""
    _require_choice("centering", centering, CENTERINGS)
    _require_tokens(x, mask)
    if centering == "none":
        return _valid_only(x, mask)
    total = _valid_only(x, mask).sum(dim=1, keepdim=True)  # (B, 1, d)
    if centering == "scalar":
        total = total.mean(dim=2, keepdim=True)  # (B, 1, 1)
    return _valid_only(x - total / _token_count(x, mask), mask)


@full_precision
def token_mean(x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean over the valid tokens: y[b, c] = (1/N_b) sum_n x[b, n, c].

    Args:
        x: Tokens (B, N, d).
        mask: Valid tokens (B, N), bool; None = all valid. N_b is clamped to at least 1.

    Returns:
        (B, d).

    Raises:
        ValueError: Tokens or mask of the wrong shape or type.

    Source: specs A.6, row GAP.
    """
    _require_tokens(x, mask)
    return (_valid_only(x, mask).sum(dim=1, keepdim=True) / _token_count(x, mask)).squeeze(1)


@full_precision
def cross_covariance(
    x1: torch.Tensor,
    x2: torch.Tensor,
    *,
    centering: str = "scalar",
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Cross-covariance of two sets of channels over the tokens: Y = (1/N) X1'^T X2'.

    QUIRK: with ``centering="scalar"`` (the published behaviour) the mean that is subtracted is one
    number per sample, over tokens and channels together, separately for each input. The result is
    therefore not a true covariance; ``"channel"`` gives the true one.

    Args:
        x1: Tokens (B, N, d1).
        x2: Tokens (B, N, d2).
        centering: "scalar", "channel" or "none".
        mask: Valid tokens (B, N), bool; None = all valid. Mean, sum and divisor use valid tokens
            only; padded tokens are zeroed after centring; N is clamped to at least 1.

    Returns:
        (B, d1, d2): rows are channels of ``x1``, columns those of ``x2``.

    Raises:
        ValueError: Batch or token counts differ, unknown centering, or a bad mask.

    Source: specs A.1.
    """
    if x1.shape[:2] != x2.shape[:2]:
        raise ValueError(
            "both inputs must have the same batch size and number of tokens, got "
            f"{tuple(x1.shape)} and {tuple(x2.shape)}"
        )
    left = _centre(x1, centering, mask)
    right = _centre(x2, centering, mask)
    return left.transpose(1, 2) @ right / _token_count(x1, mask)  # (B, d1, d2)


@full_precision
def auto_covariance(
    x: torch.Tensor,
    *,
    centering: str = "scalar",
    scale: str = "published",
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Covariance of one set of channels with itself: Y = f X'^T X'.

    QUIRK: the published factor is f = 1/d (channels), not 1/N (tokens); ``scale="tokens"`` gives
    the true one. The scalar mean of ``cross_covariance`` applies here too.

    Args:
        x: Tokens (B, N, d).
        centering: "scalar", "channel" or "none".
        scale: "published" (f = 1/d, whatever the mask) or "tokens" (f = 1/N, valid tokens).
        mask: Valid tokens (B, N), bool; None = all valid.

    Returns:
        (B, d, d), symmetric and positive semidefinite.

    Raises:
        ValueError: Unknown centering or scale, or a bad mask.

    Source: specs A.1.
    """
    _require_choice("covariance scale", scale, COVARIANCE_SCALES)
    centred = _centre(x, centering, mask)
    divisor = x.shape[2] if scale == "published" else _token_count(x, mask)
    return centred.transpose(1, 2) @ centred / divisor


def _leading_triplet(
    x: torch.Tensor, start: torch.Tensor, num_iter: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Power iteration: u (B, n, 1), s (B, 1, 1), v (B, d, 1) of the leading singular value."""
    v = start.reshape(1, -1, 1).expand(x.shape[0], -1, 1)  # not normalised, as in the original
    for _ in range(num_iter):
        u = F.normalize(x @ v, dim=1, eps=NORM_FLOOR)
        v = F.normalize(x.transpose(1, 2) @ u, dim=1, eps=NORM_FLOOR)
    return u, u.transpose(1, 2) @ (x @ v), v


def _require_power_norm_input(
    x: torch.Tensor, start: torch.Tensor, num_iter: int, num_sv: int | None, on_zero: str
) -> None:
    _require_choice("on_zero", on_zero, ZERO_MODES)
    if x.ndim != 3 or start.shape != x.shape[2:]:
        raise ValueError(
            "svPN needs matrices (B, n, d) and a start vector (d,), got "
            f"{tuple(x.shape)} and {tuple(start.shape)}"
        )
    if num_iter < 1 or (num_sv is not None and num_sv < 1):
        raise ValueError(
            "num_iter must be at least 1 and num_sv at least 1 or None, got "
            f"num_iter={num_iter}, num_sv={num_sv}"
        )


@full_precision
def sv_power_norm(
    x: torch.Tensor,
    start: torch.Tensor,
    *,
    alpha: float = 0.5,
    num_iter: int = 1,
    num_sv: int | None = 1,
    on_zero: str = "nan",
) -> torch.Tensor:
    """Singular-value power normalization by power iteration and deflation.

    With X_1 = X and (s_i, u_i, v_i) the estimate of the leading triplet of X_i, always started
    from the same vector, X_{i+1} = X_i - s_i u_i v_i^T and

        Y = sum_{i<=r} s_i^alpha u_i v_i^T + X_{r+1} / (s_r^(1-alpha) + 1e-5).

    With ``num_sv=None`` r = min(n, d) and there is no remainder term.

    Gradient at singular points: for X = 0 (and for any s_i = 0) the output is finite and the
    gradient is nan, because s^(alpha-1) is infinite; ``on_zero="zero"`` makes both the output and
    the gradient of such a sample exactly 0. With ``num_iter=1`` and ``num_sv`` other than 1 the
    later triplets are normalised rounding noise (ill-posed; the layer warns).

    Args:
        x: Matrices (B, n, d).
        start: Start vector (d,), used as it is (not normalised).
        alpha: Power of the singular values.
        num_iter: Power iterations per singular value, >= 1.
        num_sv: Number r of singular values, >= 1; None = all of them, without remainder.
        on_zero: "nan" (as published) or "zero", for matrices of Frobenius norm <= 1e-12.

    Returns:
        (B, n, d).

    Raises:
        ValueError: Shapes that do not fit, or an option out of range.

    Source: specs A.2.
    """
    _require_power_norm_input(x, start, num_iter, num_sv, on_zero)
    count = min(x.shape[1:]) if num_sv is None else num_sv
    zero = None
    if on_zero == "zero":
        zero = torch.linalg.matrix_norm(x.detach(), keepdim=True) <= ZERO_NORM  # (B, 1, 1)
    rest, terms = x, []
    for _ in range(count):
        u, s, v = _leading_triplet(rest, start, num_iter)
        rest = rest - s * u @ v.transpose(1, 2)
        if zero is not None:  # inner half of the double where: no infinite local derivative
            s = torch.where(zero, torch.ones_like(s), s)
        terms.append(s**alpha * u @ v.transpose(1, 2))
    if num_sv is not None:
        terms.append(rest / (s ** (1 - alpha) + REMAINDER_FLOOR))
    result = functools.reduce(torch.add, terms)
    return result if zero is None else torch.where(zero, torch.zeros_like(result), result)


def _newton_schulz(a: torch.Tensor, num_iter: int) -> torch.Tensor:
    """Approximate square root of matrices of trace 1."""
    three = 3.0 * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    if num_iter < 2:
        return a @ (three - a) / 2
    z = (three - a) / 2
    y = a @ z
    for _ in range(num_iter - 2):
        step = (three - z @ y) / 2
        y, z = y @ step, step @ z
    return y @ (three - z @ y) / 2


@full_precision
def matrix_sqrt(x: torch.Tensor, num_iter: int = 3, *, on_zero: str = "nan") -> torch.Tensor:
    """Matrix square root by Newton-Schulz iteration: sqrt(t) NS(X / t) with t = trace(X).

    The gradient is plain autograd. The published code has a hand-written backward that assumes a
    symmetric X and returns the transpose of this gradient; through X = F^T F both are identical.
    X = 0 gives nan (0 / 0), forward and backward, unless ``on_zero="zero"``.

    Args:
        x: Symmetric positive semidefinite matrices (B, d, d).
        num_iter: Iterations, >= 1.
        on_zero: "nan" (as published) or "zero": output and gradient exactly 0 for matrices of
            Frobenius norm <= 1e-12.

    Returns:
        (B, d, d).

    Raises:
        ValueError: Not a batch of square matrices, or an option out of range.

    Source: specs A.3.
    """
    _require_choice("on_zero", on_zero, ZERO_MODES)
    if x.ndim != 3 or x.shape[1] != x.shape[2] or num_iter < 1:
        raise ValueError(
            "the matrix square root needs (B, d, d) and num_iter >= 1, got "
            f"{tuple(x.shape)} and num_iter={num_iter}"
        )
    if on_zero == "nan":
        trace = x.diagonal(dim1=1, dim2=2).sum(dim=1)[:, None, None]  # (B, 1, 1)
        return trace.sqrt() * _newton_schulz(x / trace, num_iter)
    zero = torch.linalg.matrix_norm(x.detach(), keepdim=True) <= ZERO_NORM
    unit = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand_as(x)
    result = matrix_sqrt(torch.where(zero, unit, x), num_iter)
    return torch.where(zero, torch.zeros_like(result), result)


@full_precision
def entrywise_power_norm(x: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    """Entrywise power normalization: z = sign(x) sqrt(|x| + eps), then L2 along axis 1.

    QUIRK: on matrices (B, n, d) axis 1 runs over the rows, so each column is normalised by itself.
    The gradient at x = 0 is 0.

    Args:
        x: Matrices (B, n, d) or vectors (B, n).
        eps: Added under the square root.

    Returns:
        Same shape as ``x``.

    Source: specs A.4.
    """
    return F.normalize(x.sign() * (x.abs() + eps).sqrt(), dim=1, eps=NORM_FLOOR)


def triu_vectorize(x: torch.Tensor) -> torch.Tensor:
    """Upper triangle with the diagonal, row by row (for 3 x 3: flat indices 0, 1, 2, 4, 5, 8).

    Args:
        x: Matrices (B, d, d).

    Returns:
        (B, d (d + 1) / 2). The gradient goes to the upper triangle only.

    Source: specs A.3.
    """
    rows, columns = torch.triu_indices(x.shape[1], x.shape[2], device=x.device)
    return x[:, rows, columns]


class BatchStatistics(NamedTuple):
    """Moments of the valid tokens of a batch: mean (d,), biased variance (d,), count (0-dim)."""

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor


@full_precision
def masked_batch_statistics(x: torch.Tensor, mask: torch.Tensor) -> BatchStatistics:
    """Mean and biased variance of each channel over the valid tokens of the whole batch.

    Args:
        x: Tokens (B, N, d).
        mask: Valid tokens (B, N), bool.

    Returns:
        BatchStatistics; the count is clamped to at least 1.

    Raises:
        ValueError: Tokens or mask of the wrong shape or type.

    Source: specs B.1 and B.4 (batch normalization over valid tokens).
    """
    _require_tokens(x, mask)
    count = mask.sum().clamp(min=1).to(x.dtype)
    mean = _valid_only(x, mask).sum(dim=(0, 1)) / count
    variance = (_valid_only(x - mean, mask) ** 2).sum(dim=(0, 1)) / count
    return BatchStatistics(mean, variance, count)
