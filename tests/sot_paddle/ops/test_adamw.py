"""A native step of AdamW is that of Paddle's kernel, to rounding, in each published form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest

from sot_paddle.ops import adamw
from sot_paddle.train.optimizer import (
    AdamW,
    BertAdam,
    ClipGradByGlobalNorm,
    ClipGradByTensorNorm,
    HFAdamW,
)
from tests.sot_paddle.ops.properties import assert_same_in_threads

native = pytest.mark.native
SHAPES = ((3, 5), (16385,), (), (2, 16400))  # also more than one block, odd sizes
FORMS: dict[str, Callable] = {
    "adamw": AdamW,
    "hf_adamw": HFAdamW,
    "without bias correction": lambda *args, **named: HFAdamW(*args, correct_bias=False, **named),
    "bert_adam": lambda rate, **named: BertAdam(learning_rate=rate, **named),
}


def made(dtype: str = "float32") -> list[paddle.Tensor]:
    rng = np.random.default_rng(1)
    parameters = [paddle.create_parameter(list(shape), dtype) for shape in SHAPES]
    for parameter in parameters:
        parameter.set_value(rng.normal(size=parameter.shape).astype(dtype))
    return parameters


def trained(
    form: str, dtype: str = "float32", clip: object = None, steps: int = 4, **named: object
) -> list[np.ndarray]:
    """Weights after some steps, and the state of the optimizer."""
    parameters, rng = made(dtype), np.random.default_rng(2)
    decayed = {parameter.name for parameter in parameters[::2]}
    rate = paddle.optimizer.lr.LambdaDecay(0.01, lambda step: 0.9**step)
    optimizer = FORMS[form](
        rate,
        epsilon=1e-3,  # large: where it stands shows
        parameters=parameters,
        weight_decay=0.25,
        apply_decay_param_fun=decayed.__contains__,
        grad_clip=clip,
        **named,
    )
    for _ in range(steps):
        gradients = [rng.normal(size=p.shape).astype(dtype) for p in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.clear_gradient(False)
            (parameter * paddle.to_tensor(gradient)).sum().backward()
        optimizer.step()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            np.testing.assert_array_equal(parameter.grad.numpy(), gradient)  # clipped or not
        rate.step()
    state = optimizer.state_dict()
    arrays = [state[key] for key in state if isinstance(state[key], paddle.Tensor)]
    return [one.numpy() for one in (*parameters, *arrays)]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray], rtol: float) -> None:
    assert len(found) == len(expected) == 5 * len(SHAPES)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol, atol=3e-6)


@native
@pytest.mark.parametrize(
    "clip", [None, ClipGradByGlobalNorm(2.0), ClipGradByTensorNorm(3.0)], ids=["", "all", "each"]
)
@pytest.mark.parametrize("form", FORMS)
def test_steps_are_those_of_paddle_s_kernel_and_of_float64(plainly, called, form, clip) -> None:
    found = trained(form, clip=clip)
    assert called.count("sot_adamw") == 4 * len(SHAPES)
    assert called.count("sot_sum_of_squares") == (4 * len(SHAPES) if clip else 0)
    count = len(called)
    assert_close(found, plainly(trained)(form, "float32", clip), rtol=1e-5)
    assert_close(found, trained(form, "float64", clip), rtol=1e-5)
    assert len(called) == count


@native
def test_powers_are_paddle_s_bit_for_bit(plainly) -> None:
    """What reads a step off them finds the same one."""
    native_state, plain_state = trained("hf_adamw"), plainly(trained)("hf_adamw")
    powers = [array.shape == (1,) for array in native_state]
    assert sum(powers) == 2 * len(SHAPES)
    for one, other, is_power in zip(native_state, plain_state, powers, strict=True):
        if is_power:
            np.testing.assert_array_equal(one, other)


@native
def test_options_that_only_paddle_s_kernel_has_are_left_to_it(called) -> None:
    trained("adamw", amsgrad=True)
    with pytest.raises(NotImplementedError, match="lr_ratio"):
        trained("adamw", lr_ratio=lambda parameter: 0.5)
    assert called == []


@native
def test_groups_are_clipped_each_by_its_own_norm(called) -> None:
    first, second = made()[:2]
    groups = [{"params": [first], "learning_rate": 0.5}, {"params": [second]}]
    before = first.numpy().copy(), second.numpy().copy()
    clip = ClipGradByGlobalNorm(1.0)
    optimizer = AdamW(0.1, epsilon=1.0, parameters=groups, weight_decay=0.0, grad_clip=clip)
    (first.sum() + second.sum()).backward()
    optimizer.step()
    assert called.count("sot_adamw") == 2
    for rate, weight, old in zip((0.05, 0.1), (first, second), before, strict=True):
        slope = weight.size**-0.5  # of norm 1; epsilon is large, so that its length shows
        np.testing.assert_allclose(old - weight.numpy(), rate * slope / (slope + 1.0), atol=2e-6)


@native
def test_a_graph_of_the_old_weights_says_that_they_are_gone() -> None:
    weight = made()[0]
    optimizer = AdamW(0.1, parameters=[weight])
    loss = (weight * weight).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@native
def test_what_a_pass_over_memory_cannot_take_is_left_to_paddle() -> None:
    table = paddle.nn.Embedding(7, 3, sparse=True)
    table(paddle.to_tensor([2, 2, 5])).sum().backward()
    weight, moments = table.weight, [paddle.zeros([7, 3])] * 2
    powers = [paddle.ones([1])] * 2
    assert adamw.updates_natively([weight, weight.detach(), *moments, *powers])
    assert not adamw.updates_natively([weight, weight.grad, *moments, *powers])
    half = [one.astype("float64") for one in moments]
    assert not adamw.updates_natively([weight, weight.detach(), *half, *powers])


@native
def test_the_number_of_threads_changes_nothing(threads) -> None:
    assert_same_in_threads(
        threads, lambda: trained("hf_adamw", clip=ClipGradByGlobalNorm(0.5), steps=2)
    )


@native
@pytest.mark.parametrize("size", [0, 1, 15, 16, 33, 16384, 50001])
def test_a_sum_of_squares_is_that_of_float64(size) -> None:
    values = np.random.default_rng(size).normal(size=size).astype("float32")
    found = adamw.sum_of_squares(paddle.to_tensor(values))
    assert found.shape == [1]
    np.testing.assert_allclose(found.item(), (values.astype("float64") ** 2).sum(), rtol=1e-7)


@native
def test_numbers_that_are_not_finite_reach_the_weights() -> None:
    for clip in (None, ClipGradByGlobalNorm(1.0)):
        weight = paddle.create_parameter([3], "float32")
        optimizer = AdamW(0.1, parameters=[weight], grad_clip=clip)
        (weight * paddle.to_tensor([1.0, np.nan, 1.0])).sum().backward()
        optimizer.step()
        finite = [False] * 3 if clip else [True, False, True]
        assert np.isfinite(weight.numpy()).tolist() == finite
