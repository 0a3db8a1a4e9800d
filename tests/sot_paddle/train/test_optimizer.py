"""HF AdamW's groups, steps left out and state, decay groups, the edges of clipping.

Updates, decayed sets and clipping are compared with the reference by the alignment's cases.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.registry import create_model
from sot_paddle.train.optimizer import (
    ClipGradByGlobalNorm,
    HFAdamW,
    decay_filter,
    decayed_names,
    decayed_names_by_shape,
)

SHAPES = ((3, 4), (5,), (2, 3))


def initial() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape) for shape in SHAPES]


def gradients(step: int, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(100 + step)
    return [scale * rng.normal(size=shape) for shape in SHAPES]


def parameters(dtype: str = "float64") -> list[paddle.Tensor]:
    made = []
    for value in initial():
        parameter = paddle.create_parameter(list(value.shape), dtype)
        parameter.set_value(value.astype(dtype))
        made.append(parameter)
    return made


def give(made: list[paddle.Tensor], values: list[np.ndarray | None]) -> None:
    """Set gradients through a backward pass: Paddle cannot unset one that was assigned."""
    for parameter, value in zip(made, values, strict=True):
        parameter.clear_gradient(False)  # by position: Paddle ignores the keyword
        if value is not None:
            (parameter * paddle.to_tensor(value).astype(parameter.dtype)).sum().backward()


def test_a_parameter_without_gradient_stands_still() -> None:
    """Its moments and its step count wait for the next gradient, as in torch."""
    skipping, whole = parameters(), parameters()
    for made, steps in ((skipping, range(6)), (whole, (0, 1, 4, 5))):
        optimizer = HFAdamW(0.1, parameters=made, weight_decay=0.25)
        for step in steps:
            values = gradients(step)
            is_left_out = made is skipping and step in (2, 3)
            give(made, [values[0], None if is_left_out else values[1], values[2]])
            optimizer.step()
    np.testing.assert_array_equal(skipping[1].numpy(), whole[1].numpy())
    assert np.abs(skipping[0].numpy() - whole[0].numpy()).max() > 0.01


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("beta2", [0.999, 0.9999, 0.98])
def test_saved_state_continues_bit_identically(tmp_path, beta2, dtype, correct, fresh) -> None:
    taken = 7
    made = parameters(dtype)
    options = {"weight_decay": 0.25, "correct_bias": correct, "beta2": beta2}
    rate = paddle.optimizer.lr.LambdaDecay(0.1, lambda step: 0.9**step)

    def run(optimizer: HFAdamW, first: int, last: int) -> list[np.ndarray]:
        for step in range(first, last):
            give(made, gradients(step, 1e-5))
            optimizer.step()
            rate.step()
        return [parameter.numpy() for parameter in made]

    with paddle.utils.unique_name.guard():  # a fresh process would count names from zero as well
        optimizer = HFAdamW(rate, parameters=made, **options)
        weights = run(optimizer, 0, taken)
        paddle.save(optimizer.state_dict(), str(tmp_path / "o.pdopt"))
        expected = run(optimizer, taken, taken + 5)
    with paddle.utils.unique_name.guard():
        if fresh:
            optimizer = HFAdamW(rate, parameters=made, **options)
        optimizer.set_state_dict(paddle.load(str(tmp_path / "o.pdopt")))
        for parameter, value in zip(made, weights, strict=True):
            parameter.set_value(value)
        again = run(optimizer, taken, taken + 5)
    for a, b in zip(again, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("beta2", [0.9, 0.999, 0.9999])
def test_the_step_is_read_off_a_float32_power_of_any_age(beta2: float) -> None:
    """Paddle keeps beta2^t in float32: after thousands of steps it is no exact power."""
    optimizer = HFAdamW(parameters=parameters("float32"), beta2=beta2)
    power = np.float32(beta2)
    for step in range(1, 20001):
        if step in (1, 2, 3, 10, 100, 700, 3500, 9000, 20000):
            parameter = paddle.create_parameter([1], "float32")
            epsilon = optimizer._kernel_epsilon(parameter, paddle.to_tensor([power]))
            assert epsilon == pytest.approx(1e-6 / np.sqrt(1 - beta2**step), rel=1e-12), step
        power = np.float32(power * np.float32(beta2))


def test_clipping_leaves_what_is_below_the_norm_and_what_is_exempt() -> None:
    made = parameters()
    pairs = [(p, paddle.to_tensor(g)) for p, g in zip(made, gradients(0), strict=True)]
    for (_, result), g in zip(ClipGradByGlobalNorm(100.0)(pairs), gradients(0), strict=True):
        np.testing.assert_array_equal(result.numpy(), g)
    made[1].need_clip = False
    pairs[2] = (made[2], None)
    clipped = ClipGradByGlobalNorm(0.5)(pairs)
    alone = np.sqrt((gradients(0)[0] ** 2).sum())
    np.testing.assert_allclose(
        clipped[0][1].numpy(), gradients(0)[0] * 0.5 / (alone + 1e-6), rtol=1e-14
    )
    np.testing.assert_array_equal(clipped[1][1].numpy(), gradients(0)[1])
    assert clipped[2][1] is None
    assert ClipGradByGlobalNorm(0.5)([(made[2], None)]) == [(made[2], None)]


def test_clipping_sums_half_precision_in_float32() -> None:
    parameter = paddle.ones([1000], dtype="bfloat16")
    gradient = paddle.full([1000], 0.1).astype("bfloat16")
    result = ClipGradByGlobalNorm(1.0)([(parameter, gradient)])[0][1]
    assert result.dtype == paddle.bfloat16
    norm = float((result.astype("float32") ** 2).sum().sqrt())
    assert norm == pytest.approx(1.0, rel=5e-3)


def test_frozen_parameters_are_in_no_group(tiny_bert) -> None:
    names = decayed_names(tiny_bert())
    frozen = decayed_names(tiny_bert(freeze_encoder=True))
    assert frozen == {name for name in names if name.startswith("head.")}
    sizes = {"img_size": 16, "embed_dim": 12, "depth": 1, "num_heads": 3, "wr_dim": 4}
    model = create_model("sot_tiny", 3, **sizes)
    model.blocks[0].mlp.fc1.weight.stop_gradient = True
    assert "blocks.0.mlp.fc1.weight" not in decayed_names_by_shape(model)


def test_decay_filter_speaks_paddle_s_own_names(tiny_bert) -> None:
    model = tiny_bert()
    asked = decay_filter(model)
    decayed = decayed_names(model)
    for name, parameter in model.named_parameters():
        assert asked(parameter.name) == (name in decayed), name
        assert not asked(name)
    assert 0 < len(decayed) < len(model.parameters())
