"""What of a matrix counts: ``vec="triu"``, the text covariance with MPN, the two helpers.

Dims, all different: B 2, N 5, C 12, H 3, w 4, d 7.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import functional as F
from sot_paddle.config import HeadConfig
from sot_paddle.features import Features
from sot_paddle.heads import build_head

B, N, C, H, W, D, K = 2, 5, 12, 3, 4, 7, 2
MASK = np.array([[True, True, False, True, False], [True, True, True, True, False]])
SIZES = {"q_dim": D, "head_num_heads": H, "wr_dim": W, "head_dropout": 0.0}


@pytest.fixture(autouse=True)
def _double(float64) -> None:
    """Everything here is built in float64."""


def head(**options):
    return build_head(HeadConfig(**{**SIZES, **options}), dim=C, num_classes=K)


def words(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, N, C)) + 0.3 * np.arange(C)


def taps_of(built, mask: np.ndarray | None = None) -> dict[str, np.ndarray]:
    taps: dict[str, paddle.Tensor] = {}
    x = paddle.to_tensor(words())
    valid = None if mask is None else paddle.to_tensor(mask)
    built(Features(x[:, 0], x, valid), taps)
    return {name: tap.numpy() for name, tap in taps.items()}


def test_the_triangles_of_the_heads_one_after_the_other() -> None:
    built = head(pooling="mgcrp", vec="triu")
    taps = taps_of(built)
    rows, columns = np.triu_indices(W)
    matrices = taps["head.power_norm"].reshape(B, H, W, W)
    expected = matrices[:, :, rows, columns].reshape(B, -1)
    np.testing.assert_array_equal(taps["head.representation"], expected)
    assert built.pooling.output_dim == H * W * (W + 1) // 2 == built.word_fc.weight.shape[0]
    full = taps_of(head(pooling="mgcrp"))["head.representation"]
    assert full.shape == (B, H * W * W)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, {"normalization": "svpn"}, {"vec": "triu"}])
def test_text_covariance(options: dict, masked: bool) -> None:
    built = head(pooling="gcp_text", mask_padding=masked, **options)
    pooling = built.pooling
    taps = taps_of(built, MASK)
    valid = MASK if masked else np.ones((B, N), bool)
    linear = words() @ pooling.proj.weight.numpy()  # (B, N, d)
    mean, var = linear[valid].mean(axis=0), linear[valid].var(axis=0)
    branch = np.maximum((linear - mean) / np.sqrt(var + 1e-5), 0.0)
    for b in range(B):
        rows = branch[b][valid[b]]
        rows = rows - rows.mean(axis=0)
        np.testing.assert_allclose(
            taps["head.covariance"][b], rows.T @ rows / len(rows), rtol=0, atol=1e-12
        )
    cov = paddle.to_tensor(taps["head.covariance"])
    root = options.get("normalization") != "svpn"
    normed = F.matrix_sqrt(cov, num_iter=3, on_zero="zero") if root else pooling.norm(cov)
    np.testing.assert_allclose(taps["head.power_norm"], normed.numpy(), rtol=0, atol=1e-12)
    upper = np.triu_indices(D)
    expected = normed.numpy()[:, upper[0], upper[1]] if root else normed.numpy().reshape(B, -1)
    np.testing.assert_allclose(taps["head.representation"], expected, rtol=0, atol=1e-12)
    assert pooling.output_dim == (D * (D + 1) // 2 if root else D * D)


def test_one_word_and_no_valid_word_are_finite_where_zero_is_asked_for() -> None:
    for pooling in ("gcp_text", "mgcrp"):
        vec = "triu" if pooling == "mgcrp" else "full"
        built = head(pooling=pooling, vec=vec, on_zero="zero", mask_padding=True)
        for valid in (1, 0):
            mask = np.zeros((B, N), bool)
            mask[:, :valid] = True
            x = paddle.to_tensor(words(), stop_gradient=False)
            built(Features(x[:, 0], x, paddle.to_tensor(mask))).sum().backward()
            assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "mgcrp", "vec": "upper"}, "vec must be one of full, triu, got 'upper'"),
        ({"pooling": "mgcrp_qk", "vec": "triu"}, "an option of pooling mgcrp and gcp_text, got .*"),
        ({"pooling": "gcp", "vec": "triu"}, "vec 'triu' is an option of .*leave it at 'full'"),
        ({"pooling": "mgcrp_qk", "normalization": "mpn"}, "normalization of pooling 'mgcrp_qk'"),
        ({"pooling": "gcp_text", "normalization": "epn"}, "normalization of pooling 'gcp_text'"),
    ],
)
def test_refusals(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadConfig(**options)


def test_cov_forward_as_published_and_as_a_covariance(check_gradient) -> None:
    x = np.random.default_rng(3).normal(size=(B, 3, 4, 2)) + np.arange(3)[:, None, None]
    pixels = x.reshape(B, 3, 8)
    for b in range(B):
        total = pixels[b].mean(axis=1)
        published = pixels[b] @ pixels[b].T / 64 - np.outer(total, total)
        found = F.cov_forward(paddle.to_tensor(x)).numpy()[b]
        np.testing.assert_allclose(found, published, rtol=0, atol=1e-12)
        true = F.cov_forward(paddle.to_tensor(x), scale="tokens").numpy()[b]
        np.testing.assert_allclose(true, np.cov(pixels[b], bias=True), rtol=0, atol=1e-12)
    check_gradient(F.cov_forward, x)


def test_triu_forward_takes_the_lower_triangle() -> None:
    x = paddle.arange(18, dtype="float64").reshape([2, 3, 3])
    x.stop_gradient = False
    result = F.triu_forward(x)
    assert result.tolist() == [[0, 3, 4, 6, 7, 8], [9, 12, 13, 15, 16, 17]]
    result.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy()[0], np.tril(np.ones((3, 3))))


def test_refusals_of_the_helpers() -> None:
    with pytest.raises(ValueError, match=r"cov_forward expects images \(B, d, H, W\)"):
        F.cov_forward(paddle.ones([B, N, C]))
    with pytest.raises(ValueError, match="scale must be one of published, tokens, got 'true'"):
        F.cov_forward(paddle.ones([1, 2, 3, 4]), scale="true")
    with pytest.raises(ValueError, match="triu_forward expects matrices"):
        F.triu_forward(paddle.ones([3, 3]))
