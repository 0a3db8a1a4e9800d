"""The second-order head natively in float32: cross-covariance and svPN with analytic gradients.

Shape legend: B samples, N tokens, H heads, w channels of a head, d1 / d2 channels, (n, d) a matrix.
"""

from __future__ import annotations

import paddle

from sot_paddle import functional as F
from sot_paddle.ops.dispatch import run, runs_natively

_CENTRINGS = ("channel", "scalar")


def _runs_natively(x: paddle.Tensor, centering: str, mask: paddle.Tensor | None) -> bool:
    fits = centering in _CENTRINGS and x.ndim == 3
    return fits and runs_natively(x) and (mask is None or mask.shape == x.shape[:2])


def _covariance(
    sets: list[paddle.Tensor], num_heads: int, centering: str, mask: paddle.Tensor | None
) -> paddle.Tensor:
    weights = None if mask is None else mask.astype("float32")
    return run("sot_covariance", sets, weights, num_heads, centering == "scalar")


def head_covariance(
    projected: paddle.Tensor, num_heads: int, *, centering: str, mask: paddle.Tensor | None
) -> paddle.Tensor:
    """:func:`sot_paddle.functional.cross_covariance` of each head, natively where possible.

    Args:
        projected: (B, N, 2 H w): the left sets of all heads, then the right ones.
        num_heads: H.
        centering: see :func:`sot_paddle.functional.center_tokens`.
        mask: (B, N), true where valid, or None.

    Returns:
        (B H, w, w). Gradient: bilinear; once only where it runs natively.
    """
    if _runs_natively(projected, centering, mask):
        return _covariance([projected], num_heads, centering, mask)
    batch, length = F.axis_length(projected, 0), F.axis_length(projected, 1)
    width = projected.shape[2] // (2 * num_heads)
    parts = projected.reshape([batch, length, 2, num_heads, width])
    parts = parts.transpose([2, 0, 3, 1, 4])  # (2, B, H, N, w)
    w, r = parts.reshape([2, batch * num_heads, length, width]).unbind(0)
    if mask is not None:
        mask = mask.unsqueeze(1).expand([batch, num_heads, length])
        mask = mask.reshape([batch * num_heads, length])
    return F.cross_covariance(w, r, centering=centering, mask=mask)


def cross_covariance(
    x1: paddle.Tensor, x2: paddle.Tensor, *, centering: str, mask: paddle.Tensor | None
) -> paddle.Tensor:
    """:func:`sot_paddle.functional.cross_covariance`, natively where that is possible.

    Args:
        x1: (B, N, d1).
        x2: (B, N, d2).
        centering: see :func:`sot_paddle.functional.center_tokens`.
        mask: (B, N), true where valid, or None.

    Returns:
        (B, d1, d2). Gradient: bilinear; once only where it runs natively.
    """
    fits = _runs_natively(x1, centering, mask) and x2.ndim == 3 and x1.shape[:2] == x2.shape[:2]
    if not fits or x2.dtype != x1.dtype:
        return F.cross_covariance(x1, x2, centering=centering, mask=mask)
    return _covariance([x1, x2], 1, centering, mask)


def sv_power_norm(
    x: paddle.Tensor,
    start: paddle.Tensor,
    *,
    alpha: float,
    num_iter: int,
    num_sv: int | None,
    on_zero: str,
) -> paddle.Tensor:
    """:func:`sot_paddle.functional.sv_power_norm`, natively with one singular triplet.

    Args:
        x: (B, n, d).
        start: (d,).
        alpha: exponent in (0, 1].
        num_iter: power iterations.
        num_sv: triplets; any number but 1 is computed by the plain form.
        on_zero: ``"nan"`` or ``"zero"``.

    Returns:
        (B, n, d). Gradient: as the plain form's, NaN at a zero matrix included; once only.
    """
    fits = num_sv == 1 and num_iter >= 1 and on_zero in F.ON_ZERO and x.ndim == 3
    fits = fits and start.dtype == x.dtype and list(start.shape) == x.shape[2:]
    if fits and runs_natively(x):
        return run("sot_sv_power_norm", x, start, alpha, num_iter, on_zero == "zero")
    options = {"alpha": alpha, "num_iter": num_iter, "num_sv": num_sv, "on_zero": on_zero}
    return F.sv_power_norm(x, start, **options)
