"""Fit converted tensors to a model of another size: what is resampled, and what is left fresh.

Names are Paddle's. Nothing happens silently: every change has a reason that the callers show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
class Change:
    """A tensor that is made for another size.

    Args:
        reason: from what to what, and how.
        make: old array -> new array, of the same dtype.
    """

    reason: str
    make: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Adaptation:
    """What becomes of a file's tensors in a model of given shapes.

    Args:
        changes: name -> how it is resampled.
        dropped: name -> why the file's tensor is not used.
        fresh: the model's tensors that keep their initialisation.
    """

    changes: Mapping[str, Change]
    dropped: Mapping[str, str]
    fresh: tuple[str, ...]

    def notes(self) -> list[str]:
        """What to tell the user, tensors with the same reason in one line."""
        resized = {name: change.reason for name, change in self.changes.items()}
        lines = [f"resized: {text}" for text in by_reason(resized)]
        return [*lines, *(f"not taken from the file: {text}" for text in by_reason(self.dropped))]


def adapt(shapes: Shapes, wanted: Shapes, read: Callable[[str], np.ndarray]) -> Adaptation:
    """Decide for every tensor of a file and of a model.

    Position embeddings and bias tables are resampled. A token embedding of another kind, a head of
    another kind and classifiers of another number of classes are dropped. Everything else must fit.

    Args:
        shapes: what the file holds.
        wanted: what the model holds.
        read: name -> array of the file.

    Returns:
        The decisions.

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
    changes = {
        name: _change(name, shapes[name], wanted[name], read)
        for name in backbone
        if shapes[name] != wanted[name]
    }
    fresh = tuple(name for name in wanted if name not in shapes or name in dropped)
    return Adaptation(changes, dropped, fresh)


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


def _change(
    name: str, shape: tuple[int, ...], wanted: tuple[int, ...], read: Callable[[str], np.ndarray]
) -> Change:
    same_width = len(shape) == len(wanted) and shape[-1] == wanted[-1]
    if name == POSITIONS and same_width:
        return _new_positions(shape[1], wanted, sinusoid=is_sinusoid(read(name)))
    if name.endswith(BIAS_TABLE) and same_width:
        old, new = window_of(shape[0]), window_of(wanted[0])
        reason = (
            f"relative positions of windows of {old} to windows of {new}, bicubic without"
            " antialiasing as Swin's own loading"
        )
        return Change(reason, lambda table: resample_bias_table(table, new))
    raise ValueError(
        f"{name} has shape {shape}, the model wants {wanted}: a backbone of another size"
    )


def _new_positions(old: int, wanted: tuple[int, ...], *, sinusoid: bool) -> Change:
    _, positions, dim = wanted
    if sinusoid:

        def recompute(table: np.ndarray) -> np.ndarray:
            published = sinusoid_table(positions, dim).astype(np.float32)
            return published.astype(table.dtype)

        reason = f"the fixed table of {old} positions is computed for {positions}"
        return Change(reason, recompute)
    reason = (
        f"learned positions of {old - 1} tokens to {positions - 1}, bicubic with antialiasing as"
        " timm's resample_abs_pos_embed"
    )
    return Change(reason, lambda table: resample_position_embedding(table, positions - 1))
