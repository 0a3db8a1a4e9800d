"""Poolings against their formulas. Dims: B 2, N 5, C 12, H 3, wr 4, q 7, k 6."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sot_torch_ref import functional
from sot_torch_ref.heads.pooling import GAP, GCP, MGCrP, MGCrPQK, TokenBatchNorm2d, reduced_dim
from sot_torch_ref.heads.power_norm import MPN, SvPN

B, N, C, HEADS, WR, Q, K = 2, 5, 12, 3, 4, 7, 6
MASK = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])

pytestmark = pytest.mark.usefixtures("float64")


def filled_batch_norm(layer: nn.BatchNorm2d) -> None:
    for value in (layer.weight, layer.bias, layer.running_mean):
        nn.init.normal_(value)
    nn.init.uniform_(layer.running_var, 0.5, 2.0)


@pytest.mark.parametrize("training", [True, False])
def test_all_ones_mask_equals_torch_batch_norm(training: bool) -> None:
    ours, theirs = TokenBatchNorm2d(Q), nn.BatchNorm2d(Q)
    filled_batch_norm(ours)
    theirs.load_state_dict(ours.state_dict())
    ours.train(training)
    theirs.train(training)
    for _ in range(3):
        x = torch.randn(B, Q, N, 1) * 2 + 1
        left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, expected = ours(left, torch.ones(B, N, dtype=torch.bool)), theirs(right)
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
        y.sin().sum().backward()
        expected.sin().sum().backward()
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-11, atol=1e-12)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    assert int(ours.num_batches_tracked) == (3 if training else 0)


def test_masked_batch_norm_equals_torch_on_the_valid_tokens() -> None:
    ours, theirs = TokenBatchNorm2d(Q), nn.BatchNorm2d(Q)
    filled_batch_norm(ours)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(B, Q, N, 1) + 3.0 * torch.arange(N).reshape(1, 1, N, 1)
    y = ours(x, MASK).squeeze(3).transpose(1, 2)[MASK]  # (7, q)
    packed = x.squeeze(3).transpose(1, 2)[MASK].T[None, :, :, None]  # (1, q, 7, 1)
    expected = theirs(packed)[0, :, :, 0].T
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)  # unbiased over 7 tokens


def test_masked_batch_norm_with_one_valid_token_stays_finite() -> None:
    layer = TokenBatchNorm2d(Q)
    mask = torch.zeros(B, N, dtype=torch.bool)
    mask[0, 0] = True
    y = layer(torch.randn(B, Q, N, 1), mask)
    assert torch.isfinite(y).all()
    torch.testing.assert_close(layer.running_var, 0.9 * torch.ones(Q))


def test_gap() -> None:
    x = torch.randn(B, N, C)
    vector, taps = GAP(C)(x, None)
    torch.testing.assert_close(vector, x.mean(dim=1))
    masked, _ = GAP(C)(x, MASK)
    torch.testing.assert_close(masked[0], x[0, :3].mean(dim=0))
    assert taps == {}
    assert GAP(C).output_dim == C


def test_mgcrp_head_by_head() -> None:
    pooling = MGCrP(C, num_heads=HEADS, wr_dim=WR, norm=SvPN(WR), bias=True)
    x = torch.randn(B, N, C) + torch.arange(C)
    vector, taps = pooling(x, None)
    assert pooling.output_dim == HEADS * WR**2
    assert vector.shape == (B, pooling.output_dim)
    assert list(taps) == ["projection", "covariance", "power_norm"]
    assert [tuple(tap.shape) for tap in taps.values()] == [
        (B, N, 2 * HEADS * WR),
        (B * HEADS, WR, WR),
        (B * HEADS, WR, WR),
    ]
    for b in range(B):
        for h in range(HEADS):
            rows = slice(h * WR, (h + 1) * WR)
            columns = slice(HEADS * WR + h * WR, HEADS * WR + (h + 1) * WR)
            w = x[b] @ pooling.wr.weight[rows].T + pooling.wr.bias[rows]
            r = x[b] @ pooling.wr.weight[columns].T + pooling.wr.bias[columns]
            covariance = (w - w.mean()).T @ (r - r.mean()) / N
            torch.testing.assert_close(taps["covariance"][b * HEADS + h], covariance)
            expected = functional.sv_power_norm(covariance[None], pooling.norm.weight)
            part = vector[b, h * WR**2 : (h + 1) * WR**2]
            torch.testing.assert_close(part, expected.flatten())


def test_mgcrp_centering_option() -> None:
    pooling = MGCrP(C, num_heads=1, wr_dim=WR, norm=nn.Identity(), centering="channel")
    x = torch.randn(B, N, C) + torch.arange(C)
    w, r = (x @ pooling.wr.weight.T).split(WR, dim=2)
    covariance = (w - w.mean(1, keepdim=True)).transpose(1, 2) @ (r - r.mean(1, keepdim=True)) / N
    torch.testing.assert_close(pooling(x, None)[0], covariance.flatten(1))


def test_gcp_by_formula() -> None:
    width = 9  # int(sqrt(2 * 3 * 4^2)) = int(9.797)
    assert reduced_dim(HEADS, WR) == width
    pooling = GCP(C, num_heads=HEADS, qkv_dim=WR, norm=MPN(3))
    x = torch.randn(B, N, C) + torch.arange(C)
    vector, taps = pooling(x, None)
    reduced = x @ pooling.dr.weight.T + pooling.dr.bias
    centred = reduced - reduced.mean(dim=(1, 2), keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / width
    root = functional.matrix_sqrt(covariance, 3)
    rows, columns = zip(*[(i, j) for i in range(width) for j in range(i, width)], strict=True)
    torch.testing.assert_close(vector, root[:, rows, columns])
    assert list(taps) == ["projection", "covariance", "power_norm"]
    assert vector.shape == (B, pooling.output_dim)
    assert pooling.output_dim == width * (width + 1) // 2


def test_gcp_options() -> None:
    options = {"centering": "channel", "scale": "tokens"}
    pooling = GCP(C, num_heads=HEADS, qkv_dim=WR, norm=nn.Identity(), **options)
    x = torch.randn(B, N, C)
    reduced = x @ pooling.dr.weight.T + pooling.dr.bias
    centred = reduced - reduced.mean(dim=1, keepdim=True)
    covariance = centred.transpose(1, 2) @ centred / N
    torch.testing.assert_close(pooling(x, None)[1]["covariance"], covariance)


def qk_by_formula(pooling: MGCrPQK, x: torch.Tensor, training: bool) -> torch.Tensor:
    """The text head with matrix products over (B N, C) instead of convolutions."""

    def branch(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> torch.Tensor:
        y = x.reshape(-1, C) @ conv.weight[:, :, 0, 0].T
        mean = y.mean(0) if training else norm.running_mean
        variance = y.var(0, unbiased=False) if training else norm.running_var
        y = (y - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias
        y = y.clamp(min=0).reshape(B, N, -1)
        return y - y.mean(dim=1, keepdim=True)

    a, b = branch(pooling.q_proj, pooling.q_norm), branch(pooling.k_proj, pooling.k_norm)
    cross = torch.einsum("bnq,bnk->bkq", a, b) / N
    rooted = functional.sv_power_norm(cross, pooling.norm.weight)
    return torch.stack([matrix.T.flatten() for matrix in rooted])


@pytest.mark.parametrize("training", [True, False])
def test_mgcrp_qk_by_formula(training: bool) -> None:
    pooling = MGCrPQK(C, q_dim=Q, k_dim=K, norm=SvPN(Q)).train(training)
    filled_batch_norm(pooling.q_norm)
    filled_batch_norm(pooling.k_norm)
    x = torch.randn(B, N, C) + torch.arange(C)
    expected = qk_by_formula(pooling, x, training)
    vector, taps = pooling(x, None)
    torch.testing.assert_close(vector, expected, rtol=1e-9, atol=1e-10)
    assert pooling.output_dim == Q * K
    assert {name: tuple(tap.shape) for name, tap in taps.items()} == {
        "q": (B, N, Q),
        "k": (B, N, K),
        "covariance": (B, Q, K),
        "power_norm": (B, Q, K),
    }
    assert (taps["q"] >= 0).all()
    assert torch.equal(taps["power_norm"].flatten(1), vector)


def test_mgcrp_qk_running_statistics_after_one_and_three_steps() -> None:
    pooling = MGCrPQK(C, q_dim=Q, k_dim=K, norm=SvPN(Q))
    mean, variance = torch.zeros(K), torch.ones(K)
    for _ in range(3):
        x = torch.randn(B, N, C)
        pooling(x, None)
        y = (x @ pooling.k_proj.weight[:, :, 0, 0].T).reshape(-1, K)
        mean, variance = 0.9 * mean + 0.1 * y.mean(0), 0.9 * variance + 0.1 * y.var(0)
        torch.testing.assert_close(pooling.k_norm.running_mean, mean)
        torch.testing.assert_close(pooling.k_norm.running_var, variance)


def make(name: str) -> nn.Module:
    return {
        "gap": lambda: GAP(C),
        "gcp": lambda: GCP(C, num_heads=HEADS, qkv_dim=WR, norm=MPN(3)),
        "mgcrp": lambda: MGCrP(C, num_heads=HEADS, wr_dim=WR, norm=SvPN(WR)),
        "mgcrp_qk": lambda: MGCrPQK(C, q_dim=Q, k_dim=K, norm=SvPN(Q)),
    }[name]()


@pytest.mark.parametrize("name", ["gap", "gcp", "mgcrp", "mgcrp_qk"])
@pytest.mark.parametrize("training", [True, False])
def test_masked_pooling_does_not_depend_on_padding(name: str, training: bool) -> None:
    pooling = make(name).train(training)
    x = torch.randn(B, N, C)
    longer = torch.cat([x, torch.randn(B, 3, C)], dim=1)
    longer[:, :N][~MASK] = 7.0
    mask = F.pad(MASK, (0, 3))
    short, _ = pooling(x, MASK)
    long, _ = pooling(longer, mask)
    torch.testing.assert_close(short, long, rtol=1e-11, atol=1e-12)
    unmasked, _ = pooling(longer, None)
    assert (unmasked - long).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["gap", "gcp", "mgcrp", "mgcrp_qk"])
def test_mask_of_ones_equals_no_mask(name: str) -> None:
    pooling = make(name)
    x = torch.randn(B, N, C)
    left, _ = pooling(x, None)
    right, _ = pooling(x, torch.ones(B, N, dtype=torch.bool))
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["gap", "mgcrp", "mgcrp_qk", "gcp"])
def test_gradient_by_finite_differences(name: str) -> None:
    pooling = make(name)
    x = torch.randn(B, N, C, requires_grad=True)
    assert torch.autograd.gradcheck(lambda tokens: pooling(tokens, MASK)[0], (x,))


def test_single_word_token() -> None:
    x = torch.randn(B, 1, C)
    assert make("mgcrp")(x, None)[0].isfinite().all()
    vector, _ = make("mgcrp_qk")(x, None)  # one centred token: the zero matrix
    assert torch.equal(vector, torch.zeros(B, Q * K))
