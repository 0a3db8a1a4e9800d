"""Functions against loops, decompositions and finite differences; zeros: tests/parity.

Dims, all different: B 2, N 5, d1 4, d2 3; svPN on 4 x 3 and 3 x 4 matrices.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import functional as F

B, N, D1, D2 = 2, 5, 4, 3
MASK = np.array([[True, False, True, True, False], [True, True, True, True, False]])


def tokens(channels: int, seed: int) -> np.ndarray:
    """Tokens with another offset in every channel: they show which axes a mean runs over."""
    noise = np.random.default_rng(seed).normal(size=(B, N, channels))
    return noise + 3.0 * np.arange(channels)


def positive_definite(size: int, seed: int = 3) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(B, size, size + 2))
    return root @ root.transpose(0, 2, 1) + 0.1 * np.eye(size)


def centred(x: np.ndarray, centering: str, valid: np.ndarray) -> np.ndarray:
    """Valid rows of one sample minus their mean: (N_valid, d)."""
    rows = x[valid]
    mean = {"scalar": rows.mean(), "channel": rows.mean(axis=0), "none": 0.0}[centering]
    return rows - mean


@pytest.mark.parametrize("centering", F.CENTERINGS)
@pytest.mark.parametrize("masked", [False, True])
def test_cross_covariance_value(centering: str, masked: bool) -> None:
    x1, x2 = tokens(D1, 1), tokens(D2, 2)
    mask = MASK if masked else np.ones((B, N), bool)
    result = F.cross_covariance(
        paddle.to_tensor(x1),
        paddle.to_tensor(x2),
        centering=centering,
        mask=paddle.to_tensor(mask) if masked else None,
    ).numpy()
    assert result.shape == (B, D1, D2)
    for b in range(B):
        c1, c2 = centred(x1[b], centering, mask[b]), centred(x2[b], centering, mask[b])
        np.testing.assert_allclose(result[b], c1.T @ c2 / mask[b].sum(), rtol=0, atol=1e-12)


def test_quirk_scalar_centering_is_the_default_and_channel_the_switch() -> None:
    x1, x2 = paddle.to_tensor(tokens(D1, 1)), paddle.to_tensor(tokens(D2, 2))
    default = F.cross_covariance(x1, x2)
    scalar = F.cross_covariance(x1, x2, centering="scalar")
    channel = F.cross_covariance(x1, x2, centering="channel")
    np.testing.assert_array_equal(default.numpy(), scalar.numpy())
    assert float((scalar - channel).abs().max()) > 1.0
    shifted = F.cross_covariance(x1 + paddle.arange(D1, dtype="float64"), x2, centering="channel")
    np.testing.assert_allclose(shifted.numpy(), channel.numpy(), rtol=0, atol=1e-12)


def test_quirk_auto_covariance_divides_by_channels_unless_told() -> None:
    x = paddle.to_tensor(tokens(D1, 4))
    published, true = F.auto_covariance(x), F.auto_covariance(x, scale="tokens")
    np.testing.assert_allclose((published * (D1 / N)).numpy(), true.numpy(), rtol=1e-13)
    assert D1 != N


@pytest.mark.parametrize("centering", F.CENTERINGS)
def test_masked_tokens_neither_give_nor_get(centering: str) -> None:
    x1, x2 = tokens(D1, 1), tokens(D2, 2)
    wild = np.where(MASK[..., None], x1, 1e3)
    mask = paddle.to_tensor(MASK)
    tensor = paddle.to_tensor(wild, stop_gradient=False)
    result = F.cross_covariance(tensor, paddle.to_tensor(x2), centering=centering, mask=mask)
    tame = F.cross_covariance(
        paddle.to_tensor(x1), paddle.to_tensor(x2), centering=centering, mask=mask
    )
    np.testing.assert_allclose(result.numpy(), tame.numpy(), rtol=0, atol=1e-12)
    (result**2).sum().backward()
    gradient = tensor.grad.numpy()
    assert not gradient[~MASK].any()
    assert gradient[MASK].all()


@pytest.mark.parametrize("kind", ["bool", "int64"])
def test_a_sample_without_valid_tokens_is_zero_not_nan(kind: str) -> None:
    mask = paddle.to_tensor(np.array([[False] * N, [True] * N])).astype(kind)
    weights, count = F.token_weights(mask, paddle.float64)
    assert weights.shape == [B, N, 1]
    assert weights.dtype == paddle.float64
    assert count.flatten().tolist() == [1.0, N]
    x1 = paddle.to_tensor(tokens(D1, 1))
    result = F.cross_covariance(x1, x1, mask=mask)
    assert not result[0].numpy().any()
    assert np.isfinite(result.numpy()).all()
    assert result[1].numpy().any()


def test_one_token_has_no_covariance_per_channel() -> None:
    x = paddle.to_tensor(tokens(D1, 1)[:, :1])
    assert not F.cross_covariance(x, x, centering="channel").numpy().any()
    assert F.cross_covariance(x, x, centering="scalar").numpy().any()


def matrices(n: int = D1, d: int = D2, seed: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, n, d))


def start_vector(d: int = D2) -> np.ndarray:
    return np.random.default_rng(7).normal(size=d)


def svpn(x, w, **options) -> paddle.Tensor:
    return F.sv_power_norm(paddle.to_tensor(x), paddle.to_tensor(w), **options)


@pytest.mark.parametrize("alpha", [0.5, 0.3])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_svpn_converges_to_the_decomposition(shape, alpha: float) -> None:
    rng = np.random.default_rng(8)
    left, right = (np.linalg.qr(rng.normal(size=(B, size, size)))[0] for size in shape)
    values = np.array([[3.0, 1.5, 0.5], [2.0, 0.9, 0.2]])
    x = left[:, :, :3] * values[:, None] @ right[:, :, :3].transpose(0, 2, 1)
    expected = left[:, :, :3] * values[:, None] ** alpha @ right[:, :, :3].transpose(0, 2, 1)
    iterated = svpn(x, start_vector(shape[1]), alpha=alpha, num_iter=200, num_sv=None)
    np.testing.assert_allclose(iterated.numpy(), expected, rtol=0, atol=1e-10)


def test_svpn_with_equal_singular_values(check_gradient) -> None:
    orthogonal = np.linalg.qr(matrices(3, 3))[0]
    w = start_vector(3)
    result = svpn(2.0 * orthogonal, w).numpy()
    v = w / np.linalg.norm(w)
    for b in range(B):
        leading = np.outer(orthogonal[b] @ v, v)
        rest = 2.0 * (orthogonal[b] - leading) / (np.sqrt(2.0) + 1e-5)
        np.testing.assert_allclose(result[b], np.sqrt(2.0) * leading + rest, rtol=0, atol=1e-13)
    start = paddle.to_tensor(w)
    check_gradient(lambda x: F.sv_power_norm(x, start), 2.0 * orthogonal, tolerance=1e-6)


def test_svpn_beyond_the_rank_is_finite_with_nan_gradient() -> None:
    """As the original: with s_2 exactly 0 the value is finite, its derivative 0^(alpha-1)."""
    x = paddle.to_tensor(np.diag([2.0, 0.0, 0.0])[None], stop_gradient=False)
    result = F.sv_power_norm(x, paddle.ones([3], "float64"), num_iter=2, num_sv=2)
    np.testing.assert_allclose(result.numpy(), np.diag([2**0.5, 0, 0])[None], atol=1e-12)
    result.sum().backward()
    assert np.isnan(x.grad.numpy()).any()


def test_matrix_sqrt_converges_to_the_eigenvalue_oracle() -> None:
    x = positive_definite(4)
    values, vectors = np.linalg.eigh(x)
    exact = vectors * np.sqrt(values)[:, None] @ vectors.transpose(0, 2, 1)
    result = F.matrix_sqrt(paddle.to_tensor(x), num_iter=30).numpy()
    np.testing.assert_allclose(result, exact, rtol=0, atol=1e-10)
    np.testing.assert_allclose(exact @ exact, x, rtol=0, atol=1e-10)


def precision_cases() -> dict:
    x1, x2 = (paddle.to_tensor(tokens(d, d), dtype="float32") for d in (D1, D2))
    square = paddle.to_tensor(positive_definite(3), dtype="float32")
    start = paddle.ones([3], dtype="float32")
    return {
        "cross_covariance": (F.cross_covariance, (x1, x2)),
        "auto_covariance": (F.auto_covariance, (x1,)),
        "sv_power_norm": (F.sv_power_norm, (square, start)),
        "matrix_sqrt": (F.matrix_sqrt, (square,)),
        "entrywise_power_norm": (F.entrywise_power_norm, (square,)),
    }


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", sorted(precision_cases()))
def test_half_precision_inputs_are_computed_in_float32(name: str, half: str) -> None:
    function, arguments = precision_cases()[name]
    rounded = [argument.astype(half) for argument in arguments]
    result = function(*rounded)
    assert result.dtype == paddle.float32
    widened = function(*(argument.astype("float32") for argument in rounded))
    np.testing.assert_array_equal(result.numpy(), widened.numpy())


@pytest.mark.parametrize("name", sorted(precision_cases()))
def test_mixed_precision_is_switched_off_inside(amp_switches, name: str) -> None:
    function, arguments = precision_cases()[name]
    function(*arguments)
    assert amp_switches == [{"enable": False}]


def test_refusals() -> None:
    x, square = paddle.ones([B, N, D1]), paddle.ones([B, D2, D2])
    start, wide = paddle.ones([D2]), paddle.ones([D1])
    for message, call in {
        r"equal B and N, got .*5, 4.* and .*4, 4": lambda: F.cross_covariance(x, x[:, 1:]),
        "auto_covariance expects": lambda: F.auto_covariance(x[0]),
        "centering must be one of scalar, ch": lambda: F.cross_covariance(x, x, centering="no"),
        "scale must be one of published, tok": lambda: F.auto_covariance(x, scale="true"),
        "square matrices": lambda: F.matrix_sqrt(x),
        "num_iter must be at least 1": lambda: F.matrix_sqrt(square, num_iter=0),
        r"start vector of shape \[3\].*got .*\[4\]": lambda: F.sv_power_norm(square, wide),
        "num_iter and num_sv must be at": lambda: F.sv_power_norm(square, start, num_sv=0),
        "on_zero must be one of nan, zero": lambda: F.matrix_sqrt(square, on_zero="raise"),
        "triu_vectorize expects matrices": lambda: F.triu_vectorize(square[0]),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
