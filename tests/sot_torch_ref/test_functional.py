"""Functions against loops, decompositions and finite differences.

Dims, all different: B 2, N 5, d1 4, d2 3, n 6, d 4.
"""

import numpy as np
import pytest
import torch

from sot_torch_ref import functional

B, N, D1, D2 = 2, 5, 4, 3


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def offset_tokens(channels: int, seed: int) -> torch.Tensor:
    """Tokens with a different offset per channel: they expose the axes of the mean."""
    return normal(B, N, channels, seed=seed) + 3.0 * torch.arange(channels, dtype=torch.float64)


def covariance_loop(
    x1: np.ndarray, x2: np.ndarray, centering: str, divisor: float, valid: np.ndarray
) -> np.ndarray:
    """Covariance of one sample by loops over the valid tokens."""
    rows = [n for n in range(len(valid)) if valid[n]]

    def means(x: np.ndarray) -> np.ndarray:
        channel = np.array([sum(x[n, c] for n in rows) for c in range(x.shape[1])])
        channel = channel / max(len(rows), 1)
        return {
            "scalar": np.full_like(channel, channel.mean()),
            "channel": channel,
            "none": np.zeros_like(channel),
        }[centering]

    m1, m2 = means(x1), means(x2)
    y = np.zeros((x1.shape[1], x2.shape[1]))
    for i in range(x1.shape[1]):
        for j in range(x2.shape[1]):
            y[i, j] = sum((x1[n, i] - m1[i]) * (x2[n, j] - m2[j]) for n in rows) / divisor
    return y


@pytest.mark.parametrize("centering", ["scalar", "channel", "none"])
@pytest.mark.parametrize("masked", [False, True])
def test_cross_covariance_equals_loop(centering: str, masked: bool) -> None:
    x1, x2 = offset_tokens(D1, 1), offset_tokens(D2, 2)
    mask = torch.tensor([[True, True, True, False, False], [True] * 5]) if masked else None
    result = functional.cross_covariance(x1, x2, centering=centering, mask=mask)
    assert result.shape == (B, D1, D2)
    for b in range(B):
        valid = np.ones(N, bool) if mask is None else mask[b].numpy()
        expected = covariance_loop(x1[b].numpy(), x2[b].numpy(), centering, valid.sum(), valid)
        np.testing.assert_allclose(result[b].numpy(), expected, rtol=1e-12, atol=1e-12)


def test_scalar_centering_is_not_per_channel() -> None:
    x1, x2 = offset_tokens(D1, 1), offset_tokens(D2, 2)
    scalar = functional.cross_covariance(x1, x2)
    channel = functional.cross_covariance(x1, x2, centering="channel")
    assert (scalar - channel).abs().max() > 1.0


@pytest.mark.parametrize("scale", ["published", "tokens"])
@pytest.mark.parametrize("masked", [False, True])
def test_auto_covariance_equals_loop(scale: str, masked: bool) -> None:
    x = offset_tokens(D1, 3)
    mask = torch.tensor([[True, False, True, True, False], [True] * 5]) if masked else None
    result = functional.auto_covariance(x, scale=scale, mask=mask)
    for b in range(B):
        valid = np.ones(N, bool) if mask is None else mask[b].numpy()
        divisor = D1 if scale == "published" else valid.sum()
        expected = covariance_loop(x[b].numpy(), x[b].numpy(), "scalar", divisor, valid)
        np.testing.assert_allclose(result[b].numpy(), expected, rtol=1e-12, atol=1e-12)


def test_single_token_has_zero_covariance_per_channel_only() -> None:
    x = normal(B, 1, D1)
    channel = functional.cross_covariance(x, x, centering="channel")
    assert torch.equal(channel, torch.zeros(B, D1, D1, dtype=x.dtype))
    assert functional.cross_covariance(x, x).abs().max() > 0.01


def test_padded_values_reach_neither_value_nor_gradient() -> None:
    mask = torch.tensor([[True, True, False, False, False], [True, True, True, True, False]])
    x = normal(B, N, D1, seed=4)
    polluted = torch.where(mask[:, :, None], x, torch.nan).requires_grad_()
    clean = x.clone().requires_grad_()
    for tokens in (clean, polluted):
        statistics = functional.masked_batch_statistics(tokens, mask)
        total = functional.cross_covariance(tokens, tokens, mask=mask).sin().sum()
        total = total + functional.token_mean(tokens, mask=mask).cos().sum()
        (total + (statistics.mean * statistics.variance).sum()).backward()
    assert torch.equal(clean.grad, polluted.grad)
    assert torch.equal(clean.grad[~mask], torch.zeros_like(clean.grad[~mask]))


def test_sample_without_valid_token_counts_as_one_zero_token() -> None:
    mask = torch.tensor([[False] * 5, [True] * 5])
    x = normal(B, N, D1)
    assert torch.equal(functional.token_mean(x, mask=mask)[0], torch.zeros(D1, dtype=x.dtype))
    covariance = functional.cross_covariance(x, x, mask=mask)
    assert torch.equal(covariance[0], torch.zeros(D1, D1, dtype=x.dtype))
    assert torch.isfinite(covariance).all()


def test_covariance_gradients_by_finite_differences() -> None:
    mask = torch.tensor([[True, True, True, False, True], [True, False, True, True, True]])
    x1, x2 = normal(B, N, D1).requires_grad_(), normal(B, N, D2, seed=1).requires_grad_()
    for centering in functional.CENTERINGS:
        assert torch.autograd.gradcheck(
            lambda a, b, kind=centering: functional.cross_covariance(
                a, b, centering=kind, mask=mask
            ),
            (x1, x2),
        )
    assert torch.autograd.gradcheck(lambda a: functional.auto_covariance(a, mask=mask), (x1,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: functional.cross_covariance(x, x[:, 1:]), "same batch size and number"),
        (lambda x: functional.cross_covariance(x, x, centering="row"), "centering must be one of"),
        (lambda x: functional.auto_covariance(x, scale="d"), "covariance scale must be one of"),
        (lambda x: functional.token_mean(x[:, :0]), "at least one token"),
        (lambda x: functional.token_mean(x, mask=torch.ones(B, N)), "mask must be bool"),
        (lambda x: functional.token_mean(x, mask=torch.ones(N, B).bool()), "of shape"),
    ],
)
def test_covariance_refusals(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(normal(B, N, D1))


def power_norm_numpy(
    x: np.ndarray, start: np.ndarray, alpha: float, num_iter: int, num_sv: int | None
) -> np.ndarray:
    """One matrix, written from the algorithm with NumPy vectors."""

    def unit(vector: np.ndarray) -> np.ndarray:
        return vector / max(np.sqrt((vector**2).sum()), 1e-12)

    rest, result, s = x.copy(), np.zeros_like(x), 0.0
    for _ in range(min(x.shape) if num_sv is None else num_sv):
        v = start
        for _ in range(num_iter):
            u = unit(rest.dot(v))
            v = unit(rest.T.dot(u))
        s = float(u.dot(rest.dot(v)))
        rest = rest - s * np.outer(u, v)
        result = result + s**alpha * np.outer(u, v)
    return result if num_sv is None else result + rest / (s ** (1 - alpha) + 1e-5)


@pytest.mark.parametrize("shape", [(5, 4), (3, 4), (4, 4)])
@pytest.mark.parametrize("alpha", [0.5, 0.3, 1.0])
@pytest.mark.parametrize(("num_sv", "num_iter"), [(1, 1), (1, 3), (2, 2), (3, 5), (None, 4)])
def test_power_norm_equals_numpy(shape, alpha: float, num_sv, num_iter: int) -> None:
    x, start = normal(B, *shape, seed=5), normal(shape[1], seed=6)
    result = functional.sv_power_norm(x, start, alpha=alpha, num_iter=num_iter, num_sv=num_sv)
    for b in range(B):
        expected = power_norm_numpy(x[b].numpy(), start.numpy(), alpha, num_iter, num_sv)
        np.testing.assert_allclose(result[b].numpy(), expected, rtol=1e-9, atol=1e-9)


def test_converged_power_norm_equals_svd() -> None:
    left, _ = np.linalg.qr(normal(B, 5, 4, seed=7).numpy())
    right, _ = np.linalg.qr(normal(B, 4, 4, seed=1).numpy())
    values = np.array([5.0, 3.0, 1.5, 0.5])
    x = torch.from_numpy((left * values) @ right.transpose(0, 2, 1))
    start = normal(4, seed=8)
    exact = functional.sv_power_norm_exact(x, alpha=0.4)
    expected = (left * values**0.4) @ right.transpose(0, 2, 1)
    np.testing.assert_allclose(exact.numpy(), expected, atol=1e-13)
    converged = functional.sv_power_norm(x, start, alpha=0.4, num_iter=60, num_sv=None)
    assert (converged - exact).abs().max() < 1e-9
    single = functional.sv_power_norm(x, start, alpha=0.4, num_iter=60, num_sv=1)
    power = values / (5.0**0.6 + 1e-5)
    power[0] = 5.0**0.4
    expected = (left * power) @ right.transpose(0, 2, 1)
    np.testing.assert_allclose(single.numpy(), expected, atol=1e-9)


def test_equal_singular_values_are_exact_at_once() -> None:
    x = 4.0 * torch.eye(4, dtype=torch.float64)[None]
    result = functional.sv_power_norm(x, normal(4), num_sv=1)
    direction = normal(4) / normal(4).norm()
    outer = torch.outer(direction, direction)
    expected = 2.0 * outer + 4.0 * (torch.eye(4) - outer) / (2.0 + 1e-5)
    assert (result[0] - expected).abs().max() < 1e-12


def test_start_vector_is_not_normalised_but_its_length_is_irrelevant() -> None:
    x, start = normal(B, 5, 4), normal(4)
    left = functional.sv_power_norm(x, start)
    right = functional.sv_power_norm(x, 8.0 * start)
    assert (left - right).abs().max() < 1e-13


@pytest.mark.parametrize("on_zero", ["nan", "zero"])
@pytest.mark.parametrize(("num_sv", "num_iter"), [(1, 1), (1, 2), (2, 3)])
def test_power_norm_gradient_by_finite_differences(on_zero: str, num_sv, num_iter: int) -> None:
    x, start = normal(B, 5, 3, seed=9).requires_grad_(), normal(3, seed=10).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda a, w: functional.sv_power_norm(
            a, w, num_iter=num_iter, num_sv=num_sv, on_zero=on_zero
        ),
        (x, start),
    )


def zero_first(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    x = normal(B, 5, 4, dtype=dtype)
    x[0] = 0.0
    return x.requires_grad_()


def test_zero_matrix_as_published_has_finite_output_and_nan_gradient() -> None:
    x, start = zero_first(), normal(4).requires_grad_()
    result = functional.sv_power_norm(x, start)
    assert torch.equal(result[0], torch.zeros_like(result[0]))
    result.sum().backward()
    assert torch.isnan(x.grad[0]).any()
    assert torch.isfinite(x.grad[1]).all()
    assert torch.isnan(start.grad).any()


@pytest.mark.parametrize("num_sv", [1, 2, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_matrix_in_zero_mode_has_zero_gradient(num_sv, dtype: torch.dtype) -> None:
    x, start = zero_first(dtype), normal(4, dtype=dtype).requires_grad_()
    result = functional.sv_power_norm(x, start, num_iter=3, num_sv=num_sv, on_zero="zero")
    result.square().sum().backward()
    assert torch.equal(result[0], torch.zeros_like(result[0]))
    assert torch.equal(x.grad[0], torch.zeros_like(x.grad[0]))
    alone, same = x.detach()[1:].clone().requires_grad_(), start.detach().clone().requires_grad_()
    other = functional.sv_power_norm(alone, same, num_iter=3, num_sv=num_sv)
    other.square().sum().backward()
    torch.testing.assert_close(result[1], other[0])
    torch.testing.assert_close(x.grad[1], alone.grad[0])
    torch.testing.assert_close(start.grad, same.grad)
    assert x.grad[1].abs().max() > 0.01


def test_zero_mode_threshold() -> None:
    x = torch.zeros(2, 5, 4, dtype=torch.float64)
    x[0, 0, 0], x[1, 0, 0] = 0.9e-12, 1.1e-12
    result = functional.sv_power_norm(x, torch.ones(4, dtype=x.dtype), on_zero="zero")
    assert torch.equal(result[0], torch.zeros_like(result[0]))
    assert result[1].abs().max() > 1e-7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": torch.ones(5)}, "start vector"),
        ({"num_iter": 0}, "at least 1"),
        ({"num_sv": 0}, "at least 1"),
        ({"on_zero": "floor"}, "on_zero must be one of nan, zero"),
    ],
)
def test_power_norm_refusals(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        functional.sv_power_norm(normal(B, 5, 4), **{"start": torch.ones(4), **arguments})


def gram(seed: int = 11, size: int = 4) -> torch.Tensor:
    f = normal(B, 7, size, seed=seed)
    return f.transpose(1, 2) @ f


@pytest.mark.parametrize("num_iter", [1, 2, 3, 5])
def test_matrix_sqrt_equals_scalar_recursion_on_eigenvalues(num_iter: int) -> None:
    """Newton-Schulz acts on each eigenvalue by itself."""
    x = gram()
    values, vectors = np.linalg.eigh(x.numpy())
    trace = values.sum(axis=1, keepdims=True)
    a = values / trace
    y, z = a * (3 - a) / 2, (3 - a) / 2
    for step in range(1, num_iter):
        last = step == num_iter - 1
        y, z = y * (3 - z * y) / 2, z if last else z * (3 - z * y) / 2
    expected = (vectors * (np.sqrt(trace) * y)[:, None, :]) @ vectors.transpose(0, 2, 1)
    result = functional.matrix_sqrt(x, num_iter).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11)


def test_converged_matrix_sqrt_squares_back() -> None:
    x = gram()
    exact = functional.matrix_sqrt_exact(x)
    assert (exact @ exact - x).abs().max() < 1e-12
    assert (functional.matrix_sqrt(x, 30) - exact).abs().max() < 1e-11


@pytest.mark.parametrize("num_iter", [1, 3])
def test_matrix_sqrt_gradient_by_finite_differences(num_iter: int) -> None:
    x = gram(size=3).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: functional.matrix_sqrt(a, num_iter), (x,))


def published_backward(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Hand-written backward of the published code for three iterations (specs A.3)."""
    eye = 3.0 * torch.eye(x.shape[1], dtype=x.dtype)
    trace = x.diagonal(dim1=1, dim2=2).sum(1)[:, None, None]
    a = x / trace
    z0 = (eye - a) / 2
    y0 = a @ z0
    step = (eye - z0 @ y0) / 2
    y, z = y0 @ step, step @ z0
    result = y @ (eye - z @ y) / 2
    g = trace.sqrt() * grad
    share = (grad * result).sum(dim=(1, 2), keepdim=True) / (2 * trace.sqrt())
    dy = (g @ (eye - y @ z) - z @ y @ g) / 2
    dz = -(y @ g @ y) / 2
    dy, dz = (
        (dy @ (eye - y0 @ z0) - z0 @ dz @ z0 - z0 @ y0 @ dy) / 2,
        ((eye - y0 @ z0) @ dz - y0 @ dy @ y0 - dz @ z0 @ y0) / 2,
    )
    d = ((dy @ (eye - a) - dz - a @ dy) / 2).transpose(1, 2)
    inner = (d * x).sum(dim=(1, 2), keepdim=True)
    return d / trace + (share - inner / trace**2) * torch.eye(x.shape[1], dtype=x.dtype)


def test_published_backward_is_the_transpose_of_autograd() -> None:
    x, grad = gram().requires_grad_(), normal(B, 4, 4, seed=12)
    functional.matrix_sqrt(x, 3).backward(grad)
    expected = published_backward(x.detach(), grad).transpose(1, 2)
    torch.testing.assert_close(x.grad, expected, rtol=1e-10, atol=1e-10)


def test_matrix_sqrt_of_zero() -> None:
    x = gram()
    x[0] = 0.0
    x.requires_grad_()
    assert torch.isnan(functional.matrix_sqrt(x)[0]).all()
    result = functional.matrix_sqrt(x, on_zero="zero")
    result.sum().backward()
    assert torch.equal(result[0], torch.zeros_like(result[0]))
    assert torch.equal(x.grad[0], torch.zeros_like(x.grad[0]))
    assert torch.equal(result[1], functional.matrix_sqrt(x)[1])
    assert torch.isfinite(x.grad).all()


def test_matrix_sqrt_refusals() -> None:
    with pytest.raises(ValueError, match="num_iter >= 1"):
        functional.matrix_sqrt(gram(), 0)
    with pytest.raises(ValueError, match="B, d, d"):
        functional.matrix_sqrt(normal(B, 5, 4))


def test_entrywise_power_norm_normalises_columns() -> None:
    x = normal(B, 5, 3, seed=13)
    result = functional.entrywise_power_norm(x)
    z = np.sign(x.numpy()) * np.sqrt(np.abs(x.numpy()) + 1e-8)
    for b in range(B):
        for column in range(3):
            expected = z[b, :, column] / np.sqrt((z[b, :, column] ** 2).sum())
            np.testing.assert_allclose(result[b, :, column].numpy(), expected, rtol=1e-13)
    assert torch.autograd.gradcheck(functional.entrywise_power_norm, (x.requires_grad_(),))


def test_entrywise_power_norm_eps_and_zero() -> None:
    x = torch.tensor([[1e-9, -1e-9]], dtype=torch.float64)
    raw = functional.entrywise_power_norm(x, eps=3e-9)
    assert raw[0].tolist() == pytest.approx([2**-0.5, -(2**-0.5)])
    zero = torch.zeros(1, 3, 2, dtype=torch.float64, requires_grad=True)
    functional.entrywise_power_norm(zero).sum().backward()
    assert torch.equal(zero.grad, torch.zeros_like(zero))


def test_triangle_order() -> None:
    x = torch.arange(18.0).reshape(2, 3, 3).requires_grad_()
    result = functional.triu_vectorize(x)
    assert result[0].tolist() == [0, 1, 2, 4, 5, 8]
    result.sum().backward()
    assert torch.equal(x.grad[0], torch.ones(3, 3).triu())


def test_masked_batch_statistics() -> None:
    mask = torch.tensor([[True, True, False, False, False], [True, True, True, True, False]])
    x = offset_tokens(D1, 14)
    mean, variance, count = functional.masked_batch_statistics(x, mask)
    valid = x[mask].numpy()  # (6, d)
    np.testing.assert_allclose(mean.numpy(), valid.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(variance.numpy(), valid.var(axis=0), rtol=1e-12)
    assert count == 6
    empty = functional.masked_batch_statistics(x, torch.zeros(B, N, dtype=torch.bool))
    assert empty.count == 1
    assert torch.equal(empty.variance, torch.zeros(D1, dtype=x.dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_are_computed_in_float32(dtype: torch.dtype) -> None:
    x, start = normal(B, 5, 4).to(dtype), normal(4).to(dtype)
    covariance = functional.cross_covariance(x, x)
    assert covariance.dtype == torch.float32
    assert torch.equal(covariance, functional.cross_covariance(x.float(), x.float()))
    normalised = functional.sv_power_norm(x, start)
    assert torch.equal(normalised, functional.sv_power_norm(x.float(), start.float()))


def test_autocast_does_not_lower_the_precision() -> None:
    x, start = normal(B, 5, 4, dtype=torch.float32), normal(4, dtype=torch.float32)
    square = gram().float()

    def results() -> list[torch.Tensor]:
        return [
            functional.cross_covariance(x, x),
            functional.auto_covariance(x),
            functional.sv_power_norm(x, start),
            functional.matrix_sqrt(square),
        ]

    plain = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x.transpose(1, 2)).dtype == torch.bfloat16  # autocast is on
        lowered = results()
    for left, right in zip(plain, lowered, strict=True):
        assert torch.equal(left, right)
