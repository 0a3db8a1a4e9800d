"""From two learning-rate curves to the named mistake: every cause once, and none without one."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from align.explain.rate_causes import explain

PEAK = 1e-3


def linear(steps=100, warmup=10, total=100, peak=PEAK):
    """Warm-up and straight decay."""
    t = np.arange(steps, dtype=float)
    down = peak * np.clip((total - t) / (total - warmup), 0, None)
    return np.where(t < warmup, peak * t / max(warmup, 1), down)


def cosine(steps=100, warmup=10, total=100, peak=PEAK):
    """Warm-up and cosine."""
    t = np.arange(steps, dtype=float)
    wave = (1 + np.cos(math.pi * (t - warmup) / (total - warmup))) / 2
    return np.where(t < warmup, peak * t / max(warmup, 1), peak * wave)


def late(rates, steps=1):
    return np.concatenate([np.full(steps, rates[0]), rates[:-steps]])


STEP = np.arange(100)
FAULTS = {
    "early by one": (cosine(101)[1:], cosine(), "shifted by 1 step: .* too early"),
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
    "never stepped": (np.full(100, PEAK), cosine(warmup=0), "s rate never changes .0.001., P"),
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
        (make(steps, warmup, steps, peak / 3), "constant factor"),
    ):
        found = explain(wrong, right)
        assert re.search(expected, found), found
