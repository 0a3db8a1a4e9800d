"""Fit converted tensors to a model of another size: what is resampled, and what is left fresh.

Names are Paddle's. Nothing happens silently: every change has a reason that the callers show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sot_paddle.backbones.token_geometry import staged_grid, third_stride, whole_patch
from sot_paddle.config import some
from sot_paddle.convert.engine.conversion_plan import ConversionPlan, by_reason
from sot_paddle.convert.engine.known_models import CLASS_SCORES, WORD_SCORES, known_traits
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
_LAST_SHORTCUT = "embed.blocks.2.shortcut."
_CLASSIFIERS = (*WORD_SCORES, *CLASS_SCORES)


@dataclass(frozen=True)
class Change:
    """A tensor that is made for another size.

    Args:
        shape: what it becomes.
        method: one word for the manifest.
        reason: from what to what, and how.
        make: old array -> new array, of the same dtype.
    """

    shape: tuple[int, ...]
    method: str
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
        return Change(wanted, "bicubic", reason, lambda table: resample_bias_table(table, new))
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
        return Change(wanted, "sinusoid", reason, recompute)
    reason = (
        f"learned positions of {old - 1} tokens to {positions - 1}, bicubic with antialiasing as"
        " timm's resample_abs_pos_embed"
    )
    return Change(
        wanted, "bicubic", reason, lambda table: resample_position_embedding(table, positions - 1)
    )


def shapes_for(
    plan: ConversionPlan,
    *,
    img_size: int | None = None,
    window_size: int | None = None,
    num_classes: int | None = None,
) -> dict[str, tuple[int, ...]]:
    """The shapes that a converted model has after a change of size.

    Args:
        plan: a forward plan.
        img_size: side of the images in pixels, None to keep what there is.
        window_size: side of Swin's windows in tokens; windows shrink to a smaller grid.
        num_classes: K.

    Returns:
        Paddle name -> shape.

    Raises:
        ValueError: an option that this model does not have, or a size that cannot be.
    """
    shapes = plan.destination_shapes
    traits = known_traits(plan.model)
    asked = {"img-size": img_size, "window-size": window_size, "num-classes": num_classes}
    for option, value in asked.items():
        if value is not None and not traits.embed and option != "num-classes":
            raise ValueError(f"--{option} is for image models, and {plan.model!r} is none")
        if value is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1, got {value}")
    if window_size is not None and traits.family != "swin":
        raise ValueError(f"--window-size is for Swin, and {plan.model!r} has no windows")
    grid = None if img_size is None else _grid(plan, img_size)
    if grid is not None and POSITIONS in shapes:
        shapes[POSITIONS] = (1, 1 + grid * grid, shapes[POSITIONS][2])
    if grid is not None and plan.embed == "resnet":
        _fit_shortcut(shapes, strided=third_stride(img_size) > 1)
    if traits.family == "swin" and (grid is not None or window_size is not None):
        _fit_windows(shapes, grid, window_size)
    for name in _CLASSIFIERS:
        if num_classes is not None and name in shapes:
            shapes[name] = (*shapes[name][:-1], num_classes)
    return shapes


def _grid(plan: ConversionPlan, img_size: int) -> int:
    """Tokens along one side at the embedding's output; large output for Swin, small otherwise."""
    traits = known_traits(plan.model)
    if plan.embed != "patch":
        return staged_grid(plan.embed, img_size, traits.family == "swin")
    if traits.embed != "patch":
        raise ValueError(
            "--img-size cannot change the token embedding 'linear': the width of its patches"
            " follows from the size of the image"
        )
    return img_size // whole_patch(img_size, plan.sizes["p"])


def _fit_windows(
    shapes: dict[str, tuple[int, ...]], grid: int | None, window_size: int | None
) -> None:
    tables = [name for name in shapes if name.endswith(BIAS_TABLE)]
    nominal = window_size or max(window_of(shapes[name][0]) for name in tables)
    for name in tables:
        stage = int(name.split(".")[1])
        window = nominal if grid is None else min(nominal, -(-grid // 2**stage))
        shapes[name] = ((2 * window - 1) ** 2, shapes[name][1])


def _fit_shortcut(shapes: dict[str, tuple[int, ...]], *, strided: bool) -> None:
    """ResNet's last shortcut is a convolution exactly where the last stage strides."""
    there = any(name.startswith(_LAST_SHORTCUT) for name in shapes)
    if there == strided:
        return
    raise ValueError(
        "--img-size changes the third stride of the token embedding 'resnet', and with it the"
        " tensors it has; train it anew for this size"
    )
