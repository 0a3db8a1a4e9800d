"""From two learning-rate curves to the named mistake: every cause once, and none without one."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from align.explain.settings.schedule_causes import explain

PEAK = 1e-3


def linear(steps=100, warmup=10.0, total=100, peak=PEAK, floor=0.0, start=0.0):
    """Warm-up and straight decay."""
    t = np.arange(steps, dtype=float)
    down = floor + (peak - floor) * np.clip((total - t) / (total - warmup), 0, None)
    return np.where(t < warmup, start + (peak - start) * t / max(warmup, 1), down)


def cosine(steps=100, warmup=10.0, total=100, peak=PEAK, floor=0.0, cycles=0.5, origin=None):
    """Warm-up and cosine; `origin` is the step from which the wave counts."""
    t = np.arange(steps, dtype=float)
    origin = warmup if origin is None else origin
    wave = (1 + np.cos(2 * math.pi * cycles * (t - origin) / (total - origin))) / 2
    return np.where(t < warmup, peak * t / max(warmup, 1), floor + (peak - floor) * wave)


def power(p, steps=100, total=100, floor=0.0):
    return floor + (PEAK - floor) * np.clip(1 - np.arange(steps) / total, 0, None) ** p


def exponential(gamma, steps=40, start=0):
    return PEAK * gamma ** np.arange(start, start + steps, dtype=float)


def dropping(drops, gamma=0.1, steps=60):
    return PEAK * gamma ** np.searchsorted(drops, np.arange(steps), side="right")


def noam(steps=100, warmup=20):
    t = np.arange(1, steps + 1, dtype=float)
    return np.minimum(t**-0.5, t * warmup**-1.5)


def one_cycle(end, steps=100):
    t = np.arange(steps, dtype=float)
    up, down = t / 30, (t - 30) / (steps - 1 - 30)
    rise = PEAK / 25 + (PEAK - PEAK / 25) * (1 - np.cos(np.pi * up)) / 2
    return np.where(t < 30, rise, end + (PEAK - end) * (1 + np.cos(np.pi * down)) / 2)


def again(rates, floor=0.0):
    """What a getter that applies the recurrence again reads."""
    found = rates.copy()
    found[1:] = floor + (rates[1:] - floor) ** 2 / (rates[:-1] - floor)
    return found


def late(rates, steps=1):
    return np.concatenate([np.full(steps, rates[0]), rates[:-steps]])


STEP = np.arange(100)
FAULTS = {
    "late by one": (late(linear()), linear(), "shifted by 1 step: Paddle's rates come too late"),
    "early by one": (cosine(101)[1:], cosine(), "shifted by 1 step: .* too early"),
    "early by three": (noam(103)[3:], noam(), "shifted by 3 steps: .* too early"),
    "late, by epochs": (dropping([11, 21, 31]), dropping([10, 20, 30]), "shifted by 1 step"),
    "early exponential": (
        exponential(0.9, start=1),
        exponential(0.9),
        "shifted by 1 step: Paddle's rates come too early",
    ),
    "warm-up length": (linear(warmup=20), linear(), "warm-up length in steps: Paddle 20, PyT.* 10"),
    "ceil or floor": (
        cosine(warmup=13),
        cosine(warmup=12),
        "warm-up length .*: Paddle 13, PyTorch 12",
    ),
    "warm-up then flat": (
        np.minimum(STEP / 11, 1.0),
        np.minimum(STEP / 10, 1.0),
        "warm-up length .*: Paddle 11, PyTorch 10",
    ),
    "start factor": (
        linear(start=1e-6),
        linear(),
        "starts from another value: Paddle 1e-06, PyTorch 0",
    ),
    "no warm-up": (linear(warmup=0), linear(), "warm-up length in steps: Paddle 0"),
    "no warm-up, cut": (linear(110)[10:], linear(), "shifted by 10 steps: .* too early"),
    "warm-up as a prefix": (
        np.concatenate([PEAK * np.arange(10) / 10, linear(90, 0)]),
        linear(100, 0),
        "shifted by 10 steps: .* too late",
    ),
    "full wave": (
        cosine(cycles=1),
        cosine(),
        "total length: .*: Paddle 55, PyTorch 100",
    ),
    "floor": (cosine(floor=1e-5), cosine(), r"decays to another floor: Paddle 1.03015e-05"),
    "floor of a line": (linear(floor=1e-5), linear(), r"decays to another floor: Paddle 2.1e-05"),
    "floor reached": (linear(120, floor=1e-5), linear(120), "another floor: Paddle 1e-05"),
    "floor of a cycle": (one_cycle(1e-4), one_cycle(PEAK / 25e4), "another floor: Paddle 0.0001"),
    "floor of a power": (power(2, floor=1e-5), power(2), "another floor"),
    "total of a line": (linear(total=110), linear(), "total length: .*: Paddle 110, PyTorch 100"),
    "total of a cosine": (cosine(total=110), cosine(), "total length: .*: Paddle 110, PyTorch 100"),
    "warm-up not in the total": (cosine(total=110), cosine(), "total length"),
    "from step 0": (
        cosine(origin=0),
        cosine(),
        r"perhaps another peak: Paddle 0.000975528, PyTorch 0.001",
    ),
    "linear for cosine": (
        linear(),
        cosine(),
        r"perhaps another form of the decay: at step 80",
    ),
    "flat for linear": (
        linear(warmup=10, floor=PEAK),
        linear(),
        r"decays to another floor: Paddle 0.001",
    ),
    "exponential for linear": (
        exponential(0.95, 100),
        power(1),
        r"perhaps another form of the decay: at step 32",
    ),
    "doubled": (2 * cosine(), cosine(), "constant factor: Paddle's rate is 2 x .*0.002"),
    "doubled, flat": (np.full(20, 0.2), np.full(20, 0.1), "constant factor: .* 2 x"),
    "warm-up only": (
        linear(9, 20),
        linear(9),
        "constant factor: .* 0.5 x",
    ),
    "another peak": (
        linear(peak=2e-3, floor=1e-4, steps=120),
        linear(floor=1e-4, steps=120),
        "another peak: Paddle 0.002, PyTorch 0.001",
    ),
    "per epoch": (
        cosine(warmup=0)[STEP // 10 * 10],
        cosine(warmup=0),
        "per epoch instead of per step: .* the schedule is read once in 10 steps",
    ),
    "stepped per epoch": (
        cosine(warmup=0)[STEP // 10],
        cosine(warmup=0),
        "per epoch instead of per step: .* it is stepped once in 10 steps",
    ),
    "per step": (
        cosine(warmup=0),
        cosine(warmup=0)[STEP // 10 * 10],
        "per step instead of per epoch",
    ),
    "stepped twice": (
        np.concatenate([linear()[::2], np.zeros(50)]),
        linear(),
        "stepped 2 times per step",
    ),
    "getter of a cosine": (again(cosine(warmup=0)), cosine(warmup=0), "getter misuse: Paddle's"),
    "getter with a floor": (
        again(cosine(warmup=0, floor=1e-5), 1e-5),
        cosine(warmup=0, floor=1e-5),
        "getter misuse: Paddle's .* read scheduler..",
    ),
    "getter of a factor": (again(exponential(0.9)), exponential(0.9), "getter misuse: Paddle's"),
    "getter of a ramp": (
        again(0.1 + 0.1 * np.minimum(np.arange(20), 9)),
        0.1 + 0.1 * np.minimum(np.arange(20), 9),
        "getter misuse: Paddle's",
    ),
    "PyTorch's getter": (exponential(0.9), again(exponential(0.9)), "getter misuse: PyTorch's"),
    "float32": (cosine().astype(np.float32), cosine(), r"held in float32"),
    "float32 base": (
        linear(peak=float(np.float32(PEAK))),
        linear(),
        r"held in float32",
    ),
    "warm-up one early": (
        np.where(STEP < 10, PEAK * (STEP + 1) / 10, linear()),
        linear(),
        r"shifted by 1 step, the rest is not.* of the next step",
    ),
    "warm-up one late": (
        np.where(STEP < 10, PEAK * np.maximum(STEP - 1, 0) / 10, linear()),
        linear(),
        r"the warm-up is shifted by 1 step, the rest is not.* of the step before",
    ),
    "never stepped": (
        np.full(100, PEAK),
        cosine(warmup=0),
        "s rate never changes .0.001., P",
    ),
    "two at once": (
        linear(warmup=20, total=110),
        linear(),
        "warm-up length.*; total length",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_named_with_its_numbers(name) -> None:
    ours, reference, expected = FAULTS[name]
    found = explain(ours, reference)
    assert re.search(expected, found), found


def test_nothing_is_named_where_nothing_fits() -> None:
    rng = np.random.default_rng(0)
    assert explain(rng.random(50), linear(50)) == ""
    assert explain(linear(), linear()) == ""
    assert explain(linear(), linear(99)) == ""
    assert explain(np.full(100, np.nan), linear()) == ""


def test_a_longer_warm_up_is_not_taken_for_a_shift_and_a_shift_not_for_a_getter() -> None:
    assert "shifted" not in explain(linear(warmup=11), linear())
    assert "getter" not in explain(exponential(0.9, start=1), exponential(0.9))
    assert "getter" not in explain(cosine(101, 0)[1:], cosine(100, 0))


@pytest.mark.parametrize("seed", range(20))
def test_mistakes_are_named_whatever_the_schedule(seed) -> None:
    rng = np.random.default_rng(seed)
    steps, k = int(rng.integers(20, 200)), int(rng.integers(1, 4))
    warmup, peak = int(rng.integers(4, max(5, steps // 4))), float(10 ** rng.uniform(-5, 0))
    make = (linear, cosine)[seed % 2]
    right = make(steps, warmup, steps, peak)
    for wrong, expected in (
        (make(steps + k, warmup, steps, peak)[k:], f"shifted by {k} step"),
        (late(right, k), f"shifted by {k} step"),
        (make(steps, warmup + k, steps, peak), f"warm-up length .* Paddle {warmup + k}, PyTorch"),
        (make(steps, warmup, steps + 7, peak), f"Paddle {steps + 7}, PyTorch {steps}"),
        (make(steps, warmup, steps, peak, floor=peak / 97.3), "decays to another floor"),
        (make(steps, warmup, steps, peak / 3), "constant factor"),
        ((cosine, linear)[seed % 2](steps, warmup, steps, peak), "another form of the decay"),
    ):
        found = explain(wrong, right)
        assert re.search(expected, found), found
