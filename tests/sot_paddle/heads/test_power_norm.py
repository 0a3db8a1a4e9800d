"""Power norm layers: the warning, a refusal, the exact epsilon of the row layer norm."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.heads import power_norm

B, ROWS, COLUMNS = 2, 4, 3


def matrices(dtype: str = "float64") -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(0).normal(size=(B, ROWS, COLUMNS))).astype(dtype)


def parameters(layer: paddle.nn.Layer) -> dict[str, list[int]]:
    return {name: list(p.shape) for name, p in layer.named_parameters()}


@pytest.mark.parametrize("num_sv", [2, None])
def test_svpn_warns_where_it_is_ill_posed(num_sv: int | None) -> None:
    with pytest.warns(UserWarning, match=f"num_iter=1 and num_sv={num_sv} is ill-posed"):
        power_norm.SvPN(COLUMNS, num_iter=1, num_sv=num_sv)
    power_norm.SvPN(COLUMNS, num_iter=2, num_sv=num_sv)  # a warning would be an error here


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-8])
def test_row_layer_norm_has_an_exact_epsilon(float64, scale: float) -> None:
    """Rows of tiny variance show an epsilon that was rounded to float32, or another one."""
    x = matrices() * scale
    layer = power_norm.RowLayerNorm(COLUMNS)
    assert parameters(layer) == {"weight": [COLUMNS], "bias": [COLUMNS]}
    paddle.assign(paddle.to_tensor([0.5, 1.0, 2.0]), output=layer.weight)
    paddle.assign(paddle.to_tensor([3.0, 4.0, 5.0]), output=layer.bias)
    a = x.numpy()
    normed = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
    result = (layer(x) - layer.bias).numpy()
    expected = normed * [0.5, 1.0, 2.0]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-11 * min(1.0, scale * 300) + 2e-15)
