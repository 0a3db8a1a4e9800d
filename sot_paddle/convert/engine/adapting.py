"""Fit converted tensors to a model of another size: what is resampled, and what is left fresh.

Names are Paddle's. Nothing happens silently: every change has a reason that the callers show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sot_paddle.config import some
from sot_paddle.convert.engine.conversion_plan import by_reason
from sot_paddle.convert.engine.known_models import CLASS_SCORES, WORD_SCORES
from sot_paddle.resampling import (
    is_sinusoid,
    resample_bias_table,
    resample_position_embedding,
    sinusoid_table,
    window_of,
)

Shapes = Mapping[str, tuple[int, ...]]

POSITIONS = "pos_embed"
BIAS_TABLE = ".attn.relative_position_bias_table"
_CLASSIFIERS = (*WORD_SCORES, *CLASS_SCORES)


@dataclass(frozen=True)
class Fitted:
    """A checkpoint fitted to a model.

    Args:
        arrays: Paddle name -> array of the model's shape and the checkpoint's dtype.
        fresh: names of the model's tensors that keep their initialisation.
        notes: what was read, resampled or left out; to be shown to the user.
        metadata: what a file in Paddle's names states about the model it is of, else {}. Whoever
            fills a model compares it with the model's options: shapes do not show them all.
        averaged: whether these are the averaged weights of a training's file; None where the file
            holds one set of weights.
    """

    arrays: Mapping[str, np.ndarray]
    fresh: tuple[str, ...]
    notes: tuple[str, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    averaged: bool | None = None


def fit(shapes: Shapes, wanted: Shapes, read: Callable[[str], np.ndarray]) -> Fitted:
    """Fit the tensors of a file to a model of given shapes.

    Position embeddings and bias tables are resampled. A token embedding of another kind, a head of
    another kind and classifiers of another number of classes are dropped. Everything else must fit.

    Args:
        shapes: what the file holds.
        wanted: what the model holds.
        read: name -> array of the file.

    Raises:
        ValueError: a backbone of another size or with other tensors, by name.
    """
    dropped = {**_drop_embed(shapes, wanted), **_drop_head(shapes, wanted)}
    parts = ("embed.", "head.")
    backbone = [name for name in shapes if not name.startswith(parts)]
    missing = [name for name in wanted if not name.startswith(parts) and name not in shapes]
    extra = [name for name in backbone if name not in wanted]
    if missing or extra:
        what = (("lacks", missing), ("has what the model lacks:", extra))
        raise ValueError(
            f"the backbone {'; '.join(f'{verb} {some(n)}' for verb, n in what if n)}: build the "
            "model with the depth and options the file was made with"
        )
    others = [name for name in backbone if shapes[name] != wanted[name]]
    resampled = {name: _resample(name, read(name), wanted[name]) for name in others}
    fresh = tuple(name for name in wanted if name not in shapes or name in dropped)
    arrays = {
        name: resampled[name][0] if name in resampled else read(name)
        for name in wanted
        if name not in fresh
    }
    reasons = {name: reason for name, (_, reason) in resampled.items()}
    notes = [f"resized: {text}" for text in by_reason(reasons)]
    notes += [f"not taken from the file: {text}" for text in by_reason(dropped)]
    if fresh:
        count = f"{len(fresh)} tensors" if len(fresh) > 1 else "1 tensor"
        notes.append(f"left at initialisation: {some(fresh)} ({count})")
    return Fitted(arrays, fresh, tuple(notes))


def _under(start: str, side: Shapes) -> Shapes:
    return {name: shape for name, shape in side.items() if name.startswith(start)}


def _drop_embed(shapes: Shapes, wanted: Shapes) -> dict[str, str]:
    ours, theirs = (_under("embed.", side) for side in (wanted, shapes))
    if set(ours) != set(theirs):
        return dict.fromkeys(theirs, "the model has another token embedding")
    odd = next((name for name in ours if ours[name] != theirs[name]), None)
    if odd is None:
        return {}
    reason = f"the model has another token embedding: {odd} is {ours[odd]}, not {theirs[odd]}"
    return dict.fromkeys(theirs, reason)


def _drop_head(shapes: Shapes, wanted: Shapes) -> dict[str, str]:
    ours, theirs = (_under("head.", side) for side in (wanted, shapes))
    if set(ours) != set(theirs):
        return dict.fromkeys(theirs, "the model has another head")
    odd = {name.rpartition(".")[0] for name in ours if ours[name] != theirs[name]}
    inner = sorted(layer for layer in odd if f"{layer}.weight" not in _CLASSIFIERS)
    if inner:
        return dict.fromkeys(theirs, f"the model's head has another {inner[0]}")
    reasons = {}
    for name in theirs:
        layer = name.rpartition(".")[0]
        if layer in odd:
            made, asked = (side[f"{layer}.bias"][0] for side in (theirs, ours))
            reasons[name] = (
                f"a classifier of {made} classes, and {asked} are wanted"
                if made != asked
                else "a classifier of another representation"
            )
    return reasons


def _resample(name: str, array: np.ndarray, wanted: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """A tensor for another number of positions, and from what to what and how it was made."""
    shape = array.shape
    same_width = len(shape) == len(wanted) and shape[-1] == wanted[-1]
    if name == POSITIONS and same_width:
        return _new_positions(array, *wanted[1:])
    if name.endswith(BIAS_TABLE) and same_width:
        old, new = window_of(shape[0]), window_of(wanted[0])
        how = "bicubic without antialiasing as Swin's own loading"
        reason = f"relative positions of windows of {old} to windows of {new}, {how}"
        return resample_bias_table(array, new), reason
    raise ValueError(
        f"{name} has shape {shape}, the model wants {wanted}: a backbone of another size"
    )


def _new_positions(table: np.ndarray, positions: int, dim: int) -> tuple[np.ndarray, str]:
    old = table.shape[1]
    if is_sinusoid(table):
        published = sinusoid_table(positions, dim).astype(np.float32)
        reason = f"the fixed table of {old} positions is computed for {positions}"
        return published.astype(table.dtype), reason
    how = "bicubic with antialiasing as timm's resample_abs_pos_embed"
    reason = f"learned positions of {old - 1} tokens to {positions - 1}, {how}"
    return resample_position_embedding(table, positions - 1), reason
