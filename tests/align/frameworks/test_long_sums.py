"""PyTorch's sums formed one term after the other: exact chains, their scatter, right long ports."""

import numpy as np
import paddle
import pytest
import torch

import align
from align.frameworks import moved_roundings
from align.frameworks.moved_roundings import MovedRoundings, Order
from align.record.recording import MovedRun

F, PF = torch.nn.functional, paddle.nn.functional
UNIT = 2.0**-23


def one_by_one(terms):
    total = np.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


@pytest.mark.parametrize("columns", [1, 2, 5, 64])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_adds_its_terms_in_the_order_of_the_memory(columns, dtype):
    terms = np.random.default_rng(0).normal(size=(3000, columns)).astype(dtype)
    found = moved_roundings.in_order(torch.from_numpy(terms), [0], True, order=Order()).numpy()
    assert np.array_equal(found[0], one_by_one(terms))


def test_a_sum_over_several_axes_goes_through_them_as_they_lie():
    x = np.random.default_rng(1).normal(size=(5, 3, 40, 7)).astype(np.float32)
    found = moved_roundings.in_order(torch.from_numpy(x), [0, 2, 3], True, order=Order())
    assert found.shape == (1, 3, 1, 1)
    terms = x.transpose(0, 2, 3, 1).reshape(-1, 3)
    assert np.array_equal(found.numpy().reshape(3), one_by_one(terms))


def test_a_drawn_order_rounds_otherwise():
    x = torch.randn(5000, 3, generator=torch.Generator().manual_seed(2))
    plain = moved_roundings.in_order(x, [0], order=Order())
    drawn = moved_roundings.in_order(x, [0], order=Order(np.random.default_rng(3)))
    assert not torch.equal(plain, drawn)
    assert torch.allclose(plain, drawn, atol=1e-3)


@pytest.mark.parametrize("columns", [1, 5])
def test_parts_round_equal_terms_otherwise_and_lose_none(columns):
    equal = torch.full((1003, columns), 0.3)
    in_turn, in_parts = (moved_roundings.in_order(equal, [0], order=Order(None, n)) for n in (1, 8))
    assert not torch.equal(in_turn, in_parts)
    counted = torch.arange(1003.0)[:, None] * torch.ones(columns)
    assert (moved_roundings.in_order(counted, [0], order=Order.of_run(3)) == 502503).all()


BLOCK = torch.randn(6, 4, 9, 10, generator=torch.Generator().manual_seed(4))
ROWS = torch.randn(500, 8, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    "compute",
    [
        lambda: BLOCK.sum(),
        lambda: BLOCK.sum(1, keepdim=True),
        lambda: BLOCK.mean(),
        lambda: BLOCK.var(),
        lambda: BLOCK.var((0, 2), keepdim=True),
        lambda: torch.var_mean(BLOCK, dim=(0, 2, 3), correction=0),
        lambda: torch.zeros(0, 3).sum(0),
        lambda: (BLOCK > 0).sum(0),
        lambda: BLOCK.sum(0, dtype=torch.float64),
        lambda: ROWS.T @ ROWS,
        lambda: F.linear(ROWS, ROWS[:3], torch.ones(3)),
        lambda: torch.baddbmm(BLOCK[0], BLOCK[0] @ BLOCK[0].mT, BLOCK[0]),
        lambda: ROWS @ ROWS[0],
        lambda: F.batch_norm(BLOCK, torch.zeros(4), torch.ones(4), training=True),
        lambda: F.batch_norm(BLOCK, torch.zeros(4), torch.ones(4)),
        lambda: F.mse_loss(BLOCK, BLOCK.flip(0)),
        lambda: F.binary_cross_entropy_with_logits(BLOCK, BLOCK.sigmoid(), reduction="sum"),
        lambda: F.cross_entropy(BLOCK, torch.zeros(6, 9, 10, dtype=torch.int64)),
        lambda: F.conv2d(BLOCK, torch.ones(6, 2, 3, 3), stride=2, groups=2),
        lambda: F.conv_transpose2d(BLOCK, torch.ones(4, 3, 3, 3), stride=2),
    ],
)
def test_a_moved_run_makes_the_same_numbers_but_for_their_roundings(compute):
    plain = compute()
    with MovedRoundings(MovedRun(1)):
        found = compute()
    sides = zip(
        *(made if isinstance(made, tuple) else (made,) for made in (plain, found)), strict=True
    )
    for expected, moved in sides:
        assert moved.shape == expected.shape
        assert moved.dtype == expected.dtype
        scale = expected.abs().max() if expected.numel() else 0
        assert torch.allclose(moved, expected, rtol=0, atol=float(1e-4 * scale))


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Conv2d(4, 6, 3, groups=2),
        torch.nn.ConvTranspose2d(4, 6, 3, stride=2),
        torch.nn.BatchNorm2d(4),
        torch.nn.GroupNorm(2, 4),
        torch.nn.LayerNorm(10),
        torch.nn.InstanceNorm2d(4, affine=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_gradients_of_a_moved_run_are_the_same_but_for_their_roundings(layer):
    def gradients():
        x = BLOCK.clone().requires_grad_()
        seeds = torch.linspace(-1, 1, layer(x).numel())
        held = torch.autograd.grad((layer(x).flatten() * seeds).sum(), [x, *layer.parameters()])
        return [gradient.double() for gradient in held]

    plain = gradients()
    with MovedRoundings(MovedRun(1)):
        moved = gradients()
    for expected, found in zip(plain, moved, strict=True):
        assert 0 < (found - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("terms", [400, 6400])
def test_the_planted_scatter_of_a_product_is_that_of_a_chain(terms, positive):
    drawn = np.random.default_rng(6)
    a, b = (drawn.normal(size=size).astype(np.float32) for size in ((16, terms), (terms, 16)))
    if positive:
        a, b = np.abs(a), np.abs(b)
    exact = a.astype(np.float64) @ b
    chain = one_by_one(np.stack([np.multiply.outer(x, y) for x, y in zip(a.T, b, strict=True)]))
    product = torch.from_numpy(a) @ torch.from_numpy(b)
    args = torch.from_numpy(a), torch.from_numpy(b)
    (reach,) = moved_roundings.chain_errors(torch.ops.aten.mm.default, args, product)
    planted = UNIT * float(reach.double().square().mean().sqrt())
    assert 0.5 < planted / float(np.sqrt(np.square(chain - exact).mean())) < 2.5


def test_what_a_convolution_adds_is_counted_in_both_directions():
    count = moved_roundings._terms
    weight = torch.ones(6, 2, 3, 3)  # of 4 channels in 2 groups, or to 4 channels transposed
    assert count(weight, transposed=False, groups=2) == 2 * 9
    assert count(weight, transposed=True, groups=2) == 3 * 9


LONG = {
    "rows": (torch.nn.Linear(8, 4), paddle.nn.Linear(8, 4), (4096, 8)),
    "equal terms": (torch.nn.Linear(8, 4), paddle.nn.Linear(8, 4), (3000, 8)),
    "pixels": (torch.nn.Conv2d(3, 3, 1), paddle.nn.Conv2D(3, 3, 1), (1, 3, 224, 224)),
}


@pytest.mark.parametrize("name", LONG)
def test_a_right_port_of_many_places_passes_in_float32(name):
    reference, port, shape = LONG[name]
    loss = None
    if name == "equal terms":  # each of them 1 / 3000 / 4, which a chain rounds alike every time
        loss = (lambda out: out.mean(), lambda out: out.mean())
    x = np.random.default_rng(7).normal(size=shape)
    result = align.compare(reference, port, x, loss=loss, dtype="float32")
    assert result.passed, str(result)


def test_the_mean_of_nearly_equal_losses_passes_in_float32():
    drawn = np.random.default_rng(8)
    x, labels = 1e-5 * drawn.normal(size=(60_000, 2)), drawn.integers(0, 2, (60_000, 1))
    loss = (
        lambda out, y: F.binary_cross_entropy_with_logits(out, y.to(out.dtype)),
        lambda out, y: PF.binary_cross_entropy_with_logits(out, y.astype(out.dtype)),
    )
    models = torch.nn.Linear(2, 1, bias=False), paddle.nn.Linear(2, 1, bias_attr=False)
    result = align.compare(*models, x, loss=loss, labels=labels, dtype="float32")
    assert result.passed, str(result)


@pytest.mark.parametrize("element", [1e-4, -1e-4])
def test_one_output_of_many_places_off_by_a_ten_thousandth_is_found(element):
    class Port(paddle.nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            moved = paddle.zeros_like(out)
            moved[17, 2] = element * out.abs().max()
            return out + moved.detach()

    x = np.random.default_rng(7).normal(size=(4096, 8))
    result = align.compare(torch.nn.Linear(8, 4), Port(8, 4), x, dtype="float32")
    assert not result.passed
    assert result.root.step == "forward"
