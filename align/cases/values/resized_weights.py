"""Step ``weights`` of a case of two sizes: a file of one model, converted for another one; and
step ``forward`` of the resampling that this takes, alone.

Ours goes the user's way: a PyTorch file, ``convert_file`` with the new sizes, ``load_weights``.
The reference resizes the tables with PyTorch's interpolation. Compared are the position table of
the model as built, every tensor that was loaded, and in float64 the logits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import sot_paddle
from align.cases.both_sides import BothSides, Setting, ValueFault, stamps
from align.cases.kinds.case_kinds import ModelCase
from align.cases.sides import paddle_side, torch_side
from align.cases.sides.drawn_models import draw_state, make_batch
from align.cases.tensor_functions import called
from align.frameworks import on_paddle, on_torch
from align.frameworks.swapping import attributes
from align.judge.bounds import TOLERANCES
from align.record.arrays import Arrays
from sot_paddle import resampling
from sot_paddle.checkpoint import write_tensors
from sot_paddle.convert import build_plan, convert_file
from sot_torch_ref.resampling import resize_bias_table, resize_position_embedding

_SOURCE = "source.safetensors"
_LAYOUT = "sot_torch_ref"
_BUILT = "pos_embed (as built)"
_FINER = 12  # samples of the kernel for each unit of distance
_REACH = 4  # distances that are looked at, on either side


def resized(setting: Setting, *, source: Mapping[str, Any], sizes: Mapping[str, int]) -> BothSides:
    """The tensors and logits of a model loaded with a file of another size.

    Both precisions are judged alike: a table in float32 is a rounded one, of equal numbers.

    Args:
        setting: the model.
        source: options in which the model of the file differs.
        sizes: options of the conversion.
    """
    case, dtype, place = setting.case, setting.dtype, setting.folder()
    of_file = dataclasses.replace(case, options={**case.options, **source})
    state = {
        name: np.asarray(value, dtype if value.dtype == np.float64 else None)
        for name, value in draw_state(of_file, None).items()
    }
    expected, stamp = _reference(case, dtype, state)
    write_tensors(place / _SOURCE, state, {})
    ours, our_stamp = _converted(case, dtype, place, "plain", sizes)
    name = next(n for n in ours if n.endswith(("pos_embed", "relative_position_bias_table")))
    shifted = np.roll(ours[name], 1, axis=1 if ours[name].ndim == 3 else 0)
    faults = {"rows shifted by one": ValueFault(ours | {name: shifted}, place=name)}
    if _BUILT not in expected:  # a fixed table is computed, not interpolated
        swapped = {"_SHARP": resampling._SMOOTH, "_SMOOTH": resampling._SHARP}
        with attributes(resampling, **swapped):
            faulty, _ = _converted(case, dtype, place, "swapped", sizes)
        faults["the other cubic parameter"] = ValueFault(faulty, place="sot_paddle.resampling")
    return BothSides(
        ours,
        expected,
        faults,
        rule=TOLERANCES["forward", "float64"],
        stamps=stamps(our_stamp, stamp),
    )


def _reference(case: ModelCase, dtype: str, state: Arrays) -> tuple[Arrays, dict]:
    """What the resized reference holds and computes, in Paddle's names."""
    model = torch_side.build(case, dtype)
    own = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    built = {_BUILT: own["pos_embed"]} if "pos_embed" in dict(model.named_buffers()) else {}
    resized = {name: _resized(name, state[name], own[name], fixed=bool(built)) for name in own}
    torch_side.load_state(model, resized)
    shapes = {name: tuple(value.shape) for name, value in resized.items()}
    named = build_plan(_LAYOUT, case.model, shapes).apply(resized)
    made = called(on_torch, model, _batch(case, dtype), dtype)
    logits = {"logits": on_torch.numpy(made)} if dtype == "float64" else {}
    return {**built, **named, **logits}, on_torch.stamp(made)


def _resized(name: str, old: np.ndarray, own: np.ndarray, *, fixed: bool) -> np.ndarray:
    """A tensor of the file for the model whose own tensor is given."""
    if name == "pos_embed":
        if fixed:
            return own
        return resize_position_embedding(torch.from_numpy(old), own.shape[1] - 1).numpy()
    if name.endswith("relative_position_bias_table"):
        window = (round(own.shape[0] ** 0.5) + 1) // 2
        return resize_bias_table(torch.from_numpy(old), window).numpy()
    return old


def _batch(case: ModelCase, dtype: str) -> Arrays:
    return {
        name: value.astype(dtype) if value.dtype.kind == "f" else value
        for name, value in make_batch(case).items()
    }


def _converted(
    case: ModelCase, dtype: str, place: Path, name: str, sizes: Mapping[str, int]
) -> tuple[Arrays, dict]:
    """What the product's model holds and computes after conversion and loading."""
    model = paddle_side.build(case, dtype)
    fixed = "pos_embed" in dict(model.named_buffers())
    built = {_BUILT: model.pos_embed.numpy().copy()} if fixed else {}
    file = place / f"{name}.safetensors"
    convert_file(place / _SOURCE, file, _LAYOUT, case.model, **sizes)
    sot_paddle.load_weights(model, file)
    made = called(on_paddle, model, _batch(case, dtype), dtype)
    held = {key: tensor.numpy().copy() for key, tensor in model.state_dict().items()}
    logits = {"logits": on_paddle.numpy(made)} if dtype == "float64" else {}
    return {**built, **held, **logits}, on_paddle.stamp(made)


def bicubic(setting: Setting, *, sizes: Sequence[tuple[int, int]]) -> BothSides:
    """The kernel up to a distance of 4, and the matrices of axes of some sizes.

    PyTorch has neither as a function; what it makes of a single one among zeros holds both.

    Args:
        setting: of the case.
        sizes: (samples there are, samples wanted).
    """
    ours = {"kernel": resampling.cubic(_distances(), -0.75)}
    reference = {"kernel": _kernel()}
    for old, new in sizes:
        for antialias in (False, True):
            name = f"{old} to {new}{', antialiased' if antialias else ''}"
            ours[name] = resampling.bicubic_weights(old, new, antialias=antialias)
            reference[name] = _interpolated(np.eye(old), new, antialias=antialias)
    name = next(reversed(ours))
    return BothSides(
        ours,
        reference,
        {
            "a kernel of another slope": lambda: (
                ours | {"kernel": resampling.cubic(_distances(), -0.5)}
            ),
            "shifted by a sample": ours | {name: np.roll(ours[name], 1, axis=1)},
        },
        "sot_paddle.resampling",
        framework_free=True,
        note="ours: NumPy, reference: torch's interpolate",
    )


def _distances() -> np.ndarray:
    """Centres of the fine samples, seen from the middle sample of a coarse axis."""
    fine = np.arange((2 * _REACH + 1) * _FINER)
    return (fine + 0.5) / _FINER - (_REACH + 0.5)


def _kernel() -> np.ndarray:
    """What becomes of a one in the middle of zeros; the border is beyond the kernel."""
    impulse = np.zeros((1, 2 * _REACH + 1))
    impulse[0, _REACH] = 1.0
    return _interpolated(impulse, impulse.size * _FINER, antialias=False)[:, 0]


def _interpolated(rows: np.ndarray, new: int, *, antialias: bool) -> np.ndarray:
    """Rows (n, old), each resampled along its axis; (new, n)."""
    image = torch.from_numpy(rows)[:, None, None, :]
    made = F.interpolate(
        image, size=(1, new), mode="bicubic", align_corners=False, antialias=antialias
    )
    return made[:, 0, 0].numpy().T
