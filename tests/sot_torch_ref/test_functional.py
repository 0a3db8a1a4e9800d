"""Functions where no alignment case goes: edges, precision, the published backward.

Dims: B 2, N 5, d 4.
"""

import pytest
import torch

from sot_torch_ref import functional

B, N, D1 = 2, 5, 4


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


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


def gram(seed: int = 11, size: int = 4) -> torch.Tensor:
    f = normal(B, 7, size, seed=seed)
    return f.transpose(1, 2) @ f


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
