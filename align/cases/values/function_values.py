"""Steps ``forward`` and ``backward`` of a pure function: its value, and the gradient of its input.

The gradient is that of ``sum(w * f(x))`` with random weights w.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import paddle
import torch

from align.cases.both_sides import BothSides, Setting, stamps
from align.cases.tensor_functions import Computed, computed
from align.frameworks import on_paddle, on_torch
from align.record.arrays import Arrays
from sot_paddle import functional as our_functions
from sot_torch_ref import functional as reference_functions

_SEED = 5


def function(
    setting: Setting,
    *,
    name: str,
    shape: tuple[int, ...],
    mistaken_for: tuple[str, Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    inputs: int = 1,
    valid: Sequence[int] = (),
    start: bool = False,
    symmetric: bool = False,
    less: float = 0.0,
) -> BothSides:
    """A function of tensors that has the same name in ``functional`` of both sides.

    Args:
        setting: step ``forward`` compares its value, ``backward`` the gradient of its first input.
        name: of the function.
        shape: of the random input, (B, N, d); of a second one the last dimension is one larger.
        mistaken_for: (function, keywords) of the Paddle side that a control computes instead.
        options: keywords on both sides.
        inputs: how many tensors it takes.
        valid: rows of each sample that the mask leaves, () for no mask.
        start: a second input is a vector as long as the last dimension.
        symmetric: of x^T x - ``less``, which is symmetric; the gradient is that of x.
        less: of the identity, so that some eigenvalues are negative.
    """
    rng, (*outer, last) = np.random.default_rng(_SEED), shape
    drawn = [rng.normal(size=(*outer, last + i)).astype(setting.dtype) for i in range(inputs)]
    drawn += [rng.normal(size=last).astype(setting.dtype)] if start else []
    mask = {"mask": np.arange(outer[1])[None] < np.array(valid)[:, None]} if valid else {}

    def of(side: ModuleType, named: str, keywords: Mapping[str, Any]) -> Computed:
        module = our_functions if side is on_paddle else reference_functions
        given = {key: side.tensor(array) for key, array in mask.items()}
        called = functools.partial(getattr(module, named), **keywords, **given)
        if not symmetric:
            return computed(side, called, drawn, _weights)
        shift = side.tensor(less * np.eye(last, dtype=setting.dtype))
        return computed(side, lambda x: called(_squared(side, x) - shift), drawn, _weights)

    def picked(found: Computed) -> Arrays:
        forward = setting.step == "forward"
        return {"value": found.value} if forward else {"(input)": found.gradients[0]}

    ours, reference = (of(side, name, options or {}) for side in (on_paddle, on_torch))
    title = f"{mistaken_for[0]} {dict(mistaken_for[1]) or ''}".strip()
    return BothSides(
        picked(ours),
        picked(reference),
        {f"computed as {title}": lambda: picked(of(on_paddle, *mistaken_for))},
        name,
        stamps=stamps(ours.stamp, reference.stamp),
    )


def _squared(side: ModuleType, x: Any) -> Any:
    """x^T x of matrices."""
    multiplied = torch.einsum if side is on_torch else paddle.einsum
    return multiplied("bnc,bnd->bcd", x, x)


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(_SEED + 1).normal(size=shape)
