"""Token batch norm against torch's own, masked and not. Dims: B 2, N 5, q 7."""

import pytest
import torch
from torch import nn

from sot_torch_ref.heads.pooling import TokenBatchNorm2d

B, N, Q = 2, 5, 7
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
