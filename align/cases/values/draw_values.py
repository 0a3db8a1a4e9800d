"""Step ``data``: random numbers after their generators were saved and set again.

Ours is what a checkpoint holds of the generators; the reference draws on without an interruption.
"""

from __future__ import annotations

import json
import random

import numpy as np
import paddle

from align.cases.both_sides import BothSides, Setting
from align.record.arrays import Arrays

_SEED, _BEFORE, _AFTER = 5, 3, 4
"""An odd number of normal draws before: Python and NumPy then hold a second one back."""


def continued(setting: Setting) -> BothSides:
    """What Python, NumPy and Paddle draw after a checkpoint."""
    from sot_paddle.train import exact_state

    held = random.getstate(), np.random.get_state(), paddle.get_rng_state()
    try:
        _drawn(_SEED, _BEFORE)
        saved = json.loads(json.dumps(exact_state.random_states()))
        _drawn(_SEED + 1, _BEFORE - 1)
        exact_state.restore_random_states(saved)
        ours = _drawn(None, _AFTER)
        expected = {n: values[_BEFORE:] for n, values in _drawn(_SEED, _BEFORE + _AFTER).items()}
        faults = {"drawn anew": _drawn(_SEED, _AFTER), "another seed": _drawn(_SEED + 1, _AFTER)}
    finally:
        random.setstate(held[0])
        np.random.set_state(held[1])
        paddle.set_rng_state(held[2])
    note = f"{_AFTER} numbers of each generator"
    return BothSides(ours, expected, faults, "the numbers", framework_free=True, note=note)


def _drawn(seed: int | None, count: int) -> Arrays:
    """Numbers of the three generators, seeded before where there is a seed."""
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed)
        paddle.seed(seed)
    return {
        "python": np.array([random.gauss(0.0, 1.0) for _ in range(count)]),
        "numpy": np.array([np.random.normal() for _ in range(count)]),
        "paddle": np.array([float(paddle.rand([1])) for _ in range(count)]),
    }
