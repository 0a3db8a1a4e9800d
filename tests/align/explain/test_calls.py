"""Causes by experiment: every family of slips on a small pair; silence where nothing is known."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import paddle
import pytest
import torch
from paddle import nn
from paddle.nn import functional as F

import align
from align.explain import calls, locate, options
from align.explain.hints import UNKNOWN
from align.pair.any_pair import AnyPair
from align.stages import stages
from tests.align.small_pairs import model_of, pair_in

RNG = np.random.default_rng(5)
TOKENS = RNG.normal(size=(2, 5, 6))
KEEP = (np.arange(5)[None] < np.array([[5], [3]])).astype("int64")


def torch_block() -> torch.nn.Module:
    """Attention of two heads, a norm, a power, pieces joined; no layer inside but the linears."""

    def forward(model, x, keep):
        q, k, v = model.qkv(x).reshape(2, 5, 3, 2, 3).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / 3**0.5
        scores = scores.masked_fill(keep[:, None, None] == 0, -1e30)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 6)
        centred = mixed - mixed.mean(1, keepdim=True)
        size = (centred**2).mean(-1, keepdim=True) + 1e-5
        normed = torch.nn.functional.gelu(centred / size**model.scale)
        return model.out(torch.cat([normed, x], -1)) * model.top + x[:, :1]

    parts = {"qkv": torch.nn.Linear(6, 18), "out": torch.nn.Linear(12, 6)}
    return model_of(torch, forward, scale=0.5, top=2, **parts)


def paddle_block(slip: str) -> nn.Layer:
    """The port; ``slip`` names what is wrong in it."""

    def forward(model, x, keep):
        q, k, v = model.qkv(x).reshape([2, 5, 3, 2, 3]).transpose([2, 0, 3, 1, 4]).unbind(0)
        scores = q @ k.transpose([0, 1, 3, 2])
        scores = scores if slip == "scale" else scores / 3**0.5
        hidden = keep.unsqueeze([1, 2]) == 0
        low = paddle.full_like(scores, -2.0 if slip == "weak" else -1e30)
        scores = scores if slip == "unmasked" else paddle.where(hidden, low, scores)
        weights = F.softmax(scores, axis=-1)
        mixed = weights @ (v.detach() if slip == "detached" else v)
        mixed = mixed if slip == "merged" else mixed.transpose([0, 2, 1, 3])
        mixed = mixed.reshape([2, 5, 6])
        centred = mixed - mixed.mean(axis=2 if slip == "mean" else 1, keepdim=True)
        size = (centred * centred).mean(axis=-1, keepdim=True) + 1e-5
        normed = F.gelu(centred / paddle.pow(size, model.scale))
        return model.out(paddle.concat([normed, x], axis=-1)) * model.top + x[:, :1]

    parts = {"qkv": nn.Linear(6, 18), "out": nn.Linear(12, 6)}
    return model_of(paddle, forward, scale=0.5, top=3 if slip == "attribute" else 2, **parts)


def pair_of(slip: str) -> AnyPair:
    return pair_in(torch_block, lambda: paddle_block(slip), (TOKENS, KEEP))


def proved(pair: AnyPair) -> str:
    """What the experiments prove of the first guilty layer."""
    return calls.study(pair, stages.isolated(pair)[1][0]).proved


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        ("attribute", "top: Paddle's layer has 3, PyTorch's 2; with PyTorch's it agrees"),
        ("scale", "multiplied by 3 ** -0.5 once more"),
        ("unmasked", "mask: it is not applied"),
        ("merged", "without a transposition of its input"),
        ("mean", "axis of mean: Paddle has 2, PyTorch 1; with PyTorch's it agrees"),
        ("weak", "mask value: what Paddle fills in is too weak"),
    ],
)
def test_each_slip_is_named_with_its_line(slip: str, words: str) -> None:
    cause = proved(pair_of(slip))
    assert words in cause
    if slip != "attribute":
        assert "test_calls.py:" in cause


def test_a_graph_cut_in_the_model_itself_is_named_with_its_line() -> None:
    cause = calls.explain_backward(pair_of("detached"), "(model)", "")
    assert cause.startswith("detach() cuts the graph: no gradient passes there")
    assert "test_calls.py:" in cause
    assert calls.explain_backward(pair_of(""), "(model)", "a formula") == "a formula"


def test_the_model_is_as_it_was_afterwards() -> None:
    pair = pair_of("mean")
    before = {name: p.numpy().copy() for name, p in pair.model.state_dict().items()}
    functions = paddle.Tensor.mean, F.softmax, paddle.Tensor.__add__
    proved(pair)
    assert functions == (paddle.Tensor.mean, F.softmax, paddle.Tensor.__add__)
    assert all((before[n] == p.numpy()).all() for n, p in pair.model.state_dict().items())


def detaching(_, x):
    """The graph is cut in a loop."""
    total = x
    for _ in range(2):
        total = total + paddle.tanh(x.detach() * x)
    return total


def keeping(_, x):
    return x + 2 * torch.tanh(x * x)


def behind_a_linear(torch_inner: Callable, paddle_inner: Callable) -> AnyPair:
    """A pair whose layer "1" computes these."""
    return pair_in(
        lambda: torch.nn.Sequential(torch.nn.Linear(6, 6), model_of(torch, torch_inner)),
        lambda: nn.Sequential(nn.Linear(6, 6), model_of(paddle, paddle_inner)),
        (TOKENS,),
    )


@pytest.mark.parametrize(
    ("torch_inner", "paddle_inner", "cause"),
    [
        (keeping, detaching, "detach() cuts the graph"),  # in a loop: undone as a whole
        (
            lambda _, x: x * torch.tanh(x).detach(),
            lambda _, x: x * paddle.tanh(x),
            "PyTorch cuts the graph after tanh, Paddle does not: detach()",
        ),
    ],
)
def test_a_cut_on_one_side_is_named_with_its_line(torch_inner, paddle_inner, cause) -> None:
    named = calls.explain_backward(behind_a_linear(torch_inner, paddle_inner), "1", "")
    assert named.startswith(cause)
    assert "test_calls.py:" in named


class Crooked(paddle.autograd.PyLayer):
    """`keeping` here with a gradient of its own, which is wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + 2 * paddle.tanh(x * x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * paddle.sin(ctx.saved_tensor()[0])


def test_where_no_cut_explains_a_gradient_its_own_backward_pass_is_suspected() -> None:
    pair = behind_a_linear(keeping, lambda _, x: Crooked.apply(x))
    assert calls.explain_backward(pair, "1", UNKNOWN) == calls.OTHERWISE
    assert "perhaps a backward pass of its own (PyLayer)" in calls.OTHERWISE
    assert calls.explain_backward(pair, "1", "the gradient is 3") == "the gradient is 3"


def test_what_no_known_slip_explains_says_what_pytorch_alone_calls() -> None:
    pair = behind_a_linear(keeping, lambda _, x: paddle.sin(3.0 * x) * 0.1 + x)
    guilty = stages.isolated(pair)[1]
    assert guilty[0].place == "1"
    missing = "perhaps a call is missing: PyTorch calls tanh there, Paddle does not"
    assert calls.study(pair, guilty[0]) == ("", "", missing)
    assert locate.forward_divergences(pair, guilty)[0].cause == missing


def test_a_port_in_other_words_has_no_call_missing() -> None:
    def attention(_, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    def written_out(_, x):
        scores = paddle.matmul(x, x, transpose_y=True) / 6**0.5
        return paddle.matmul(paddle.nn.functional.softmax(scores + paddle.sin(scores), -1), x)

    pair = behind_a_linear(attention, written_out)
    guilty = stages.isolated(pair)[1]
    assert "missing" not in locate.forward_divergences(pair, guilty)[0].cause


def states(f, kind: type) -> torch.nn.Module | nn.Layer:
    def forward(model, x):
        made = model.inner(x, x, x) if hasattr(model.inner, "num_heads") else model.inner(x)
        return made[0] if isinstance(made, tuple) else made

    return model_of(f, forward, inner=kind(6, 2))


@pytest.mark.parametrize(
    ("theirs", "ours", "cause"),
    [
        (torch.nn.GRU, nn.GRU, "time_major: Paddle's layer has False, PyTorch's True; with"),
        (
            torch.nn.MultiheadAttention,
            nn.MultiHeadAttention,
            "batch_first: PyTorch's layer takes (sequence, batch, features)",
        ),
    ],
)
def test_axes_of_a_sequence_are_told(theirs, ours, cause) -> None:
    pair = pair_in(lambda: states(torch, theirs), lambda: states(paddle, ours), (TOKENS,))
    found = locate.forward_divergences(pair, stages.isolated(pair)[1])
    assert found[0].place == "inner"
    assert found[0].cause.startswith(cause)


PLANE, SPACE = (torch.nn.Conv2d, nn.Conv2D, (6, 6)), (torch.nn.Conv3d, nn.Conv3D, (5, 6, 7))
DILATED = "dilation: Paddle's layer has 1, PyTorch's 2; padding: Paddle's layer has 1, PyTorch's 2"


@pytest.mark.parametrize(
    ("kinds", "torch_options", "paddle_options", "cause"),
    [
        (PLANE, (1, 2, 2), (1, 1, 1), DILATED),  # Paddle computes with a copy of its padding
        (SPACE, (1, 2, 2), (1, 1, 1), DILATED),
        (PLANE, (2, 1), (2, "SAME"), "padding: Paddle's layer has 'SAME', PyTorch's 1"),
        (PLANE, (1, "same"), (1, 0), "padding: Paddle's layer has 0, PyTorch's 'same'"),
    ],
)
def test_options_of_a_convolution_are_told(kinds, torch_options, paddle_options, cause) -> None:
    """Stride, padding and dilation: those that keep the sizes, a padding by name or by number."""
    torch_layer, paddle_layer, sizes = kinds
    theirs = torch.nn.Sequential(torch_layer(2, 3, 3, *torch_options))
    ours = nn.Sequential(paddle_layer(2, 3, 3, *paddle_options))
    pair = pair_in(theirs, ours, (RNG.normal(size=(2, 2, *sizes)),))
    assert proved(pair) == f"{cause}; with PyTorch's it agrees"


def cause_of_rows(step: int, more: int = 0) -> str:
    """Rows are looked up under numbers that are moved, and some once more."""

    def forward(model, ids):
        return model.words(paddle.concat([ids + step, ids[:, :more]], axis=1))

    pair = pair_in(
        lambda: torch.nn.Sequential(OrderedDict(words=torch.nn.Embedding(7, 4))),
        lambda: model_of(paddle, forward, words=nn.Embedding(7, 4)),
        (np.array([[1, 4, 2], [5, 0, 3]]),),
    )
    found = {one.place: one for one in stages.isolated(pair)[1]}
    return calls.study(pair, found["words"])[0]


def test_rows_that_were_looked_up_are_told() -> None:
    said = "Paddle reads [2, 5, 3, 6, 1, ...], PyTorch [1, 4, 2, 5, 0, ...]: every row 1 too late"
    assert said in cause_of_rows(1)
    assert cause_of_rows(0, 1) == ""  # of another length: nothing is claimed, nothing fails


def test_numbers_that_differ_by_the_float32_of_a_kernel_are_no_cause() -> None:
    """The reference's norms follow Paddle's: its epsilon is 9.99999975e-06 then."""
    module, layer = torch.nn.BatchNorm1d(4), nn.BatchNorm1D(4)
    module.eps, module.momentum = float(np.float32(1e-5)), 1 - float(np.float32(0.9))
    assert list(options.unequal(layer, module)) == []
    module.eps = 1.00002e-5
    (odd,) = options.unequal(layer, module)
    assert odd.says == "epsilon: Paddle's layer has 1e-05, PyTorch's 1.00002e-05"


def torch_scaled() -> torch.nn.Module:
    """A product divided by its count, then a layer that is told nothing of axes."""

    def forward(model, x):
        product = x[..., :4].transpose(1, 2) @ x[..., :3] / 4
        return model.out(model.pool.norm(product).reshape(-1, 12))

    pool = torch.nn.ModuleDict({"norm": torch.nn.Softmax(1)})
    return model_of(torch, forward, pool=pool, out=torch.nn.Linear(12, 2))


def paddle_scaled() -> nn.Layer:
    """A pool without a call of PyTorch's to compare its output with; the count is wrong."""

    def forward(model, x):
        product = x[..., :4].transpose([0, 2, 1]) @ x[..., :3] / 5
        return model.norm(product.transpose([0, 1, 2])).transpose([0, 1, 2]).reshape([-1, 12])

    pool = model_of(paddle, forward, norm=nn.Softmax(1))
    return nn.Sequential(("pool", pool), ("out", nn.Linear(12, 2)))


def test_an_edit_that_hands_another_shape_to_a_layer_inside_proves_nothing() -> None:
    """What that layer is handed cannot be judged then: 'axes of transpose' was called proved."""
    result = align.compare(torch_scaled, paddle_scaled, TOKENS, dtype="float64")
    assert result.root.place == "pool"
    assert "transpose" not in result.root.cause, result.root.cause


def power(f, last: Callable) -> torch.nn.Module | nn.Layer:
    def forward(model, x):
        return last((model.layer(x).clip(min=1e-6) ** 3).mean(1))

    return model_of(f, forward, layer=f.nn.Linear(6, 4))


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (lambda x: x ** (1 / 4), "number of pow: Paddle 0.25, PyTorch 0.333333; with PyTorch's it"),
        (lambda x: paddle.sin(3 * x) + x * x, "no cause found; 8 of 8 elements are out of"),
    ],
)
def test_a_wrong_exponent_is_named_another_function_is_not(last, words: str) -> None:
    pair = power(torch, lambda x: x ** (1 / 3)), power(paddle, last)
    assert f": {words}" in align.compare(*pair, TOKENS, dtype="float64").verdict
