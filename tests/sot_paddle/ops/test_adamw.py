"""A native step of AdamW is that of Paddle's kernel, to rounding, in each published form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest

from sot_paddle import ops
from sot_paddle.ops import adamw
from sot_paddle.train.optimizer import (
    AdamW,
    BertAdam,
    ClipGradByGlobalNorm,
    ClipGradByTensorNorm,
    HFAdamW,
)

SHAPES = ((3, 5), (16385,), (), (2, 16400))  # also more than one block, odd sizes
FORMS: dict[str, Callable] = {
    "adamw": AdamW,
    "hf_adamw": HFAdamW,
    "without bias correction": lambda *args, **named: HFAdamW(*args, correct_bias=False, **named),
    "bert_adam": lambda rate, **named: BertAdam(learning_rate=rate, **named),
}

pytestmark = pytest.mark.native


def trained(
    form: str, dtype: str = "float32", clip: object = None, **named: object
) -> list[np.ndarray]:
    """Weights after some steps, and the state of the optimizer."""
    rng = np.random.default_rng(1)
    parameters = [paddle.create_parameter(list(shape), dtype) for shape in SHAPES]
    for parameter in parameters:
        parameter.set_value(rng.normal(size=parameter.shape).astype(dtype))
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
    for _ in range(4):
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
    return [array.numpy() for array in (*parameters, *arrays)]


@pytest.mark.parametrize(
    "clip", [None, ClipGradByGlobalNorm(2.0), ClipGradByTensorNorm(3.0)], ids=["", "all", "each"]
)
@pytest.mark.parametrize("form", FORMS)
def test_steps_are_those_of_paddle_s_kernel_and_of_float64(called, form, clip) -> None:
    found = trained(form, clip=clip)
    count = 4 * len(SHAPES)
    assert called.count("sot_adamw") == count
    assert called.count("sot_sum_of_squares") == (count if clip else 0)
    called.clear()
    with ops.native(False):
        plain = trained(form, "float32", clip)
    exact = trained(form, "float64", clip)
    assert called == []
    assert len(found) == 5 * len(SHAPES)
    for ours, theirs, wide in zip(found, plain, exact, strict=True):
        if ours.shape == (1,):  # a power: what reads a step off it finds the same one
            np.testing.assert_array_equal(ours, theirs)
        for other in (theirs, wide):
            np.testing.assert_allclose(ours, other, rtol=1e-5, atol=3e-6)


def test_the_number_of_threads_changes_nothing(threads) -> None:
    found = []
    for count in (1, 3):
        threads(count)
        found.append(trained("hf_adamw", clip=ClipGradByGlobalNorm(0.5)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_pass_over_memory_cannot_take_is_left_to_paddle(called) -> None:
    trained("adamw", amsgrad=True)
    with pytest.raises(NotImplementedError, match="lr_ratio"):
        trained("adamw", lr_ratio=lambda parameter: 0.5)
    assert called == []


def test_groups_are_clipped_each_by_its_own_norm(called) -> None:
    first, second = (paddle.create_parameter(list(shape), "float32") for shape in SHAPES[:2])
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


@pytest.mark.parametrize("size", [0, 1, 33, 50001])
def test_a_sum_of_squares_is_that_of_float64(size) -> None:
    values = np.random.default_rng(size).normal(size=size).astype("float32")
    found = adamw.sum_of_squares(paddle.to_tensor(values))
    assert found.shape == [1]
    np.testing.assert_allclose(found.item(), (values.astype("float64") ** 2).sum(), rtol=1e-7)


@pytest.mark.parametrize("clip", [None, ClipGradByGlobalNorm(1.0)], ids=["", "all"])
def test_numbers_that_are_not_finite_reach_the_weights(clip) -> None:
    weight = paddle.create_parameter([3], "float32")
    (weight * paddle.to_tensor([1.0, np.nan, 1.0])).sum().backward()
    AdamW(0.1, parameters=[weight], grad_clip=clip).step()
    finite = [False] * 3 if clip else [True, False, True]
    assert np.isfinite(weight.numpy()).tolist() == finite
