"""Pure tensor functions of the second-order heads: no Layer, no state.

Shape legend: B samples (or samples x heads), N tokens, d / d1 / d2 channels, (n, d) one matrix.
Half-precision inputs are computed in float32, and automatic mixed precision is switched off
inside, because a covariance and its spectrum lose too much in eight or eleven bits.
Sources are sections of the functional specification of the originals (A.1-A.4: vision release,
B.1: text release).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import paddle

from sot_paddle.config import require_one_of

ZERO_NORM = 1e-12
"""Frobenius norm at or below which ``on_zero="zero"`` treats a matrix as exactly zero."""

CENTERINGS = ("scalar", "channel", "none")
COVARIANCE_SCALES = ("published", "tokens")
ON_ZERO = ("nan", "zero")


def at_least_float32(tensor: paddle.Tensor) -> paddle.Tensor:
    """A tensor of any shape, in float32 where it is of half precision."""
    half = tensor.dtype in (paddle.float16, paddle.bfloat16)
    return tensor.astype("float32") if half else tensor


def _full_precision(function: Callable) -> Callable:
    """Run ``function`` outside AMP, with half-precision tensor arguments cast to float32."""

    def widen(value):
        return at_least_float32(value) if isinstance(value, paddle.Tensor) else value

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with paddle.amp.auto_cast(enable=False):
            return function(
                *(widen(value) for value in args),
                **{key: widen(value) for key, value in kwargs.items()},
            )

    return wrapper


def token_weights(mask: paddle.Tensor, dtype: paddle.dtype) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Turn a token mask into multiplicative weights and counts.

    Args:
        mask: (B, N) bool or integer, true where the token is valid.
        dtype: floating type of the result.

    Returns:
        weights (B, N, 1), zero or one, and counts (B, 1, 1), the valid tokens of each sample,
        at least 1 so that a sample without any valid token divides by one instead of by zero.
    """
    weights = mask.astype(dtype).unsqueeze(-1)  # (B, N, 1)
    return weights, weights.sum(axis=1, keepdim=True).clip(min=1.0)


def axis_length(x: paddle.Tensor, axis: int) -> int | paddle.Tensor:
    """Length of an axis; an int64 scalar where a graph is traced that leaves it open."""
    return x.shape[axis] if x.shape[axis] != -1 else paddle.shape(x)[axis]


def _token_count(x: paddle.Tensor) -> int | paddle.Tensor:
    """The divisor N of (B, N, d); PADDLE: a graph divides by an int64 tensor wrongly."""
    count = axis_length(x, 1)
    return count if isinstance(count, int) else count.astype(x.dtype)


def center_tokens(
    x: paddle.Tensor, *, centering: str = "scalar", mask: paddle.Tensor | None = None
) -> paddle.Tensor:
    """Subtract a mean from every token: ``x - mean(x)``.

    QUIRK: ``"scalar"`` is what the published vision code does. It pools a (B, d, N) tensor with
    a two-dimensional average, so one number per sample is subtracted, the mean over tokens *and*
    channels. ``"channel"`` is the textbook centring.

    Args:
        x: (B, N, d).
        centering: ``"scalar"``, ``"channel"`` or ``"none"``.
        mask: (B, N), true where valid. Invalid tokens do not enter the mean and are zero after.

    Returns:
        (B, N, d), same dtype.

    Raises:
        ValueError: unknown ``centering``.

    Source: A.1 (scalar), B.1 step 4 (channel).
    """
    require_one_of("centering", centering, CENTERINGS)
    if mask is None:
        if centering == "none":
            return x
        axes = [1, 2] if centering == "scalar" else [1]
        return x - x.mean(axis=axes, keepdim=True)
    weights, count = token_weights(mask, x.dtype)
    kept = x * weights
    if centering == "none":
        return kept
    mean = kept.sum(axis=1, keepdim=True) / count  # (B, 1, d)
    if centering == "scalar":
        mean = mean.mean(axis=2, keepdim=True)  # (B, 1, 1)
    return (x - mean) * weights


@_full_precision
def cross_covariance(
    x1: paddle.Tensor,
    x2: paddle.Tensor,
    *,
    centering: str = "scalar",
    mask: paddle.Tensor | None = None,
) -> paddle.Tensor:
    """Cross-covariance of two token sets: ``(1/N) c(x1)^T c(x2)`` with ``c`` the centring.

    Args:
        x1: (B, N, d1).
        x2: (B, N, d2), same B and N.
        centering: see :func:`center_tokens`; each input is centred by its own mean.
        mask: (B, N); when given, N is the number of valid tokens of each sample.

    Returns:
        (B, d1, d2), float32 for half-precision inputs.

    Raises:
        ValueError: the inputs are not three-dimensional or B or N differ.

    Gradient: smooth everywhere (bilinear).
    Source: A.1.
    """
    if x1.ndim != 3 or x2.ndim != 3 or x1.shape[:2] != x2.shape[:2]:
        raise ValueError(
            "cross_covariance expects (B, N, d1) and (B, N, d2) with equal B and N, "
            f"got {x1.shape} and {x2.shape}"
        )
    count = _token_count(x1) if mask is None else token_weights(mask, x1.dtype)[1]
    c1 = center_tokens(x1, centering=centering, mask=mask)
    c2 = center_tokens(x2, centering=centering, mask=mask)
    return paddle.matmul(c1, c2, transpose_x=True) / count  # (B, d1, d2)


@_full_precision
def auto_covariance(
    x: paddle.Tensor,
    *,
    centering: str = "scalar",
    scale: str = "published",
    mask: paddle.Tensor | None = None,
) -> paddle.Tensor:
    """Covariance of one token set: ``f c(x)^T c(x)``.

    QUIRK: the published code unpacks the sizes in the wrong order, so f is 1/d (channels) with
    ``scale="published"``; ``scale="tokens"`` gives the true 1/N.

    Args:
        x: (B, N, d).
        centering: see :func:`center_tokens`.
        scale: ``"published"`` or ``"tokens"``.
        mask: (B, N); with ``"tokens"`` N is the number of valid tokens of each sample.

    Returns:
        (B, d, d), symmetric positive semi-definite.

    Raises:
        ValueError: ``x`` is not three-dimensional, or an unknown option.

    Source: A.1.
    """
    require_one_of("scale", scale, COVARIANCE_SCALES)
    if x.ndim != 3:
        raise ValueError(f"auto_covariance expects (B, N, d), got {x.shape}")
    divisor = x.shape[2]
    if scale == "tokens":
        divisor = _token_count(x) if mask is None else token_weights(mask, x.dtype)[1]
    centred = center_tokens(x, centering=centering, mask=mask)
    return paddle.matmul(centred, centred, transpose_x=True) / divisor


def _unit(vector: paddle.Tensor) -> paddle.Tensor:
    """Divide by the L2 norm along axis 1, clamped at 1e-12 as the original does.

    PADDLE: the gradient kernel of paddle.linalg.norm adds an epsilon to the norm, which is wrong by
    1e-12 over the norm: 4e-8 in float64 after a few deflations. The clamp is on the square because
    the derivative of a root is infinite at zero.
    """
    square = (vector * vector).sum(axis=1, keepdim=True)
    return vector / paddle.sqrt(square.clip(min=1e-24))


def _power(base: paddle.Tensor, exponent: float) -> paddle.Tensor:
    """``base ** exponent`` with the exponent in the tensor's own precision.

    PADDLE: a Python exponent is rounded to float32 (1e-8 relative for 0.3), also for float64.
    """
    return paddle.pow(base, paddle.full([], exponent, dtype=base.dtype))


def _replace_zero(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return (is_zero (B, 1, 1), x with the zero matrices replaced by a rectangular identity)."""
    is_zero = paddle.sqrt(paddle.square(x.detach()).sum(axis=[1, 2], keepdim=True)) <= ZERO_NORM
    harmless = paddle.eye(x.shape[1], x.shape[2], dtype=x.dtype).unsqueeze(0)
    return is_zero, paddle.where(is_zero, harmless, x)


def _guard_zero(x: paddle.Tensor, on_zero: str, function: Callable) -> paddle.Tensor:
    """Apply ``function`` to x; with ``on_zero="zero"`` zero matrices give 0 with gradient 0."""
    require_one_of("on_zero", on_zero, ON_ZERO)
    if on_zero == "nan":
        return function(x)
    is_zero, safe = _replace_zero(x)
    result = function(safe)
    return paddle.where(is_zero, paddle.zeros_like(result), result)


def _check_matrices(name: str, x: paddle.Tensor) -> None:
    if x.ndim != 3:
        raise ValueError(f"{name} expects matrices (B, n, d), got {x.shape}")


@_full_precision
def sv_power_norm(
    x: paddle.Tensor,
    start: paddle.Tensor,
    *,
    alpha: float = 0.5,
    num_iter: int = 1,
    num_sv: int | None = 1,
    on_zero: str = "nan",
) -> paddle.Tensor:
    """Singular-value power normalization (svPN) by power iteration.

    ``sum_i s_i^alpha u_i v_i^T + R / (s_r^(1-alpha) + 1e-5)`` over the r = ``num_sv`` leading
    singular triplets, each estimated on the deflated matrix by ``num_iter`` alternating
    iterations from the same start vector; R is what is left after r deflations. With
    ``num_sv=None`` r = min(n, d) and there is no remainder term.

    Args:
        x: (B, n, d).
        start: (d,), the start vector, used as it is (not normalised).
        alpha: exponent in (0, 1].
        num_iter: power iterations per triplet, at least 1.
        num_sv: triplets, or None for all. ``num_iter=1`` with ``num_sv`` other than 1 is
            ill-posed: the deflated matrix maps the same start vector to rounding noise.
        on_zero: ``"nan"`` keeps the published behaviour, ``"zero"`` gives output 0 and gradient
            0 for a matrix of Frobenius norm at most 1e-12.

    Returns:
        (B, n, d), float32 for half-precision inputs.

    Raises:
        ValueError: shapes that do not fit, or an option out of range.

    Gradient: flows through every iteration and the start vector. At a zero matrix it is NaN
    (s^(alpha-1)) unless ``on_zero="zero"``; a rank-deficient matrix with s_r > 0 is regular.
    Source: A.2.
    """
    _check_matrices("sv_power_norm", x)
    if list(start.shape) != [x.shape[2]]:
        raise ValueError(
            f"sv_power_norm expects a start vector of shape [{x.shape[2]}] for matrices "
            f"{x.shape}, got {start.shape}"
        )
    if num_iter < 1 or (num_sv is not None and num_sv < 1):
        raise ValueError(f"num_iter and num_sv must be at least 1, got {num_iter} and {num_sv}")
    rank = min(x.shape[1:]) if num_sv is None else num_sv
    column = start.astype(x.dtype).unsqueeze(-1)  # (d, 1)

    def normalize(matrix: paddle.Tensor) -> paddle.Tensor:
        rest, total = matrix, None
        for _ in range(rank):
            sigma, left, right = _leading_triplet(rest, column, num_iter)
            outer = paddle.matmul(left, right, transpose_y=True)  # (B, n, d)
            rest = rest - sigma * outer
            term = _power(sigma, alpha) * outer
            total = term if total is None else total + term
        if num_sv is not None:
            total = total + rest / (_power(sigma, 1.0 - alpha) + 1e-5)
        return total

    return _guard_zero(x, on_zero, normalize)


def _leading_triplet(
    matrix: paddle.Tensor, column: paddle.Tensor, num_iter: int
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Estimate the leading singular triplet: sigma (B,1,1), left (B,n,1), right (B,d,1)."""
    right = column
    for _ in range(num_iter):
        left = _unit(paddle.matmul(matrix, right))  # (B, n, 1)
        right = _unit(paddle.matmul(matrix, left, transpose_x=True))  # (B, d, 1)
    sigma = paddle.matmul(paddle.matmul(left, matrix, transpose_x=True), right)  # (B, 1, 1)
    return sigma, left, right


def _diagonal(x: paddle.Tensor) -> paddle.Tensor:
    """The diagonals (B, d) of (B, d, d), gathered: paddle2onnx knows no paddle.diagonal."""
    places = paddle.arange(0, x.shape[1] ** 2, x.shape[1] + 1)
    return paddle.index_select(x.flatten(1), places, axis=1)


@_full_precision
def matrix_sqrt(x: paddle.Tensor, *, num_iter: int = 3, on_zero: str = "nan") -> paddle.Tensor:
    """Matrix square root by coupled Newton-Schulz iterations (iSQRT-COV, "MPN").

    With t = trace(x), A = x/t: Y_0 = A (3I - A)/2, Z_0 = (3I - A)/2, then
    T = (3I - Z Y)/2, Y <- Y T, Z <- T Z; the result is sqrt(t) Y.

    Args:
        x: (B, d, d), symmetric positive semi-definite.
        num_iter: total iterations, at least 1; 3 in the published head.
        on_zero: as in :func:`sv_power_norm`; at ``"nan"`` a zero matrix gives NaN (0/0).

    Returns:
        (B, d, d), approximately the square root (exact as num_iter grows).

    Raises:
        ValueError: not square matrices, or ``num_iter`` below 1.

    Gradient: that of the iteration (plain autograd). The original's hand-written backward is
    its transpose with respect to x and identical once chained through x = F^T F.
    Source: A.3.
    """
    _check_matrices("matrix_sqrt", x)
    if x.shape[1] != x.shape[2]:
        raise ValueError(f"matrix_sqrt expects square matrices (B, d, d), got {x.shape}")
    if num_iter < 1:
        raise ValueError(f"num_iter must be at least 1, got {num_iter}")
    triple = 3.0 * paddle.eye(x.shape[1], dtype=x.dtype).unsqueeze(0)

    def iterate(matrix: paddle.Tensor) -> paddle.Tensor:
        trace = _diagonal(matrix).sum(axis=1).reshape([-1, 1, 1])
        scaled = matrix / trace
        z = 0.5 * (triple - scaled)
        y = paddle.matmul(scaled, z)
        for step in range(1, num_iter):
            t = 0.5 * (triple - paddle.matmul(z, y))
            y = paddle.matmul(y, t)
            if step < num_iter - 1:
                z = paddle.matmul(t, z)
        return paddle.sqrt(trace) * y

    return _guard_zero(x, on_zero, iterate)


@_full_precision
def entrywise_power_norm(x: paddle.Tensor, *, eps: float = 1e-8) -> paddle.Tensor:
    """Entrywise power normalization (ePN): ``sign(x) sqrt(|x| + eps)``, then unit columns.

    QUIRK: the L2 normalisation runs along axis 1, so each *column* of the matrix is divided by
    its own norm, not the whole matrix by one.

    Args:
        x: (B, n, d).
        eps: added below the root.

    Returns:
        (B, n, d).

    Gradient: at an exact zero entry the derivative is 0 (that of sign and abs).
    Source: A.4.
    """
    _check_matrices("entrywise_power_norm", x)
    return _unit(paddle.sign(x) * paddle.sqrt(paddle.abs(x) + eps))


def triu_vectorize(x: paddle.Tensor) -> paddle.Tensor:
    """Gather the upper triangle, diagonal included, in row-major order.

    Args:
        x: (B, d, d).

    Returns:
        (B, d (d + 1) / 2), same dtype; for d = 3 the flat indices 0, 1, 2, 4, 5, 8.

    Source: A.3.
    """
    _check_matrices("triu_vectorize", x)
    size = x.shape[1]
    index = [row * size + column for row in range(size) for column in range(row, size)]
    flat = x.reshape([x.shape[0], size * size])
    return paddle.index_select(flat, paddle.to_tensor(index, dtype="int64"), axis=1)
