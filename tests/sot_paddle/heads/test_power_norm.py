"""Power norm layers: parameters, constants and warnings; their mathematics is in functional."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle import functional as F
from sot_paddle.heads import power_norm

B, ROWS, COLUMNS = 2, 4, 3


def matrices(dtype: str = "float64") -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(0).normal(size=(B, ROWS, COLUMNS))).astype(dtype)


def parameters(layer: paddle.nn.Layer) -> dict[str, list[int]]:
    return {name: list(p.shape) for name, p in layer.named_parameters()}


def test_svpn_start_vector_is_learnt_or_fixed(float64) -> None:
    x = matrices()
    learnt = power_norm.SvPN(COLUMNS)
    assert parameters(learnt) == {"weight": [COLUMNS]}
    np.testing.assert_array_equal(
        learnt(x).numpy(), F.sv_power_norm(x, learnt.weight, alpha=0.5).numpy()
    )
    fixed = power_norm.SvPN(COLUMNS, start="one")
    assert parameters(fixed) == {}
    expected = F.sv_power_norm(x, paddle.ones([COLUMNS]))
    np.testing.assert_array_equal(fixed(x).numpy(), expected.numpy())


def test_svpn_start_vector_is_standard_normal() -> None:
    values = power_norm.SvPN(4000).weight.numpy()
    assert abs(values.mean()) < 0.06
    assert abs(values.std() - 1.0) < 0.05


def test_svpn_hands_on_every_option() -> None:
    x = matrices("float32")
    x[0] = 0.0
    options = {"alpha": 0.3, "num_iter": 2, "num_sv": 2, "on_zero": "zero"}
    layer = power_norm.SvPN(COLUMNS, **options)
    np.testing.assert_array_equal(
        layer(x).numpy(), F.sv_power_norm(x, layer.weight, **options).numpy()
    )
    x.stop_gradient = False
    layer(x).sum().backward()
    assert not x.grad[0].numpy().any()


@pytest.mark.parametrize("num_sv", [2, None])
def test_svpn_warns_where_it_is_ill_posed(num_sv: int | None) -> None:
    with pytest.warns(UserWarning, match=f"num_iter=1 and num_sv={num_sv} is ill-posed"):
        power_norm.SvPN(COLUMNS, num_iter=1, num_sv=num_sv)
    power_norm.SvPN(COLUMNS, num_iter=2, num_sv=num_sv)  # a warning would be an error here


def test_svpn_refuses_another_start() -> None:
    with pytest.raises(ValueError, match="start must be 'learn' or 'one', got 'ones'"):
        power_norm.SvPN(COLUMNS, start="ones")


def test_scale_norm_is_constant_or_a_parameter_without_axis(float64) -> None:
    x = matrices()
    constant, learnt = (power_norm.ScaleNorm(9, learnable=flag) for flag in (False, True))
    assert parameters(constant) == {}
    assert parameters(learnt) == {"factor": []}
    for layer in (constant, learnt):
        np.testing.assert_allclose(layer(x).numpy(), x.numpy() / 3.0, rtol=1e-15)
    learnt(x).sum().backward()
    np.testing.assert_allclose(learnt.factor.grad.numpy(), x.numpy().sum(), rtol=1e-12)


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


def test_row_layer_norm_gradient(float64, check_gradient) -> None:
    check_gradient(power_norm.RowLayerNorm(COLUMNS), matrices().numpy())


def test_entrywise_power_norm_and_matrix_sqrt_layers(float64) -> None:
    x = matrices()
    np.testing.assert_array_equal(
        power_norm.EntrywisePowerNorm()(x).numpy(), F.entrywise_power_norm(x).numpy()
    )
    square = paddle.matmul(x, x, transpose_x=True)
    square[0] = 0.0
    for num_iter in (2, 3):
        layer = power_norm.MatrixSqrt(num_iter=num_iter, on_zero="zero")
        np.testing.assert_array_equal(
            layer(square).numpy(),
            F.matrix_sqrt(square, num_iter=num_iter, on_zero="zero").numpy(),
        )
    assert np.isnan(power_norm.MatrixSqrt()(square)[0].numpy()).all()
