"""What of a matrix counts: vec="triu", the text covariance with MPN, the two helpers.

Dims: B 2, N 5, C 12, H 3, wr 4, d 7.
"""

import numpy as np
import pytest
import torch

from sot_torch_ref import functional
from sot_torch_ref.heads import HeadConfig, build_head

B, N, C, HEADS, WR, D, K = 2, 5, 12, 3, 4, 7, 2
SIZES = {"q_dim": D, "head_num_heads": HEADS, "wr_dim": WR, "head_dropout": 0.0}
MASK = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])

pytestmark = pytest.mark.usefixtures("float64")


def pooling_of(**keys: object):
    return build_head(HeadConfig(**{**SIZES, **keys}), hidden_size=C, num_classes=K).pooling


def test_mgcrp_keeps_the_upper_triangle_of_every_head() -> None:
    torch.manual_seed(0)
    pooling = pooling_of(pooling="mgcrp", vec="triu")
    vector, taps = pooling(torch.randn(B, N, C), None)
    matrices = taps["power_norm"].reshape(B, HEADS, WR, WR)
    rows = [
        torch.cat([matrices[b, h, r, r:] for h in range(HEADS) for r in range(WR)])
        for b in range(B)
    ]
    assert torch.equal(vector, torch.stack(rows))
    assert pooling.output_dim == vector.shape[1] == HEADS * WR * (WR + 1) // 2


@pytest.mark.parametrize("norm", ["mpn", "svpn"])
def test_text_gcp_by_formula(norm: str) -> None:
    torch.manual_seed(1)
    pooling = pooling_of(pooling="gcp_text", normalization=norm).eval()
    tokens = torch.randn(B, N, C) + torch.arange(float(C))
    vector, taps = pooling(tokens, MASK)
    linear = tokens @ pooling.proj.weight[:, :, 0, 0].T
    branch = (linear / (1 + 1e-5) ** 0.5).clamp(min=0)  # running statistics 0 and 1
    for b in range(B):
        x = branch[b][MASK[b]]
        x = x - x.mean(dim=0)
        torch.testing.assert_close(taps["covariance"][b], x.T @ x / len(x))
    normed = pooling.norm(taps["covariance"])
    expected = functional.triu_vectorize(normed) if norm == "mpn" else normed.flatten(1)
    torch.testing.assert_close(vector, expected)
    assert pooling.output_dim == (D * (D + 1) // 2 if norm == "mpn" else D * D)


def test_triu_with_svpn_on_the_text_covariance() -> None:
    pooling = pooling_of(pooling="gcp_text", normalization="svpn", vec="triu")
    assert pooling.output_dim == D * (D + 1) // 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pooling": "mgcrp", "vec": "upper"}, "vec must be one of"),
        ({"pooling": "mgcrp_qk", "vec": "triu"}, "vec of pooling 'mgcrp_qk' must be 'full'"),
        ({"pooling": "gcp_text", "normalization": "epn"}, "normalization of pooling 'gcp_text'"),
    ],
)
def test_refusals(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadConfig(**keys)


def test_cov_forward() -> None:
    x = torch.randn(B, 3, 4, 2) + torch.arange(3.0)[:, None, None]
    flat = x.reshape(B, 3, 8)
    for b in range(B):
        true = torch.from_numpy(np.cov(flat[b].numpy(), bias=True))
        torch.testing.assert_close(functional.cov_forward(x, scale="tokens")[b], true)
        mean = flat[b].mean(dim=1)
        published = flat[b] @ flat[b].T / 64 - torch.outer(mean, mean)
        torch.testing.assert_close(functional.cov_forward(x)[b], published)
    with pytest.raises(ValueError, match="images must have shape"):
        functional.cov_forward(flat)


def test_triu_forward_takes_the_lower_triangle() -> None:
    x = torch.arange(18.0).reshape(2, 3, 3).requires_grad_()
    result = functional.triu_forward(x)
    assert result[0].tolist() == [0, 3, 4, 6, 7, 8]
    result.sum().backward()
    assert torch.equal(x.grad[0], torch.ones(3, 3).tril())
