"""PyTorch with moved roundings: what is moved, by how much, and what is left alone."""

import numpy as np
import pytest
import torch

from align.frameworks import moved_roundings
from align.frameworks.moved_roundings import MovedRoundings
from align.judge.noise_band import RUNS, next_run
from align.record.recording import MovedRun

UNIT = moved_roundings.UNIT[torch.float32]


def moved(compute, seed=1):
    with MovedRoundings(MovedRun(seed)):
        return compute()


X = torch.linspace(-3, 4, 35).reshape(5, 7)
WIDE = torch.linspace(-3, 4, 35, dtype=torch.float64).reshape(5, 7)


def test_the_result_of_a_product_moves_by_one_unit_up_or_down():
    plain, found = X @ X.T, moved(lambda: X @ X.T)
    ratio = found.double() / plain.double() - 1
    assert ratio.abs().max() < 1.6 * UNIT
    assert ratio.abs().min() > 0.4 * UNIT
    assert {*torch.sign(ratio).reshape(-1).tolist()} == {-1.0, 1.0}


def test_another_seed_moves_otherwise_and_the_same_seed_alike():
    first, again, other = (moved(lambda: X * 1.7, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: X.T,
        lambda: X.reshape(7, 5)[1:, 2],
        lambda: torch.cat([X, X]),
        lambda: torch.relu(X),
        lambda: X.clone(),
        lambda: X.max(dim=1).values,
        lambda: torch.where(X > 0, X, -X),
        lambda: torch.arange(5.0) + 0,
        lambda: X.double() * 1.7,
        lambda: torch.arange(5) * 3,
    ],
)
def test_what_rounds_nothing_or_is_not_float32_stays(compute):
    plain = compute()
    found = moved(compute)
    if plain.dtype is torch.float32 and plain.shape == (5,) and plain[0] == 0:
        plain, found = plain[:1], found[:1]  # zero stays zero under an addition that rounds
    assert torch.equal(plain, found)


def test_what_a_float64_run_computes_in_float32_moves_by_units_of_float32():
    def compute():
        return WIDE * 1.7, (WIDE.float() * 1.7).double()

    (plain, low), run = compute(), MovedRun(1)
    with MovedRoundings(run, "float64"):
        found, found_low = compute()
    assert 0 < (found / plain - 1).abs().max() < 2.0**-50
    assert (found_low / low - 1).abs().min() > 0.4 * UNIT
    assert run.lower


@pytest.mark.parametrize("constant", [X.sin(), X.sin().double(), torch.tensor(0.1)])
def test_a_constant_of_float32_in_a_float64_run_moves_by_units_of_float32(constant):
    run = MovedRun(1)
    with MovedRoundings(run, "float64"):
        result = WIDE * constant
    moves = (result / (WIDE * constant) - 1)[constant.expand_as(WIDE) != 0]
    assert 0.4 * UNIT < moves.abs().min() <= moves.abs().max() < 1.6 * UNIT
    assert run.lower


@pytest.mark.parametrize("constant", [torch.tensor(0.125), torch.arange(7) + 1e6, WIDE.sin()])
def test_short_and_whole_constants_are_exact(constant):
    run = MovedRun(1)
    with MovedRoundings(run, "float64"):
        result = WIDE * constant
    assert (result / (WIDE * constant) - 1).abs().max() < 2.0**-50
    assert not run.lower


def test_the_backward_pass_and_operations_in_place_are_moved():
    weight = torch.ones(7, requires_grad=True)

    def gradient():
        weight.grad = None
        (X @ weight).square().sum().backward()
        return weight.grad.clone()

    plain, found = gradient(), moved(gradient)
    assert 0 < (found - plain).abs().max() < 1e-4 * plain.abs().max()
    held = X.clone()
    moved(lambda: held.mul_(1.7))
    assert not torch.equal(held, X * 1.7)


def test_arrays_are_moved_as_copies_and_others_passed_on():
    arrays = {"w": np.linspace(1, 2, 9, dtype=np.float32), "ids": np.arange(4), "x": np.ones(3)}
    found = MovedRoundings(MovedRun(0)).arrays(arrays)
    assert found["ids"] is arrays["ids"]
    assert found["x"] is arrays["x"]
    assert (np.abs(found["w"] / arrays["w"].astype(np.float64) - 1) > 0.4 * UNIT).all()
    assert arrays["w"][0] == 1.0


def test_a_tensor_larger_than_the_drawn_factors_is_moved_everywhere():
    large = torch.ones(2**20 + 5)
    assert (moved(lambda: large * 2.5) != 2.5).all()


def test_float64_is_moved_by_its_own_unit():
    wide, unit, run = WIDE, moved_roundings.UNIT[torch.float64], MovedRun(3)
    with MovedRoundings(run, "float64") as moves:
        found = wide * 1.7
    ratio = found / (wide * 1.7) - 1
    assert 0.4 * unit < ratio[wide != 0].abs().min() <= ratio.abs().max() < 1.6 * unit
    assert not run.lower
    held = np.linspace(1, 2, 9)
    assert (moves.array(held) != held).all()
    assert moves.array(held.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}])
def test_every_form_of_an_optimizer_is_moved_and_its_count_stays(options):
    def stepped():
        weight = torch.nn.Parameter(X.clone())
        optimizer = torch.optim.AdamW([weight], lr=0.1, **options)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        optimizer.step()
        return weight.detach(), optimizer.state[weight]["step"]

    (plain, count), (found, same) = stepped(), moved(stepped)
    assert 0.4 * UNIT < (found / plain - 1).abs().max() < 1e-5
    assert count == same == 2


NEAR, FAR = 1e-5, 1e-3
F = torch.nn.functional


@pytest.mark.parametrize(
    ("compute", "place", "jump"),
    [
        (F.relu, 0.0, (0.0, 1.0)),
        (lambda x: F.relu(x * 1.0, inplace=True), 0.0, (0.0, 1.0)),
        (lambda x: F.leaky_relu(x, 0.25), 0.0, (0.25, 1.0)),
        (lambda x: F.prelu(x, torch.full((1,), 0.25)), 0.0, (0.25, 1.0)),
        (torch.abs, 0.0, (-1.0, 1.0)),
        (F.relu6, 6.0, (1.0, 0.0)),
        (F.hardtanh, -1.0, (0.0, 1.0)),
        (lambda x: x.clamp(min=-2.0, max=2.0), 2.0, (1.0, 0.0)),
        (lambda x: x.clamp(max=2.0), 2.0, (1.0, 0.0)),
        (lambda x: x.clamp_min(2.0), 2.0, (0.0, 1.0)),
        (F.hardsigmoid, 3.0, (1 / 6, 0.0)),
        (F.hardswish, 3.0, (1.5, 1.0)),
    ],
)
def test_of_the_last_two_runs_each_takes_one_side_of_what_is_near_a_kink(compute, place, jump):
    runs, found = [], []
    offsets = torch.tensor([-FAR, -1.5 * NEAR, 1.5 * NEAR, FAR])
    for number in range(RUNS):
        runs.append(next_run(runs))
        with MovedRoundings(runs[-1]):
            x = (place + offsets + (-1) ** number * NEAR).requires_grad_()
            compute(x * 1.0).sum().backward()
        found.append(x.grad.tolist())
    below, above = jump
    assert found[RUNS - 2] == pytest.approx([below, above, above, above], abs=1e-3)
    assert found[RUNS - 1] == pytest.approx([below, below, below, above], abs=1e-3)
    assert found[0] == pytest.approx([below, below, above, above], abs=1e-3)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.cumsum(torch.ones(2, 9), 1) * torch.ones(2, 9) - 1,
        lambda: torch.ones(40, 3).sum(0),
        lambda: (torch.cumsum(torch.ones(9), 0) / 9 * 9).long(),
        lambda: (torch.cumsum(torch.ones(9), 0) / 8 * 8).floor(),
        lambda: (torch.cumsum(torch.ones(9), 0) / 8 * 8).int(),
    ],
    ids=["a count of places", "a sum of ones", "cast", "floor", "cast to int"],
)
def test_a_number_that_is_whole_or_becomes_so_stays(compute):
    plain = compute()
    for seed in range(6):
        assert torch.equal(plain, moved(compute, seed)), seed
