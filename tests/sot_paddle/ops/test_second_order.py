"""The native second-order head is the plain form, to rounding, in value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest

from sot_paddle import functional as F
from sot_paddle.heads.pooling import MultiHeadCrossCovariance, QKCrossCovariance, TokenBatchNorm
from sot_paddle.heads.power_norm import SvPN
from sot_paddle.ops import build, second_order
from tests.sot_paddle.ops.properties import (
    assert_one_derivative,
    assert_same_in_threads,
    walked_twice,
)

native = pytest.mark.native
SVPN = {"alpha": 0.5, "num_iter": 1, "num_sv": 1, "on_zero": "nan"}
Arrays = list[np.ndarray]


@pytest.fixture
def plain(monkeypatch) -> Callable[[], None]:
    """Leaves the native operators out from the call on."""
    return lambda: monkeypatch.setattr(build, "why_not", lambda: "left out")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def run(function: Callable, inputs: Arrays, dtype: str = "float32") -> Arrays:
    """The output and the gradients of all inputs."""
    tensors = [paddle.to_tensor(x.astype(dtype), stop_gradient=False) for x in inputs]
    y = function(*tensors)
    y.backward(paddle.to_tensor(random(*y.shape, seed=9).astype(dtype)))
    return [y.numpy(), *(tensor.grad.numpy() for tensor in tensors)]


def assert_near(found: Arrays, exact: Arrays, tolerance: float = 3e-6) -> None:
    for ours, want in zip(found, exact, strict=True):
        assert ours.shape == want.shape
        largest = np.abs(want).max() if want.size else 1.0
        np.testing.assert_allclose(ours, want, rtol=0, atol=tolerance * max(largest, 1e-30))


def mask_of(kind: str, batch: int, count: int) -> paddle.Tensor | None:
    if kind == "none":
        return None
    mask = np.arange(count)[None] < np.array([count, 1, 0])[:batch, None]
    return paddle.to_tensor(mask if kind == "bool" else mask.astype("int64"))


@native
@pytest.mark.parametrize("kind", ["none", "bool", "integer"])
@pytest.mark.parametrize("centering", F.CENTERINGS)
def test_covariance_of_a_pair(called, kind, centering) -> None:
    mask = mask_of(kind, 3, 21)
    inputs = [random(3, 21, 5) + 3.0, random(3, 21, 37, seed=1)]

    def ours(x, y):
        return second_order.cross_covariance(x, y, centering=centering, mask=mask)

    def theirs(x, y):
        return F.cross_covariance(x, y, centering=centering, mask=mask)

    found = run(ours, inputs)
    assert called == ["sot_pair_covariance"]
    assert_near(found, run(theirs, inputs, "float64"))


@native
@pytest.mark.parametrize(("heads", "width", "count"), [(3, 5, 19), (2, 24, 197), (1, 17, 1)])
@pytest.mark.parametrize("kind", ["none", "bool"])
@pytest.mark.parametrize("centering", F.CENTERINGS)
def test_covariance_of_heads(heads, width, count, kind, centering) -> None:
    mask = mask_of(kind, 3, count)
    layer = MultiHeadCrossCovariance(
        7, num_heads=heads, wr_dim=width, norm=paddle.nn.Identity(), centering=centering
    )
    inputs = [random(3, count, 2 * heads * width) + 0.5]

    def ours(x):
        assert second_order.takes_heads(x, heads, centering, mask)
        return second_order.head_covariance(x, heads, centering=centering, mask=mask)

    assert_near(run(ours, inputs), run(lambda x: layer._covariance(x, mask), inputs, "float64"))


@native
@pytest.mark.parametrize("shape", [(6, 5, 7), (2, 24, 24), (3, 48, 112), (2, 1, 9), (0, 4, 3)])
@pytest.mark.parametrize("num_iter", [1, 3])
@pytest.mark.parametrize("alpha", [0.5, 0.3])
def test_svpn(called, shape, num_iter, alpha) -> None:
    options = {**SVPN, "num_iter": num_iter, "alpha": alpha}
    inputs = [0.1 * random(*shape), random(shape[2], seed=1)]
    found = run(lambda x, v: second_order.sv_power_norm(x, v, **options), inputs)
    assert called == ["sot_sv_power_norm"]
    exact = run(lambda x, v: F.sv_power_norm(x, v, **options), inputs, "float64")
    if min(shape) == 1:  # the singular vectors do not depend on the start: rounding is left of it
        found, exact = found[:2], exact[:2]
    assert_near(found, exact, 5e-6)


@native
def test_svpn_of_equal_singular_values_rank_one_and_padding() -> None:
    rank_one = random(6, 1) @ random(1, 6, seed=1)
    padding = random(6, 6, seed=2) * np.array([1, 1, 1, 0, 0, 0])
    inputs = [np.stack([2.0 * np.eye(6), rank_one, padding]).astype("float32"), random(6, seed=3)]
    for options in (SVPN, {**SVPN, "num_iter": 2, "on_zero": "zero"}):
        found = run(lambda x, v, o=options: second_order.sv_power_norm(x, v, **o), inputs)
        plain = run(lambda x, v, o=options: F.sv_power_norm(x, v, **o), inputs, "float64")
        assert_near(found, plain, 1e-5)


@native
@pytest.mark.parametrize("on_zero", F.ON_ZERO)
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_svpn_of_a_zero_matrix_is_the_plain_one(on_zero, alpha) -> None:
    options = {**SVPN, "on_zero": on_zero, "alpha": alpha}
    x = np.stack([np.zeros((4, 5)), random(4, 5), np.full((4, 5), 1e-14)]).astype("float32")
    inputs = [x, random(5, seed=1)]
    found = run(lambda x, v: second_order.sv_power_norm(x, v, **options), inputs)
    want = run(lambda x, v: F.sv_power_norm(x, v, **options), inputs)
    for ours, theirs in zip(found, want, strict=True):
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    for ours, theirs in zip(found[:2], want[:2], strict=True):
        for at, expected in zip(ours, theirs, strict=True):
            largest = np.nanmax(np.abs(np.append(expected, 1e-30)))
            np.testing.assert_allclose(at, expected, rtol=0, atol=1e-5 * largest)


def multi_head(mask: paddle.Tensor | None = None) -> tuple[paddle.nn.Layer, Callable]:
    layer = MultiHeadCrossCovariance(7, num_heads=3, wr_dim=5, norm=SvPN(5))
    return layer, lambda tokens: layer(tokens, mask)


@native
@pytest.mark.parametrize("kind", ["none", "bool"])
@pytest.mark.parametrize("training", [True, False])
def test_the_text_head_and_its_running_statistics(called, plain, kind, training) -> None:
    layer = QKCrossCovariance(7, q_dim=5, k_dim=3, norm=SvPN(5))
    layer.train() if training else layer.eval()
    layer.q_norm.weight.set_value(random(5, seed=4))
    state = {name: value.numpy().copy() for name, value in layer.state_dict().items()}
    mask = None if kind == "none" else paddle.to_tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype="bool")
    results = []
    for _ in range(2):
        layer.set_state_dict({name: paddle.to_tensor(value) for name, value in state.items()})
        layer.clear_gradients()
        found = run(lambda tokens: layer(tokens, mask), [random(2, 4, 7) + 1.0])
        found += [p.grad.numpy() for p in layer.parameters()]
        results.append([*found, *(buffer.numpy() for buffer in layer.buffers())])
        plain()
    norm = "sot_token_norm" if training else "sot_token_shift"
    assert called == [norm, norm, "sot_pair_covariance", "sot_sv_power_norm"]
    assert_near(results[0], results[1], 2e-5)


@native
@pytest.mark.parametrize("training", [True, False])
def test_batch_normalisation_of_many_tokens(training) -> None:
    layer = TokenBatchNorm(19)
    layer.train() if training else layer.eval()
    layer.running_var.set_value(np.square(random(19, seed=5)) + 0.1)
    masks = [None, paddle.to_tensor(random(7, 31, seed=6) > 0)]
    for mask in masks:
        inputs = [random(7, 31, 19) + 2.0]
        ours = run(lambda x, m=mask: layer(x, m), inputs)
        layer.sum_across_processes = lambda total: total  # of several processes: the plain form
        exact = run(lambda x, m=mask: layer(x, m), inputs, "float64")
        layer.sum_across_processes = layer._this_process_only
        assert_near(ours, exact)


def test_statistics_of_several_processes_are_summed_by_the_plain_form(called) -> None:
    layer = TokenBatchNorm(4)
    layer.sum_across_processes = lambda total: 2.0 * total
    layer(paddle.to_tensor(random(2, 3, 4)))
    assert called == []


@native
def test_strided_views_repeated_backward_and_double_use(plain) -> None:
    layer, pool = multi_head()
    x = paddle.to_tensor(random(7, 6, 4), stop_gradient=False)
    results = []
    for _ in range(2):
        view = x.transpose([2, 1, 0])[1:]  # (3, 6, 7)
        (once,) = walked_twice((pool(view) * pool(view.flip(1) * 2.0).flip(0)).sum(), [x])
        results.append([once, layer.wr.weight.grad.numpy()])
        x.clear_gradient()
        layer.clear_gradients()
        plain()
    assert_near(results[0], results[1], 2e-5)


@native
def test_the_number_of_threads_changes_nothing(threads) -> None:
    layer, pool = multi_head()
    text = QKCrossCovariance(7, q_dim=5, k_dim=3, norm=SvPN(5))

    def both() -> Arrays:
        layer.clear_gradients()
        found = [*run(pool, [random(5, 6, 7)]), layer.norm.weight.grad.numpy().copy()]
        return found + run(text, [random(5, 6, 7)])

    assert_same_in_threads(threads, both)


@native
@pytest.mark.parametrize("function", ["pair", "heads", "svpn", "norm", "shift"])
def test_a_second_derivative_is_refused(function) -> None:
    x = paddle.to_tensor(random(2, 5, 6), stop_gradient=False)
    layer = TokenBatchNorm(6)
    options = {"centering": "channel", "mask": None}
    if function == "shift":
        layer.eval()
    y = {
        "pair": lambda: second_order.cross_covariance(x, x, **options),
        "heads": lambda: second_order.head_covariance(x, 3, **options),
        "svpn": lambda: second_order.sv_power_norm(x, layer.weight, **SVPN),
        "norm": lambda: layer(x),
        "shift": lambda: layer(x),
    }[function]()
    assert_one_derivative(y, x)


def test_the_plain_form_computes_and_refuses_what_the_operators_do_not_take(called) -> None:
    x, start = paddle.to_tensor(random(2, 5, 6)), paddle.ones([6])
    several = {**SVPN, "num_sv": 2, "num_iter": 2}
    second_order.sv_power_norm(x, start, **several)
    second_order.sv_power_norm(x.astype("float64"), start, **SVPN)
    second_order.cross_covariance(x.astype("float16"), x, centering="channel", mask=None)
    for wrong in ({**SVPN, "num_iter": 0}, {**SVPN, "on_zero": "maybe"}):
        with pytest.raises(ValueError, match=r"must be (at least 1|one of)"):
            second_order.sv_power_norm(x, start, **wrong)
    with pytest.raises(ValueError, match="start vector of shape"):
        second_order.sv_power_norm(x, paddle.ones([5]), **SVPN)
    with pytest.raises(ValueError, match="centering must be one of"):
        second_order.cross_covariance(x, x, centering="row", mask=None)
    with pytest.raises(ValueError, match="equal B and N"):
        second_order.cross_covariance(x, x[:1], centering="channel", mask=None)
    assert called == []
