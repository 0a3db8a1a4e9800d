"""From two learning-rate curves to the named mistake: every cause once, and none without one."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from align.explain.rate_causes import explain

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


def late(rates, steps=1):
    return np.concatenate([np.full(steps, rates[0]), rates[:-steps]])


STEP = np.arange(100)
FAULTS = {
    "early by one": (cosine(101)[1:], cosine(), "shifted by 1 step: .* too early"),
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
    "full wave": (cosine(cycles=1), cosine(), "total length: .*: Paddle 55, PyTorch 100"),
    "flat for linear": (
        linear(warmup=10, floor=PEAK),
        linear(),
        r"decays to another floor: Paddle 0.001",
    ),
    "doubled": (2 * cosine(), cosine(), "constant factor: Paddle's rate is 2 x .*0.002"),
    "constant": (np.full(2, 0.11), np.full(2, 0.1), "constant factor: Paddle's rate is 1.1 x"),
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
    "stepped twice": (
        np.concatenate([linear()[::2], np.zeros(50)]),
        linear(),
        "stepped 2 times per step",
    ),
    "twice as fast, without an end": (
        linear(18, warmup=0, total=20),
        linear(18, warmup=0, total=40),
        "the decay goes 2 times as fast as PyTorch's",
    ),
    "restarts, up again": (
        np.abs(10.0 - np.arange(35) % 20) * PEAK,
        (10 - np.arange(35) % 10) * PEAK,
        "restarts: PyTorch's decay begins again after 10 steps, Paddle's goes back up",
    ),
    "never stepped": (np.full(100, PEAK), cosine(warmup=0), "s rate never changes .0.001., P"),
    "two at once": (linear(warmup=20, total=110), linear(), "warm-up length.*; total length"),
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


@pytest.mark.parametrize("seed", range(6))
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
    ):
        found = explain(wrong, right)
        assert re.search(expected, found), found
